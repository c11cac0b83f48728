"""The examples run."""

from __future__ import annotations

import ast
import importlib.util
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import polyphase
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


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_first_line_says_for_whom(path: Path) -> None:
    assert (ast.get_docstring(ast.parse(path.read_text())) or "").startswith(("For people who ", "For people with "))


def test_image_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
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
    Image = pytest.importorskip("PIL.Image")  # noqa: N806
    Image.new("RGB", (40, 10), (255, 255, 255)).save(tmp_path / "white.png")
    monkeypatch.setattr(sys, "argv", ["image_processor.py", str(tmp_path / "white.png")])
    sys.modules["image_processor"].main()
    said = capsys.readouterr().out
    assert "40x10 to (3, 384, 384), values from -0.00 to 1.00" in said
    assert "1 images in" in said


@pytest.mark.full
def test_ray_preprocess(tmp_path: Path) -> None:
    """In a process of its own; once more, for one image more."""
    Image, parquet = pytest.importorskip("PIL.Image"), pytest.importorskip("pyarrow.parquet")  # noqa: N806
    pytest.importorskip("ray")
    (tmp_path / "images").mkdir()
    for number in range(13):
        pixels = image(number).permute(1, 2, 0).contiguous().numpy()
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    (tmp_path / "images" / "no image.png").write_bytes(b"no image")
    out = tmp_path / "out"
    command = [sys.executable, str(EXAMPLES / "ray_preprocess.py"), str(tmp_path / "images"), str(out), "--size", "4"]
    last = (tmp_path / "images" / "12.png").rename(tmp_path / "12.png")
    for count in (12, 13):
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert f"{count} images are in {out}" in said
        names = parquet.read_table(out, columns=["path"])["path"].to_pylist()
        assert sorted(Path(one).name for one in names) == sorted(f"{number}.png" for number in range(count))
        if count == 12:
            last.rename(tmp_path / "images" / "12.png")


@pytest.mark.full
def test_ray_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """Killed when it has written something; begun again, every image is there once."""
    Image, parquet = pytest.importorskip("PIL.Image"), pytest.importorskip("pyarrow.parquet")  # noqa: N806
    pytest.importorskip("ray")
    (tmp_path / "images").mkdir()
    names = [f"{number}.png" for number in range(150)]
    for number, name in enumerate(names):
        Image.fromarray(image(number).permute(1, 2, 0).contiguous().numpy()).save(tmp_path / "images" / name)
    out = tmp_path / "out"
    command = [sys.executable, str(EXAMPLES / "ray_preprocess.py"), str(tmp_path / "images"), str(out), "--size", "4"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        while running.poll() is None and len(list(out.glob("*.parquet"))) < 2:  # the second is being written
            time.sleep(0.01)
        assert running.poll() is None, "it is stopped in the middle"
        running.kill()
    subprocess.run(command, check=True, capture_output=True)
    found = parquet.read_table(out, columns=["path"])["path"].to_pylist()
    assert sorted(Path(one).name for one in found) == sorted(names)


def in_its_own_process(script: str, folder: Path) -> str:
    """What a script prints that is given folders of images and of results. Workers find the examples by PYTHONPATH."""
    command = [sys.executable, "-c", script, str(folder / "images"), str(folder / "out")]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES)}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


ON_THREE_NODES = """
import os, sys, threading, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
import ray_preprocess

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
others = [cluster.add_node(num_cpus=1) for _ in range(2)]
ray.init(address=cluster.address, log_to_driver=False)
out = Path(sys.argv[2])

def kill():
    while len(list(out.glob("*.parquet"))) < 2:
        time.sleep(0.05)
    cluster.remove_node(others[1], allow_graceful=False)
    print("killed", flush=True)

killer = threading.Thread(target=kill, daemon=True)
killer.start()
ray_preprocess.preprocess(sys.argv[1], str(out), size=8)
killer.join(30)
ray.shutdown()
cluster.shutdown()
os._exit(0)  # how Ray leaves a cluster that has lost a node is not what is asked
"""


@pytest.mark.full
def test_ray_with_a_node_that_is_killed(tmp_path: Path) -> None:
    """Three nodes, which Ray simulates on one machine; one of them dies half-way: every image is there once."""
    Image, parquet = pytest.importorskip("PIL.Image"), pytest.importorskip("pyarrow.parquet")  # noqa: N806
    pytest.importorskip("ray")
    (tmp_path / "images").mkdir()
    names = [f"{number}.png" for number in range(600)]
    for number, name in enumerate(names):
        Image.fromarray(image(number % 50).permute(1, 2, 0).contiguous().numpy()).save(tmp_path / "images" / name)
    (tmp_path / "images" / "no image.png").write_bytes(b"no image")
    said = in_its_own_process(ON_THREE_NODES, tmp_path)
    assert "killed" in said
    found = parquet.read_table(tmp_path / "out", columns=["path"])["path"].to_pylist()
    assert sorted(Path(one).name for one in found) == sorted(names)


ON_GPUS = """
import sys
import ray
import ray_preprocess

ray.init(address="local", num_cpus=4, num_gpus=2, log_to_driver=False)  # GPUs as Ray counts them
ray_preprocess.preprocess(sys.argv[1], sys.argv[2], size=4, gpus=2)
"""


@pytest.mark.full
def test_ray_by_actors_with_gpus(tmp_path: Path) -> None:
    """What is done by tasks, and by actors that have a GPU, is the same."""
    Image, parquet = pytest.importorskip("PIL.Image"), pytest.importorskip("pyarrow.parquet")  # noqa: N806
    pytest.importorskip("ray")
    (tmp_path / "images").mkdir()
    for number in range(9):
        pixels = image(number).permute(1, 2, 0).contiguous().numpy()
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    in_its_own_process(ON_GPUS, tmp_path)
    rows = {Path(row["path"]).name: row["pixels"] for row in parquet.read_table(tmp_path / "out").to_pylist()}
    assert sorted(rows) == [f"{number}.png" for number in range(9)]
    chain = polyphase.fuse(example("ray_preprocess").TRANSFORMS[1:])
    expected = chain(Image.open(tmp_path / "images" / "3.png").convert("RGB"))
    torch.testing.assert_close(torch.tensor(rows["3.png"]), expected, atol=2 / 255 / 0.224, rtol=0)


def test_timm_transforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Image = pytest.importorskip("PIL.Image")  # noqa: N806
    training, evaluation = (example("timm_transforms").create_transform(40, is_training=one) for one in (True, False))
    images = [image(seed) for seed in range(4)]
    torch.manual_seed(0)
    random.seed(0)
    expected = torch.stack([training(one) for one in images])
    torch.manual_seed(0)
    random.seed(0)
    assert torch.equal(training.batch(images), expected)
    assert evaluation.batch(images).shape == (4, 3, 40, 40)
    Image.fromarray(image(1).permute(1, 2, 0).contiguous().numpy()).save(tmp_path / "one.png")
    monkeypatch.setattr(sys, "argv", ["timm_transforms.py", str(tmp_path / "one.png"), str(tmp_path / "out.png")])
    sys.modules["timm_transforms"].main()
    assert Image.open(tmp_path / "out.png").size == (8 * 224, 224)
    assert "8 pictures of (3, 224, 224) that training would see" in capsys.readouterr().out


def test_decode_and_preprocess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Image = pytest.importorskip("PIL.Image")  # noqa: N806
    numpy, module = pytest.importorskip("numpy"), example("decode_and_preprocess")
    files = []
    for seed in range(3):
        files.append(tmp_path / f"{seed}.jpg")
        Image.fromarray(image(seed).permute(1, 2, 0).contiguous().numpy()).save(files[-1])
    made = module.batch(module.decoded([one.read_bytes() for one in files], "cpu"))
    assert made.is_contiguous(memory_format=torch.channels_last)
    pixels = torch.from_numpy(numpy.array(Image.open(files[1]))).permute(2, 0, 1)
    assert torch.equal(made[1], module.PIPELINE(pixels))
    monkeypatch.setattr(sys, "argv", ["decode_and_preprocess.py", *map(str, files)])
    module.main()
    assert re.match(r"\(3, 3, 224, 224\) of torch.float32 on \w+(:0)?: decoding [\d.]+ ms", capsys.readouterr().out)
