"""The page: whole, alone, and legible in a real browser."""

from __future__ import annotations

import dataclasses
import re
import struct
import zlib
from pathlib import Path

import pytest
import torch

from polyphase.bench import pictures, report
from polyphase.bench.results import Run
from tests.bench.conftest import run
from tests.support.browser import check_in_a_browser


@pytest.fixture(scope="module")
def page() -> str:
    return report.page([run(), run(tag="PR <b>", polyphase=2e-4)])


def test_the_page_stands_alone(page: str) -> None:
    assert "<script" not in page
    assert "http" not in page
    assert set(re.findall(r"(?:src|href)=['\"]?([^:]+:)", page)) == {"data:"}
    assert "PR &lt;b&gt;" in page
    assert "PR <b>" not in page


def test_every_cell_has_a_bar_or_a_reason(page: str) -> None:
    shown = [cell for made in (run(), run()) for row in made.rows for cell in row.columns if not cell.skipped]
    assert page.count("class='fill ") == len(shown)
    assert page.count("class=spread ") == len(shown)
    assert "40.0 times the memory floor" in page
    assert "memory floor 10.0 us" in page
    assert "1.60 ms" in page


def test_speed_ups_and_names_are_on_the_page() -> None:
    page = report.page([run()])
    assert page.count("<small>4.00x over Eager</small>") == 2
    assert "100 us <small>4.00x over Eager</small>" in page
    for name in ("u8 is", "f32 floats", "CF has", "CL last", "1-&gt;4: one"):
        assert name in page


def test_problems_are_said() -> None:
    whole = run()
    cells = tuple(dataclasses.replace(c, passes=(), problem="not compiled: why") for c in whole.rows[0].cells)
    row = dataclasses.replace(whole.rows[0], cells=cells)
    text = report.page([dataclasses.replace(whole, rows=(row,), complete=False)])
    assert "<span class=problem>not compiled: why</span>" in text
    assert "interrupted" in text


@pytest.mark.parametrize(
    ("seconds", "shown"), [(2e-6, "2.00 us"), (0.000123, "123 us"), (0.0456, "45.6 ms"), (2.5, "2.50 s")]
)
def test_units(seconds: float, shown: str) -> None:
    assert report.duration(seconds) == shown


def test_pictures_are_equal_where_eager_has_bytes() -> None:
    levels = {picture.name: picture.levels for picture in pictures.pictures()}
    assert len(levels) == 9
    turned = levels.pop("bicubic, turned by 20 degrees")
    assert turned <= 1  # rounded from doubles, where eager has no bytes
    assert set(levels.values()) == {0}


def test_png() -> None:
    image = torch.arange(2 * 3 * 3, dtype=torch.uint8).reshape(3, 2, 3)
    data = pictures.png(image)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (3, 2)
    start = data.index(b"IDAT") + 4
    rows = zlib.decompress(data[start : data.index(b"IEND") - 8])
    assert list(rows) == [0, 0, 6, 12, 1, 7, 13, 2, 8, 14, 0, 3, 9, 15, 4, 10, 16, 5, 11, 17]
    pil = pytest.importorskip("PIL.Image")
    import io

    opened = pil.open(io.BytesIO(data))
    opened.load()
    assert opened.getpixel((1, 0)) == (1, 7, 13)


def long_run() -> Run:
    """Names and problems as long as they get."""
    whole = run(tag="a-rather-long-tag")
    problem = "not compiled: the recompile limit of 8 was reached"
    broken = tuple(
        dataclasses.replace(cell, passes=(), problem=problem) if cell.column == "inductor" else cell
        for cell in whole.rows[1].cells
    )
    rows = (whole.rows[0], dataclasses.replace(whole.rows[1], cells=broken))
    return dataclasses.replace(whole, rows=rows)


@pytest.mark.full
@pytest.mark.parametrize("width", [1200, 600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(tmp_path: Path, scheme: str, width: int) -> None:
    check_in_a_browser(report.page([long_run()]), "report", scheme, width, tmp_path)
