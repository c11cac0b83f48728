"""Tables and speed-ups, in every form."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from polyphase.bench import compare, documents, tables
from polyphase.bench.noise import FASTER, NOISE
from polyphase.bench.results import Run
from polyphase.errors import NoColumnError, UnknownNameError
from tests.bench.conftest import run


def test_one_run_is_held_against_what_we_replace() -> None:
    (table,) = compare.tables([run()])
    assert [str(gain) for gain in compare.gains([table])] == [
        "speed-up Polyphase vs Eager: 4.0x on average of 2 rows, from 4.0x to 4.0x"
    ]
    (pair,) = table.pairs
    assert pair.title == "speed-up Polyphase vs Eager"
    ratio = table.rows[0].ratios[0]
    assert ratio is not None
    assert (round(ratio.speed_up, 2), ratio.verdict) == (4.0, FASTER)
    assert table.titles == ("Eager (2.13.0)", "Compiled (2.13.0)", "Polyphase (0.1.0)", "OpenCV (5.0.0)")


def test_two_builds_by_their_tags() -> None:
    runs = [run(tag="Nightly"), run(tag="PR", polyphase=0.8e-4)]
    (table,) = compare.tables(runs, ["Polyphase .+ PR;Polyphase .+ Nightly;speed-up PR vs Nightly"])
    assert [pair.title for pair in table.pairs] == ["speed-up PR vs Nightly"]
    assert [round(ratio.speed_up, 2) for row in table.rows for ratio in row.ratios if ratio] == [1.25, 1.25]


def test_a_slower_machine_is_no_slower_build() -> None:
    (table,) = compare.tables([run(), run(machine=1.7)])
    assert "Eager (2.13.0) #2" in table.titles
    assert {ratio.verdict for row in table.rows for ratio in row.ratios if ratio} == {NOISE}
    assert compare.slower_than([table], 0.95) == []


def test_runs_of_other_suites_stand_in_one_table_each() -> None:
    whole = run()
    other = dataclasses.replace(whole, rows=tuple(dataclasses.replace(row, suite="flip") for row in whole.rows))
    first, second = compare.tables([whole, other])
    assert (first.suite, second.suite) == ("aa", "flip")
    assert first.titles == second.titles == compare.tables([whole])[0].titles
    assert [pair.title for pair in second.pairs] == ["speed-up Polyphase vs Eager"]


def test_slower_rows_are_named() -> None:
    found = compare.tables([run(tag="A"), run(tag="B", polyphase=2e-4)])
    assert len(compare.slower_than(found, 0.95)) == 2
    assert compare.slower_than(found, 0.95)[0].endswith("speed-up Polyphase B vs Polyphase A 0.50")
    assert compare.slower_than(found, 0.4) == []


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("Polyphase", "it must be two regular expressions and a title"),
        ("Foo;Eager;x", "'Foo' matches no column; match one of: Eager"),
        (".;Eager;x", "'.' matches 4 columns"),
        ("(;Eager;x", "is no regular expression"),
    ],
)
def test_expressions_that_do_not_name_a_column(spec: str, says: str) -> None:
    with pytest.raises(NoColumnError, match=says.replace("(", r"\(")):
        compare.tables([run()], [spec])


def test_text() -> None:
    text = tables.as_text(compare.tables([run()]))
    (line,) = (line for line in text.splitlines() if "1x3x345x456" in line)
    assert [word.strip() for word in line.split("|")] == [
        "1->4: bilinear antialiased 1x3x345x456 -> 270x270, u8 CL", "400 (+-2)", "500 (+-2)", "100 (+-0)", "4.00x",
    ]  # fmt: skip
    assert "4.00x" in text
    assert "Not measured: OpenCV (5.0.0): not installed" in text
    assert "microseconds (us)" in text


def test_markdown_has_the_environment_and_the_suites() -> None:
    text = tables.as_markdown(compare.tables([run()]), [run()])
    assert text.startswith(
        "A processor, instruction set avx2, 1 thread; torch 2.13.0+cpu, polyphase 0.1.0 at 0123456789ab"
    )
    assert "| **aa** |  |  |  |  |" in text
    assert "| 400 (+-2) | 500 (+-2) | 100 (+-0) | 4.00x |" in text


def test_json() -> None:
    content = json.loads(tables.as_json(compare.tables([run(), run(machine=1.7)])))
    row = content["tables"][0]["rows"][0]
    assert row["speed_ups"]["speed-up Eager #2 vs Eager #1"]["verdict"] == NOISE
    assert row["cells"]["Eager (2.13.0) #1"]["median_seconds"] == pytest.approx(4e-4)
    assert row["cells"]["OpenCV (5.0.0) #1"] == {"problem": None, "skipped": "not installed"}


def test_unknown_form() -> None:
    with pytest.raises(UnknownNameError, match="unknown format 'html'; choose one of: json, markdown, text"):
        tables.rendered([], [], "html")


def with_problem(suite: str, problem: str) -> Run:
    """The first row's Polyphase is wrong."""
    whole = run()
    row = whole.rows[0]
    cells = tuple(
        dataclasses.replace(cell, passes=(), problem=problem) if cell.column == "polyphase" else cell
        for cell in row.cells
    )
    rows = (dataclasses.replace(row, cells=cells), whole.rows[1])
    return dataclasses.replace(whole, rows=tuple(dataclasses.replace(row, suite=suite) for row in rows))


def test_a_problem_stands_where_the_number_would() -> None:
    (table,) = compare.tables([with_problem("aa", "wrong image: off by up to 37")])
    grid = tables.grid(table)
    assert grid.rows[0][3:] == ["wrong image [1]", ""]
    assert "[1] wrong image: off by up to 37" in grid.notes


def test_problems_are_numbered_throughout_a_document() -> None:
    runs = [with_problem("aa", "wrong image: one"), with_problem("flip", "wrong image: two")]
    text = tables.as_markdown(compare.tables(runs), runs)
    for number, problem in enumerate(("one", "two"), 1):
        assert text.count(f"wrong image [{number}]") == 1
        assert f"[{number}] wrong image: {problem}" in text


def test_documents_keep_what_is_around_the_marks(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"before\n{documents.BEGIN}\nold\n{documents.END}\nafter\n")
    documents.put("new\n", path)
    documents.put("newer\n", path)
    assert path.read_text() == f"before\n{documents.BEGIN}\n\nnewer\n\n{documents.END}\nafter\n"
    documents.put("whole\n", tmp_path / "x" / "table.md")
    assert (tmp_path / "x" / "table.md").read_text() == "whole\n"
