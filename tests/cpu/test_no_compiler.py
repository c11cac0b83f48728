"""Where nothing can be built: eager's results, and one warning that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase
import polyphase.functional as P
from polyphase.calls import binding
from polyphase.calls.prepared import FixedCall
from polyphase.cpu import build, launch, libraries
from polyphase.errors import BuildFailedError, NoKernelsWarning, UnknownNameError
from tests.support.vision import torchvision

CALLS = """
import collections, warnings
import torch
import torch.nn.functional as F
import polyphase.functional as P

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for width in range(3, 9):
        image = torch.rand(2, 3, 7, 6, dtype=torch.float64, requires_grad=True)
        for call in (
            lambda f: f.interpolate(image, (5, width), mode="bilinear"),
            lambda f: f.interpolate(image.detach(), (5, width), mode="bicubic", antialias=True),
            lambda f: f.pad(image, (width - 4, 1), value=2.0),
            lambda f: f.grid_sample(image, torch.full((2, width, 2, 2), 0.3, dtype=torch.float64), align_corners=True),
            lambda f: (torch if f is F else f).flip(image, (-1,)),
        ):
            results = [call(f) for f in (F, P)]
            torch.testing.assert_close(results[1], results[0])
            if results[0].requires_grad:
                gradients = [torch.autograd.grad(one, image, torch.ones_like(one))[0] for one in results]
                torch.testing.assert_close(gradients[1], gradients[0])
for text, count in collections.Counter(str(one.message) for one in caught).items():
    print(count, text.splitlines()[0])
"""


def warned(tmp_path: Path, **environment: str) -> list[str]:
    everything = {**os.environ, "POLYPHASE_CACHE_DIR": str(tmp_path / "cache"), **environment}
    command = [sys.executable, "-c", CALLS]
    return subprocess.run(command, env=everything, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def test_no_compiler(tmp_path: Path) -> None:
    (line,) = warned(tmp_path, CXX="", PATH=str(tmp_path))
    assert line.startswith("1 Polyphase runs on plain PyTorch operations, correct but slow: ")
    assert "install g++" in line


@pytest.mark.parametrize("script", ["exit 3", pytest.param("exit 0", marks=pytest.mark.full)])
def test_a_compiler_that_fails(script: str, tmp_path: Path) -> None:
    """Once for every kernel, and not for every size."""
    log, compiler = tmp_path / "log", tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho >> {log}\n{script}\n")
    compiler.chmod(0o755)
    lines = warned(tmp_path, CXX=str(compiler))
    assert lines
    for line in lines:
        assert line.startswith(
            "1 Polyphase runs on plain PyTorch operations, correct but slow: the C++ compiler failed"
        )
    assert len(log.read_text()) < 16


def interpolated(image: Tensor) -> Tensor:
    return P.interpolate(image, (5, 4), mode="bilinear", antialias=True)


def with_gradient(image: Tensor) -> Tensor:
    image = image.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(interpolated(image).sum(), image)
    return gradient


def with_gradient_of_warp(image: Tensor) -> Tensor:
    image, theta = image.clone().requires_grad_(), torch.eye(2, 3)[None]
    (gradient,) = torch.autograd.grad(P.affine_sample(image, theta, image.shape).sum(), image)
    return gradient


def accelerated(image: Tensor) -> Tensor:
    with polyphase.accelerate():
        return F.interpolate(image, (5, 4), mode="bilinear", antialias=True)


in_graph = FixedCall("program(float32, axes([axismap([flip()])]))")


def with_gradient_accelerated(image: Tensor) -> Tensor:
    image, grid = image.clone().requires_grad_(), F.affine_grid(torch.eye(2, 3)[None], list(image.shape), False)
    with polyphase.accelerate():
        (gradient,) = torch.autograd.grad(F.grid_sample(image, grid, "bicubic", align_corners=False).sum(), image)
    return gradient


def flipped(image: Tensor) -> Tensor:
    with polyphase.accelerate():
        return torch.flip(image, (-2, -3))  # as no other test: calls for any size are kept


def prepared(image: Tensor) -> Tensor:
    out = torch.empty_like(image)
    in_graph(image, (), out=out)
    return out


@pytest.fixture(autouse=True)
def _nothing_was_called() -> None:
    """What other tests called has kernels for all sizes."""
    binding.forget()


@pytest.fixture
def mended(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Nothing can be built until this is called."""

    def fails(requests: object) -> list[Path]:
        raise BuildFailedError("the compiler was killed")

    def forget() -> None:
        launch.forget()
        for one in (libraries.built_addresses, binding.bound, binding.bound_gradients):
            one.cache_clear()

    forget()
    monkeypatch.setattr(binding, "_warned", set())
    monkeypatch.setattr(binding, "RETRY_SECONDS", 0.0)
    with monkeypatch.context() as broken:
        broken.setattr(build, "libraries", fails)
        broken.setattr(libraries, "_libraries", {})  # those that other tests asked for
        yield broken.undo
    forget()


@pytest.mark.parametrize(
    "way",
    [interpolated, with_gradient, with_gradient_of_warp, accelerated, with_gradient_accelerated, flipped, prepared],
)
def test_no_shape_is_left_to_plain_torch_for_good(
    way: Callable[[Tensor], Tensor], mended: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = torch.rand(1, 2, 11, 13)  # of no other test
    with pytest.warns(NoKernelsWarning, match="the compiler was killed"):
        plain = [way(image) for _ in range(3)]
    assert all(torch.equal(one, plain[0]) for one in plain)
    mended()
    before = polyphase.stats()["kernels_launched"]
    torch.testing.assert_close(way(image), plain[0])
    in_a_call = polyphase.stats()["kernels_launched"] - before
    assert in_a_call == (2 if way in (with_gradient, with_gradient_of_warp, with_gradient_accelerated) else 1)


@pytest.mark.usefixtures("mended")
@pytest.mark.parametrize("kind", ["tensor", "batch", "Pillow"])
def test_pipelines(kind: str) -> None:
    """They bind kernels to memory that is no tensor's, and to images that have no batch."""
    v2 = torchvision()
    image = torch.randint(0, 256, (3, 20, 24), dtype=torch.uint8)
    given = {"tensor": image, "batch": image[None], "Pillow": v2.functional.to_pil_image(image)}[kind]
    after = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])]
    most = 2 / 255 / 0.2 + 1e-5 if kind == "Pillow" else 1e-5  # two levels: it rounds otherwise
    for first in (v2.Resize((9, 10)), v2.RandomHorizontalFlip(1.0), v2.CenterCrop(8), v2.RandomRotation((20, 20))):
        transform = v2.Compose([first, *after])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoKernelsWarning)
            fused = polyphase.fuse(transform)
            for _ in range(2):
                torch.testing.assert_close(fused(given), transform(given), rtol=1e-5, atol=most)
            for one in fused.batch([given, given]) if kind != "batch" else ():
                torch.testing.assert_close(one, transform(given), rtol=1e-5, atol=most)


def test_not_tried_at_every_call(mended: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    image = torch.rand(1, 2, 11, 17)
    monkeypatch.setattr(binding, "RETRY_SECONDS", 60.0)
    with pytest.warns(NoKernelsWarning):
        interpolated(image)
    mended()
    before = polyphase.stats()["kernels_launched"]
    interpolated(image)
    assert polyphase.stats()["kernels_launched"] == before


@pytest.mark.parametrize("way", [interpolated, with_gradient, accelerated])
@pytest.mark.usefixtures("mended")
def test_the_warning_points_at_the_users_line(way: Callable[[Tensor], Tensor]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        way(torch.rand(1, 2, 11, 19))
    assert {one.filename for one in caught} == {__file__}
    line = Path(__file__).read_text().splitlines()[caught[0].lineno - 1]
    assert "interpolate(image, (5, 4)" in line


@pytest.mark.inductor
@pytest.mark.usefixtures("mended")
def test_the_warning_points_at_the_users_line_in_compiled_code() -> None:
    def doubled(image: Tensor) -> Tensor:
        return F.interpolate(image, (5, 4), mode="bilinear", antialias=True) * 2

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.compile(doubled, backend="polyphase")(torch.rand(1, 2, 11, 23))
    (warned,) = (one for one in caught if one.category is NoKernelsWarning)
    assert warned.filename == __file__


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.inductor)])
def test_a_wrong_instruction_set_is_one_error_every_way(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYPHASE_ISA", "sse2")
    for way in [torch.compile(interpolated, backend="polyphase")] if compiled else [interpolated, accelerated]:
        with pytest.raises(UnknownNameError, match="unknown instruction set in POLYPHASE_ISA 'sse2'; choose one of:"):
            way(torch.rand(1, 2, 11, 29))
