"""The README's figure, numbers and table say what benchmarks and sizes say, and its claims have proofs."""

from __future__ import annotations

import re
import xml.etree.ElementTree
from pathlib import Path

import torch
import torch.nn.functional as F

from tools import front

ROOT = Path(__file__).parents[1]
MEAN, STD = (torch.tensor(one)[:, None, None] for one in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def test_the_readme_has_what_benchmarks_say() -> None:
    assert front.readme_with(front.table()) == front.README.read_text(), "run python -m tools.front"
    assert len(front.ROWS) == 6
    first_screen = front.README.read_text().partition("## ")[0]
    numbers = re.findall(r"\*\*([\d.]+x)\*\*", first_screen)
    assert len(numbers) == 3
    assert set(numbers) <= set(re.findall(r"\*\*([\d.]+x)\*\*", front.table()))


def test_times_of_a_row() -> None:
    """Of the first table that has the row and all columns."""
    eager, peer, ours = front.times(front.ROWS[0])
    assert eager > peer > ours > 0


def test_the_figure_is_written_by_the_tool() -> None:
    assert front.FIGURE.read_text() == front.figure(), "run python -m tools.front"
    xml.etree.ElementTree.fromstring(front.figure())


def test_the_figure_counts_what_tensors_hold() -> None:
    """Each pass is made by torch, one tensor after the other."""
    photo = torch.zeros(1, 3, *front.PHOTO, dtype=torch.uint8)
    rows = F.interpolate(photo, (front.PHOTO[0], front.RESIZED[1]), mode="bilinear", antialias=True)
    resized = F.interpolate(rows, front.RESIZED, mode="bilinear", antialias=True)
    cropped = resized[..., : front.CROPPED[0], : front.CROPPED[1]]
    flipped = cropped.flip(-1)
    floats = flipped.float()
    scaled = floats / 255
    chain = [(photo, rows), (rows, resized), (cropped, flipped), (flipped, floats), (floats, scaled)]
    less = scaled - MEAN
    chain += [(scaled, less), (less, less / STD)]
    bytes_ = [tuple(one.numel() * one.element_size() for one in pair) for pair in chain]
    assert [(one.reads, one.writes) for one in front.passes()] == bytes_
    ours = front.one_pass()
    assert (ours.reads, ours.writes) == (bytes_[0][0], bytes_[-1][1])


def test_every_proof_exists() -> None:
    page = (ROOT / "docs/proofs.md").read_text()
    proofs = re.findall(r"`((?:tests|tools|\.github)/[\w./]+?\.(?:py|yml))(?:::(\w+))?`", page)
    assert len(proofs) > 20
    for file, name in proofs:
        assert (ROOT / file).is_file(), file
        assert not name or f"def {name}(" in (ROOT / file).read_text(), f"{file} has no {name}"
