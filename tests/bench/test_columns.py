"""Titles, and what columns say where they cannot run."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from polyphase.bench import columns, libraries, measure
from polyphase.bench.columns import COLUMNS, compiled
from polyphase.bench.columns.base import Options
from polyphase.bench.columns.peers import OpenCV, Pillow, PillowSimd, Torchvision
from polyphase.bench.columns.uncompiled import Eager, Polyphase
from polyphase.bench.measure import Effort
from polyphase.bench.operations import AffineWarp, Flip, Resize
from polyphase.bench.workloads import Case
from polyphase.errors import NothingToMeasureError, UnknownNameError
from polyphase.version import __version__

RESIZE = Case("aa", Resize((20, 31), "bilinear", antialias=True), ((1, 3, 40, 50),), "u8", "CL")


@pytest.fixture(autouse=True)
def _forget_imports() -> None:
    libraries.imported.cache_clear()
    compiled.backend_missing.cache_clear()


def test_titles_have_the_version_and_the_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Polyphase(Options(tag="PR")).title == f"Polyphase ({__version__}) PR"
    for version, shown in {"2.13.0+cpu": "2.13.0", "2.14.0a0+git12": "2.14.0a0+git12", "2.13.0": "2.13.0"}.items():
        monkeypatch.setattr(torch, "__version__", version)
        assert Eager(Options()).title == f"Eager ({shown})"


def test_names() -> None:
    assert columns.names("eager, polyphase,eager", quick=False, fusion=True) == ["eager", "polyphase"]
    assert "polyphase-unfused" not in columns.names(None, quick=False, fusion=True)
    assert "polyphase-compiled" not in columns.names(None, quick=False, fusion=False)
    assert set(columns.names(None, quick=True, fusion=True)) < set(COLUMNS)
    with pytest.raises(UnknownNameError, match="unknown column 'halide'"):
        columns.names("eager,halide", quick=False, fusion=True)
    with pytest.raises(NothingToMeasureError, match="names no column"):
        columns.names(",", quick=False, fusion=True)


def test_without_a_backend_the_compiled_columns_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._dynamo, "list_backends", lambda exclude_tags: ["inductor"])
    for name in ("polyphase-compiled", "polyphase-unfused"):
        assert COLUMNS[name](Options()).can_run(RESIZE) == "backend not registered"


def test_a_peer_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    column = OpenCV(Options(tag="PR"))
    assert column.can_run(RESIZE) == "not installed"
    assert column.title == "OpenCV"


def test_a_peer_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise RuntimeError("operator torchvision::nms does not exist\nmore")

    monkeypatch.setattr("importlib.import_module", fail)
    reason = Torchvision(Options()).can_run(RESIZE)
    assert reason == "not importable: operator torchvision::nms does not exist"


def test_what_opencv_does_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", types.SimpleNamespace(__version__="5.0.0"))

    def reason(operation: Resize | Flip | AffineWarp, layout: str = "CL", batch: int = 1) -> str | None:
        return OpenCV(Options()).can_run(Case("x", operation, ((batch, 3, 40, 50),), "u8", layout))

    assert reason(Resize((20, 31), "bilinear", antialias=True)) == "no antialiasing"
    assert reason(Resize((20, 31), "bilinear")) is None
    assert reason(Resize((20, 31), "bilinear"), layout="CF") == "interleaved channels only"
    assert reason(Resize((20, 31), "bilinear"), batch=2) == "one image at a time"
    assert reason(AffineWarp("bilinear")) is None
    assert reason(AffineWarp("bicubic")) == "other borders or corners"
    assert reason(Flip(-1)) is None


def test_pillow_gives_eagers_picture() -> None:
    pil = pytest.importorskip("PIL")
    mine, other = (PillowSimd, Pillow) if ".post" in pil.__version__ else (Pillow, PillowSimd)
    with measure.settings(1, None):
        (row,), _ = measure.measure([RESIZE], {"pillow": mine(Options())}, Effort(1, 1, 0.0))
    assert row.cells[0].timed, row.cells[0].problem
    assert row.cells[0].difference <= 1
    assert str(other(Options()).can_run(RESIZE)).startswith("installed is ")
