"""`polyphase try`, as it is typed: people's transforms, pictures, datasets and mistakes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from polyphase.cli import app
from polyphase.trying import drawn, timing
from tests.support.browser import check_in_a_browser
from tests.support.vision import torchvision

Try = Callable[..., Result]

#: A data file of somebody who has never seen this project.
DATA = """
import random
import torch
from PIL import Image, ImageOps
from torchvision import tv_tensors
from torchvision.transforms import v2

evaluation = v2.Compose([v2.PILToTensor(), v2.Resize(64), v2.CenterCrop(56), v2.ToDtype(torch.float32, scale=True)])

class Gamma:
    def __call__(self, image):
        return (image ** random.uniform(0.8, 1.2)).clamp(0, 1)

def train_transform(size=48):
    return v2.Compose([
        v2.ToImage(), v2.RandomResizedCrop(size), v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True), Gamma(), v2.Normalize((0.5,) * 3, (0.5,) * 3),
    ])

def thumbnail(image):
    return ImageOps.fit(image, (32, 32))

def with_a_bug(image):
    return v2.functional.resize(image, 64) + undefined_offset

detection = v2.Compose([
    v2.RandomHorizontalFlip(p=0.5), v2.RandomResizedCrop(64), v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes(),
    v2.ToDtype(torch.float32, scale=True),
])

cut_at_random = v2.Compose([v2.ToImage(), v2.Resize((32, 32)), lambda image: image[:, int(torch.rand(()) < 0.4):]])

class Boxes:
    def __len__(self):
        return 3
    def __getitem__(self, number):
        image = tv_tensors.Image(torch.full((3, 80, 90 + number), 40 * number, dtype=torch.uint8))
        boxes = tv_tensors.BoundingBoxes([[5, 5, 60, 70]] * (number + 1), format="XYXY", canvas_size=image.shape[-2:])
        return image, {"boxes": boxes, "labels": torch.arange(number + 1)}

class NeedsAPath:
    def __init__(self, path): pass

number = 3
"""


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Try:
    """The command in a folder with the file above and two pictures, one of them broken, on a machine without a GPU."""
    torchvision()
    from PIL import Image

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(timing, "ROUNDS", 1)
    monkeypatch.setattr(timing, "BLOCK_SECONDS", 0.0)
    monkeypatch.setattr(drawn, "SIZES", ((60, 80), (80, 50)))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.py").write_text(DATA)
    (tmp_path / "fails.py").write_text("def helper():\n    return 1 / 0\n\nhelper()\n")
    (tmp_path / "photos").mkdir()
    Image.frombytes("RGB", (90, 70), bytes(range(210)) * 90).save(tmp_path / "photos" / "cat.png")
    (tmp_path / "photos" / "notes.txt").write_text("no picture")
    return lambda *words: CliRunner().invoke(app, ["try", *map(str, words), "-o", str(tmp_path / "page.html")])


def test_without_an_argument(attempt: Try, tmp_path: Path) -> None:
    done = attempt("--most", "3")
    assert done.exit_code == 0, done.output
    for title in ("ImageNet, training", "ImageNet, evaluation"):
        assert title in done.stdout
    assert done.stdout.count("3 pictures of 50x80 to 80x60 pixels, landscapes drawn") == 2
    assert done.stdout.count("all 5 transforms are one launch:") == 2
    assert len(re.findall(r"fused, in batches +[\d.]+ \ws +[\d.]+x", done.stdout)) == 2
    assert done.stdout.endswith(f"page: {tmp_path / 'page.html'}\n")
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert set(re.findall(r"(?:src|href)=['\"]?([^:]+:)", page)) == {"data:"}
    assert page.count("<img ") == 2 * 3 * 4


def test_ones_own_transform_with_a_part_of_ones_own(attempt: Try) -> None:
    done = attempt("data.py:train_transform", "photos")
    assert done.exit_code == 0, done.output
    assert "1 picture of 90x70 pixels, photos" in done.stdout
    assert "pictures: the same to the last bit (1 of 1), for the same seeds" in done.stdout
    assert "5 of 6 transforms are 2 launches, 1 runs as itself:" in done.stdout
    assert "  as itself  data.Gamma\n               data.Gamma is not a transform that Polyphase knows\n" in done.stdout
    assert "left out: notes.txt: UnidentifiedImageError" in done.stdout


def test_a_module_and_an_object_in_it(attempt: Try) -> None:
    done = attempt("data:evaluation", "photos/cat.png")
    assert done.exit_code == 0, done.output
    assert "all 4 transforms are one launch" in done.stdout


def test_in_a_process_of_its_own(attempt: Try, tmp_path: Path) -> None:
    """Where nothing has been imported yet: also a torchvision that is of another build than torch."""
    words = ("try", "data:evaluation", "photos", "-o", str(tmp_path / "own.html"))
    done = subprocess.run([sys.executable, "-m", "polyphase", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "all 4 transforms are one launch" in done.stdout


def test_a_function_of_pillow_images(attempt: Try) -> None:
    done = attempt("data.py:thumbnail", "photos")
    assert done.exit_code == 0, done.output
    assert "nothing is fused: the transform runs as itself" in done.stdout
    assert "data.thumbnail is not a transform that Polyphase knows" in done.stdout
    assert "not timed in batches" in done.stdout


def test_detection(attempt: Try) -> None:
    done = attempt("data.py:detection", "data.py:Boxes")
    assert done.exit_code == 0, done.output
    assert "3 samples of data.py:Boxes" in done.stdout
    assert "the same to the last bit (3 of 3)" in done.stdout
    assert "torchvision.transforms.v2._misc.SanitizeBoundingBoxes is not a transform" in done.stdout


@pytest.mark.parametrize("seed", range(3))
def test_results_that_make_batches_for_some_draws_only(attempt: Try, seed: int) -> None:
    done = attempt("data.py:cut_at_random", "--seed", str(seed))
    assert done.exit_code == 0, done.output
    assert ("not timed in batches" in done.stdout) != ("fused, in batches" in done.stdout)


def test_a_bug_of_the_users_is_told_as_theirs(attempt: Try, tmp_path: Path) -> None:
    done = attempt("data.py:with_a_bug", "photos")
    assert done.exit_code == 2
    first, *told = done.stderr.split("polyphase: ", 1)[1].splitlines()
    assert first.startswith("your transform fails, without us, on cat.png, given a Pillow image of mode RGB, 90x70")
    assert told[0] == "Traceback (most recent call last):"
    assert f'File "{tmp_path / "data.py"}"' in told[1]
    assert told[-1] == "NameError: name 'undefined_offset' is not defined"


def test_an_import_that_fails_is_told_as_theirs(attempt: Try, tmp_path: Path) -> None:
    done = attempt("fails:transform")
    assert done.exit_code == 2
    assert "fails fails when it is imported:" in done.stderr
    assert "importlib" not in done.stderr
    assert f'File "{tmp_path / "fails.py"}", line 4' in done.stderr
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["data.py"], "names nothing; give package.module:name, or FILE.py:name"),
        (["no_such_module:x"], "there is no module 'no_such_module' here"),
        (["data.py:evaluate"], "has no 'evaluate'; it has "),
        (["data.py:number"], "data.py:number is a int; name a transform"),
        (["data.py:NeedsAPath"], "is a class that needs path; name an object"),
        (["data.py:evaluation", "photoz"], "there is no file or folder 'photoz'"),
        (["data.py:evaluation", "photos/notes.txt"], "none of 1 files in photos/notes.txt is a picture"),
        (["data.py:evaluation", "data.py:number"], "a dataset has a length above 0"),
        (["data.py:evaluation", "--as", "jpeg"], "unknown kind of images 'jpeg'; choose one of: array, pillow, tensor"),
        (["--most", "0"], "--most 0; it must be 1 or more"),
        (["--threads", "0"], "--threads 0; it must be 1 or more"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_mistakes(attempt: Try, words: list[str], says: str) -> None:
    done = attempt(*words)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert line.startswith("polyphase: ")
    assert says in line


def test_ctrl_c_keeps_what_was_measured(attempt: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, calls = timing._seconds, iter(range(99))

    def interrupted(*given: Any) -> float:
        if next(calls) == 7:  # after five ways were warmed up, and two were timed
            raise KeyboardInterrupt
        return right(*given)

    monkeypatch.setattr(timing, "_seconds", interrupted)
    done = attempt("--most", "2")
    assert done.exit_code == 130
    assert "interrupted: this is what was measured" in done.stdout
    assert "the same" in done.stdout
    assert (
        len(re.findall(r"^  (?:decoding|as it is) +[\d.]+ \ws", done.stdout.replace("    ", "  "), re.MULTILINE)) == 2
    )
    assert "ImageNet, evaluation" not in done.stdout
    assert "interrupted" in (tmp_path / "page.html").read_text()


def test_pictures_as_tensors_and_arrays(attempt: Try) -> None:
    for kind in ("tensor", "array"):
        done = attempt("data.py:train_transform", "photos", "--as", kind)
        assert done.exit_code == 0, done.output
        assert "the same to the last bit (1 of 1)" in done.stdout


@pytest.mark.full
@pytest.mark.parametrize("width", [1200, 600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(attempt: Try, tmp_path: Path, scheme: str, width: int) -> None:
    attempt("data.py:train_transform")
    check_in_a_browser((tmp_path / "page.html").read_text(), "try", scheme, width, tmp_path)
