"""The examples run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pipelines.chains import image

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_load_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Image = pytest.importorskip("PIL.Image")  # noqa: N806
    for number in range(7):
        folder = tmp_path / f"class {number % 2}"
        folder.mkdir(exist_ok=True)
        Image.fromarray(image(number).permute(1, 2, 0).contiguous().numpy()).save(folder / f"{number}.png")
    loads = example("load_images")
    found = list(loads.batches(tmp_path, 4, 0))
    assert [tuple(images.shape) for images, _ in found] == [(4, 3, 224, 224), (3, 3, 224, 224)]
    assert sorted(torch.cat([labels for _, labels in found]).tolist()) == [0, 0, 0, 0, 1, 1, 1]
    monkeypatch.setattr(sys, "argv", ["load_images.py", str(tmp_path), "--size", "5", "--workers", "1"])
    loads.main()
    assert "7 images: (2, 3, 224, 224) of torch.float32" in capsys.readouterr().out


def test_image_processor() -> None:
    processor = example("image_processor").ImageProcessor(size=64)
    images = [image(1), image(2), image(3).permute(1, 2, 0).numpy()[::-1]]
    found = processor(images)["pixel_values"]
    assert found.shape == (3, 3, 64, 64)
    assert torch.equal(processor(images[1])["pixel_values"][0], found[1])
    assert found.min() >= -1
    assert found.max() <= 1
    narrow = processor(torch.full((3, 10, 40), 255, dtype=torch.uint8))["pixel_values"][0]
    assert torch.equal(narrow[:, 24:40], torch.ones(3, 16, 64))
    assert torch.allclose(narrow[:, :24], torch.tensor(127 / 255 * 2 - 1), atol=1e-6)
