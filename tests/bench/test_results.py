"""Runs as files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polyphase.bench import results
from polyphase.errors import ResultFileError
from tests.bench.conftest import run


def test_a_run_is_read_as_it_was_written(saved: Callable[..., Path]) -> None:
    path = saved(tag="PR 7/b")
    assert path.name == "20261115-120000-aa-PR_7_b.json"
    assert results.load(path) == run(tag="PR 7/b")


def test_names_without_a_tag(saved: Callable[..., Path]) -> None:
    assert saved().name == "20261115-120000-aa.json"


def test_medians_and_spreads() -> None:
    cell = results.Cell("eager", "Eager", ((1.0, 2.0, 3.0), (4.0, 5.0)))
    assert (cell.median, cell.spread) == (3.0, 1.0)
    assert not results.Cell("eager", "Eager", ((1.0,),), problem="wrong image").timed
    assert not results.Cell("eager", "Eager").timed


def damaged(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update(changes)


def lose_rows(content: dict[str, Any]) -> None:
    del content["rows"]


def text_for_times(content: dict[str, Any]) -> None:
    content["rows"][0]["cells"][0]["passes"] = "fast"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (damaged(kind="something else"), r"is no result of `polyphase bench`"),
        (damaged(version=99), r"version 99 of the format, this is for version 1; measure again"),
        (lose_rows, r"is damaged: .*'rows'"),
        (text_for_times, r"is damaged: 'fast' where a list is expected"),
    ],
)
def test_files_of_another_kind(saved: Callable[..., Path], change: Callable[[dict[str, Any]], None], says: str) -> None:
    path = saved()
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ResultFileError, match=says):
        results.load(path)


def test_no_json(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ResultFileError, match="no JSON"):
        results.load(tmp_path / "x.json")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultFileError, match="--out"):
        results.save(run(), tmp_path / "file")
