"""One test for every line of docs/where-eager-is-wrong.md: eager still does it, and ours does what the page says.

What eager does is asserted for the torch and the CPUs the page speaks of only. Reproducers that touch stray memory are
built to stay within a buffer of their own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase.sampling import reference
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.steps import Area, Nearest, Resize, Step
from polyphase.sampling.warps import Warp
from polyphase.torch_versions import ROUNDS_LINEAR_POSITIONS_ONCE
from tests.conformance.decompose import Decomposed, gradient, ours, threads
from tests.conformance.functional import OnFunctional

PAGE = Path(__file__).parents[2] / "docs" / "where-eager-is-wrong.md"
AVX = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
AS_ON_THE_PAGE = torch.__version__.startswith("2.13.") and AVX

HALF = (torch.float16, torch.bfloat16)
nan, inf = float("nan"), float("inf")


def same(got: Tensor, want: Sequence[float], atol: float = 0.0) -> bool:
    got = got.double().flatten()
    return torch.allclose(got, torch.tensor(want, dtype=torch.float64), rtol=0, atol=atol, equal_nan=True)


def eager_gives(run: Callable[[], Tensor], wrong: Sequence[float], atol: float = 0.0) -> None:
    """Eager's value as the page has it; nothing is run where the page does not speak of this torch or CPU."""
    if AS_ON_THE_PAGE:
        got = run()
        assert same(got, wrong, atol), f"eager was fixed: update docs/where-eager-is-wrong.md; it gives {got.flatten()}"


def ours_gives(right: Sequence[float], function: Callable[..., Tensor], *args: Any, atol: float = 0.0) -> None:
    """On the decompositions, and on the functional API if the function is one of its own."""
    got = ours(function, *args)
    assert same(got, right, atol), got
    with OnFunctional() as mode:
        got = function(*args)
    assert not mode.calls or same(got, right, atol), f"functional: {got}"


def reference_of(image: Tensor, *steps: Step) -> Tensor:
    """One step for each spatial axis."""
    return reference.run(Program(image.dtype, Axes(tuple(AxisMap((step,)) for step in steps))), image)


def our_gradients(
    function: Callable[[Tensor], Tensor], image: Tensor, weight: Tensor | Sequence[float]
) -> tuple[Tensor, Tensor]:
    """On the decompositions, and on the functional API."""
    with Decomposed() as decomposed:
        by_decompositions = gradient(function, image, weight)
    with OnFunctional() as functional:
        by_functional = gradient(function, image, weight)
    assert decomposed.backward is not None
    assert functional.calls
    return by_decompositions, by_functional


def our_gradients_are(
    right: Sequence[float],
    function: Callable[[Tensor], Tensor],
    image: Tensor,
    weight: Tensor | Sequence[float],
    atol: float = 0.0,
) -> None:
    for got in our_gradients(function, image, weight):
        assert same(got, right, atol), got


def layouts(row: Tensor, channels: Sequence[int] = (1, 3, 4, 5, 8)) -> Iterator[Tensor]:
    """A (1, 1, H, W) image with some numbers of channels, channels first and last, on one and on two threads."""
    for number, last, count in product(channels, (False, True), (1, 2)):
        image = row.expand(1, number, *row.shape[2:])
        memory = torch.channels_last if last else torch.contiguous_format
        with threads(count):
            yield image.contiguous(memory_format=memory)


def resized(size: Any, mode: str, **more: Any) -> Callable[[Tensor], Tensor]:
    return lambda image: F.interpolate(image, size, mode=mode, **more)


def scaled(factor: Any, mode: str = "nearest", **more: Any) -> Callable[[Tensor], Tensor]:
    return lambda image: F.interpolate(image, scale_factor=factor, mode=mode, **more)


def test_output_one_pixel_wide() -> None:
    x = torch.arange(4.0).view(1, 1, 4, 1)
    antialiased = resized((2, 1), "bilinear", antialias=True)
    eager_gives(lambda: antialiased(x), [5 / 7, 5 / 7], 1e-6)
    for image in layouts(x):
        ours_gives([5 / 7, 16 / 7], lambda t: antialiased(t)[0, -1], image, atol=1e-6)
    assert same(reference_of(x, Resize(2, "bilinear", True), Resize(1, "bilinear", True)), [5 / 7, 16 / 7], 1e-12)

    u = torch.tensor([0, 80, 160, 240], dtype=torch.uint8).view(1, 1, 4, 1)
    for options, wrong, right in (({}, [40, 40], [40, 200]), ({"antialias": True}, [57, 57], [57, 183])):
        function = resized((2, 1), "bilinear", **options)
        eager_gives(lambda f=function: f(u.expand(1, 5, 4, 1).contiguous())[0, 0], wrong)  # type: ignore[misc]
        for image in layouts(u):
            ours_gives(right, lambda t, f=function: f(t)[0, -1], image)


def test_uint8_three_channels_to_one_pixel() -> None:
    u = torch.tensor([10, 30], dtype=torch.uint8).view(1, 1, 2, 1)
    for antialias in (False, True):
        function = resized((1, 1), "bilinear", antialias=antialias)
        if AS_ON_THE_PAGE:
            with pytest.raises(RuntimeError, match="INTERNAL ASSERT"):
                function(u.expand(1, 3, 2, 1).contiguous())
        for image in layouts(u):
            ours_gives([20] * image.shape[1], function, image)


def test_out_variant_writes_past_its_output() -> None:
    x = torch.full((1, 3, 1, 2), 9, dtype=torch.uint8)
    buffer = torch.full((4,), 77, dtype=torch.uint8)

    def into_buffer() -> Tensor:
        torch.ops.aten.upsample_bilinear2d.out(x, [1, 1], False, out=buffer[:3].view(1, 3, 1, 1))
        return buffer

    eager_gives(into_buffer, [9, 9, 9, 0])
    ours_gives([9, 9, 9], torch.ops.aten.upsample_bilinear2d, x, [1, 1], False)


def test_uint8_one_pixel_wide_transposed() -> None:
    x = (torch.arange(16) * 16).to(torch.uint8).view(4, 4)[:1].T[None, None]
    function = resized((2, 1), "bilinear")
    eager_gives(lambda: function(x), [32, 160])
    ours_gives([8, 40], function, x)
    assert same(reference_of(x, Resize(2, "bilinear"), Resize(1, "bilinear")), [8, 40])
    two_channels = torch.tensor([0, 40, 80, 160], dtype=torch.uint8).as_strided((1, 2, 2, 1), (4, 1, 2, 1))
    function = resized((3, 1), "bilinear")
    eager_gives(lambda: function(two_channels), [0, 20, 40, 40, 60, 80])
    ours_gives([0, 40, 80, 40, 100, 160], function, two_channels)


def test_half_grid_sample_beyond_32767() -> None:
    for dtype, mode in product(HALF, ("nearest", "bilinear", "bicubic")):
        buffer = torch.full((32768 + 182 * 182,), 7.0, dtype=dtype)  # an offset that wraps stays inside of it
        x = buffer[32768:].view(1, 1, 182, 182).fill_(1)
        corner = torch.ones(1, 1, 1, 2, dtype=dtype)

        def function(image: Tensor, grid: Tensor, mode: str = mode) -> Tensor:
            return F.grid_sample(image, grid, mode=mode, align_corners=True)

        eager_gives(lambda f=function, x=x, g=corner: f(x, g), [7.0])  # type: ignore[misc]
        ours_gives([1.0], function, x, corner)


OF_A_PICTURE = """
import torch
import torch.nn.functional as F
torch.manual_seed(0)
ones = torch.ones(1, 3, 512, 512, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
inside = (torch.rand(1, 512, 512, 2) * 1.8 - 0.9).bfloat16()
print(F.grid_sample(ones, inside, align_corners=False).ne(1).float().mean().item())
"""


def test_half_grid_sample_of_a_picture() -> None:
    """In a process of its own, which may die of it."""
    if AS_ON_THE_PAGE:
        done = subprocess.run([sys.executable, "-c", OF_A_PICTURE], stdout=subprocess.PIPE, text=True)
        assert done.returncode != 0 or float(done.stdout) > 0.1, "eager was fixed: update docs/where-eager-is-wrong.md"
    ones = torch.ones(1, 3, 512, 512, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    inside = (torch.rand(1, 512, 512, 2, generator=torch.Generator().manual_seed(0)) * 1.8 - 0.9).bfloat16()
    assert P.grid_sample(ones, inside, align_corners=False).eq(1).all()


def test_half_grid_sample_coordinates() -> None:
    for dtype, place in ((torch.bfloat16, 0.99609375), (torch.float16, 0.99951171875)):
        x, grid = torch.ones(1, 1, 2, 2, dtype=dtype), torch.tensor([place, 0.0], dtype=dtype).view(1, 1, 1, 2)

        def function(image: Tensor, grid: Tensor) -> Tensor:
            return F.grid_sample(image, grid, mode="nearest", align_corners=False)

        eager_gives(lambda f=function, x=x, g=grid: f(x, g), [0.0])  # type: ignore[misc]
        ours_gives([1.0], function, x, grid)
        assert same(reference.run(Program(dtype, Warp("grid", "nearest")), x, grid=grid), [1.0])


def test_nearest_with_a_scale_that_keeps_the_size() -> None:
    row = torch.tensor([0.0, 1.0])
    function = scaled(1.4)
    for shape, eager in (((1, 1, 2), [0, 0]), ((1, 1, 1, 2), [0, 1]), ((1, 1, 1, 1, 2), [0, 0])):
        x = row.view(shape)
        eager_gives(lambda x=x: function(x), eager)  # type: ignore[misc]
        eager_gives(lambda x=x: gradient(function, x, [1.0, 10.0]), [1, 10])  # type: ignore[misc]
        ours_gives([0, 0], function, x)
        our_gradients_are([11, 0], function, x, [1.0, 10.0])
    assert same(reference_of(row.view(1, 1, 2), Nearest(2, scale=1.4)), [0, 0])

    tall, taller = row.view(1, 1, 2, 1).expand(1, 1, 2, 127), scaled((1.4, 1.0))
    first = tall.expand(1, 4, 2, 127)
    eager_gives(lambda: taller(first.contiguous())[0, 0, :, 0], [0, 0])
    eager_gives(lambda: taller(first.contiguous(memory_format=torch.channels_last))[0, 0, :, 0], [0, 1])
    for image in layouts(tall):
        ours_gives([0, 0], lambda t: taller(t)[0, -1, :, 0], image)


def test_bicubic_with_a_scale_that_keeps_the_size() -> None:
    z = torch.tensor([0.0, 100.0]).view(1, 1, 1, 2)
    function, resampled = scaled((1.0, 1.4), "bicubic"), [-7.8717201, 58.0174927]
    eager_gives(lambda: function(z), resampled, 1e-4)
    eager_gives(lambda: gradient(function, z, [1.0, 10.0]), [1, 10])
    eager_gives(lambda: function(z.byte()), [0, 100])
    ours_gives(resampled, function, z, atol=1e-4)
    ours_gives([0, 100], function, z.byte())
    columns = torch.stack([ours(function, e.view(1, 1, 1, 2)).flatten() for e in torch.eye(2)])
    adjoint = (columns @ torch.tensor([1.0, 10.0])).tolist()
    our_gradients_are(adjoint, function, z, [1.0, 10.0], atol=1e-6)


def test_antialiased_with_a_scale_that_keeps_the_size() -> None:
    z = torch.tensor([0.0, 100.0]).view(1, 1, 1, 2)
    function = scaled((1.0, 1.4), "bilinear", antialias=True)
    eager_gives(lambda: function(z), [0, 100])
    eager_gives(lambda: gradient(function, z, [1.0, 10.0]), [37 / 7, 40 / 7], 1e-5)
    ours_gives([0, 100], function, z)
    our_gradients_are([1, 10], function, z, [1.0, 10.0], atol=1e-6)


def test_nearest_doubled_by_another_factor() -> None:
    x, right = torch.arange(4.0).view(1, 1, 4), [0, 0, 0, 1, 1, 2, 2, 3]
    eager_gives(lambda: scaled(2.2)(x), right)
    eager_gives(lambda: scaled((1, 2.2))(x[:, :, None]), [0, 0, 1, 1, 2, 2, 3, 3])
    eager_gives(lambda: gradient(scaled(2.2), x, list(range(8))), [1, 5, 9, 13])
    ours_gives(right, scaled(2.2), x)
    for image in layouts(x[:, :, None]):
        ours_gives(right, lambda t: scaled((1, 2.2))(t)[0, -1], image)
    our_gradients_are([3, 7, 11, 7], scaled(2.2), x, list(range(8)))
    assert same(reference_of(x, Nearest(8, scale=2.2)), right)


def test_nearest_float64_ratio() -> None:
    x, one = torch.arange(26.0, dtype=torch.float64).view(1, 1, 26), torch.eye(22)[11]
    line, picture = resized(22, "nearest"), resized((1, 22), "nearest")
    eager_gives(lambda: line(x.float())[..., 11], [12])
    eager_gives(lambda: line(x)[..., 11], [13])
    eager_gives(lambda: gradient(line, x, one).argmax(), [12])
    eager_gives(lambda: picture(x[:, :, None])[..., 11], [12])
    ours_gives([13], lambda t: line(t)[..., 11], x)
    ours_gives([13], lambda t: picture(t)[..., 11], x[:, :, None])
    for got in our_gradients(line, x, one):
        assert got.argmax() == 13


def test_nearest_exact_depends_on_the_rank() -> None:
    x, one = torch.arange(2.0), torch.eye(123)[61]
    found = set()
    for rank, eager in ((1, 1), (2, 0), (3, 1)):
        image = x.view(1, 1, *[1] * (rank - 1), 2)
        function = resized((*[1] * (rank - 1), 123), "nearest-exact")
        eager_gives(lambda f=function, t=image: f(t)[..., 61], [eager])  # type: ignore[misc]
        eager_gives(lambda f=function, t=image: gradient(f, t, one).argmax(), [0])  # type: ignore[misc]
        found.add(float(ours(function, image)[..., 61]))
        with OnFunctional():
            found.add(float(function(image)[..., 61]))
        found |= {float(got.argmax()) for got in our_gradients(function, image, one)}
    assert len(found) == 1, "one pixel, whatever the rank, forward and backward"


def test_bicubic_backward_is_not_the_adjoint() -> None:
    function = resized((1, 270), "bicubic")
    forward_in, backward_in = torch.eye(345).view(345, 1, 1, 345), torch.zeros(270, 1, 1, 345)

    def apart(backward: Tensor, forward: Tensor) -> float:
        return float((backward.view(270, 345) - forward.view(345, 270).T).abs().max())

    eager = gradient(function, backward_in, torch.eye(270))
    if AS_ON_THE_PAGE:
        assert apart(eager, function(forward_in)) > 1e-5, "eager was fixed: update docs/where-eager-is-wrong.md"
    by_decompositions, by_functional = our_gradients(function, backward_in, torch.eye(270))
    assert apart(by_decompositions, ours(function, forward_in)) == 0
    if AS_ON_THE_PAGE:
        torch.testing.assert_close(by_functional, eager, rtol=0, atol=1e-6)


def test_gradients_are_contiguous() -> None:
    kinds: list[tuple[Callable[[Tensor], Tensor], int]] = [
        (resized((6, 5), "bicubic"), 2),
        (resized((6, 5), "bicubic", antialias=True), 2),
        (resized((2, 6, 5), "nearest"), 3),
        (resized((2, 6, 5), "nearest-exact"), 3),
    ]
    if hasattr(torch.ops.aten, "_upsample_lanczos2d_aa"):
        kinds.append((resized((6, 5), "lanczos", antialias=True), 2))
    for function, axes in kinds:
        last = {2: torch.channels_last, 3: torch.channels_last_3d}[axes]
        x = torch.rand(2, 3, *[4] * axes).to(memory_format=last)
        weight = torch.rand_like(function(x))
        assert weight.is_contiguous(memory_format=last)
        if AS_ON_THE_PAGE:
            fixed = not gradient(function, x, weight).is_contiguous()
            assert not fixed, "eager was fixed: update docs/where-eager-is-wrong.md"
        by_decompositions, by_functional = our_gradients(function, x, weight)
        assert by_decompositions.is_contiguous(memory_format=last)
        assert by_functional.is_contiguous()


def test_autocast() -> None:
    """Documented only: ours sees the call below autocast, and keeps the dtype it is given."""
    image, grid = torch.ones(1, 1, 2, 2, dtype=torch.bfloat16), torch.zeros(1, 1, 1, 2, dtype=torch.bfloat16)
    theta = torch.eye(2, 3)[None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if AS_ON_THE_PAGE:
            sampled = F.grid_sample(image, grid, align_corners=False).dtype
            made = F.affine_grid(theta, [1, 1, 2, 2], align_corners=False).dtype
            assert (sampled, made) == (torch.float32, torch.bfloat16), "eager was changed: update the page"
        assert ours(F.grid_sample, image, grid, "bilinear", "zeros", False).dtype == torch.float32
        assert ours(F.affine_grid, theta, [1, 1, 2, 2], False).dtype == torch.float32


def test_zero_times_nan() -> None:
    line, x = resized(4, "linear"), torch.tensor([[[0.0, nan]]])
    eager_gives(lambda: line(x), [nan] * 4)
    ours_gives([0, nan, nan, nan], line, x)
    assert same(reference_of(x, Resize(4, "bilinear")), [0, nan, nan, nan])
    same_size, z = resized((1, 2), "bicubic"), torch.tensor([[[[0.0, inf]]]])
    eager_gives(lambda: same_size(z), [nan, nan])
    for image in layouts(z):
        ours_gives([0, inf], lambda t: same_size(t)[0, -1], image)


def test_nan_coordinates() -> None:
    flat, deep = torch.arange(1.0, 5).view(1, 1, 1, 4), torch.arange(1.0, 5).view(1, 1, 1, 1, 4)
    place = torch.tensor([nan, 0.0, 0.0])

    def function(image: Tensor, padding: str) -> Tensor:
        axes = image.dim() - 2
        grid = place[:axes].view(*[1] * (axes + 1), axes)
        return F.grid_sample(image, grid, padding_mode=padding, align_corners=True)

    for padding, in_2d, in_3d in (("zeros", nan, 0), ("border", 1, 4), ("reflection", 1, 4)):
        eager_gives(lambda p=padding: function(flat, p), [in_2d])  # type: ignore[misc]
        eager_gives(lambda p=padding: function(deep, p), [in_3d])  # type: ignore[misc]
        ours_gives([in_2d], function, flat, padding)
        ours_gives([in_2d], function, deep, padding)


def test_half_depends_on_threads_channels_and_layout() -> None:
    x, function = torch.tensor([-1.0, 1.0]).bfloat16().view(1, 1, 1, 2), resized((1, 130), "bilinear")
    for channels, memory, number, eager in (
        (3, torch.contiguous_format, 1, -0.84765625),
        (3, torch.contiguous_format, 2, -0.84375),
        (4, torch.contiguous_format, 1, -0.84375),
        (4, torch.channels_last, 1, -0.84765625),
    ):
        image = x.expand(1, channels, 1, 2).contiguous(memory_format=memory)
        with threads(number):
            eager_gives(lambda t=image: function(t)[0, 0, 0, 37], [eager])  # type: ignore[misc]
    for image in layouts(x):
        ours_gives([-0.84765625], lambda t: function(t)[0, -1, 0, 37], image)


def test_area_sums_one_after_the_other() -> None:
    x = torch.full((1, 1, 2_000_000), 0.1)
    eager_gives(lambda: resized(2, "area")(x), [0.10095834732055664] * 2)
    assert same(reference_of(x, Area(2)), [float(x[0, 0, 0])] * 2, 1e-9)
    error, eagers = ((f(x, 2, mode="area") - 0.1).abs().max() for f in (P.interpolate, F.interpolate))
    assert error <= 1.05 * eagers


def test_gradient_sums_one_after_the_other() -> None:
    x, weight = torch.zeros(1, 1, 1, 1), torch.full((1024, 1024), 0.1)
    function = resized((1024, 1024), "nearest")
    eager_gives(lambda: gradient(function, x, weight), [105891.84375], 1.0)
    by_decompositions, by_functional = our_gradients(function, x, weight)
    assert same(by_decompositions, [104857.6], 0.1)
    assert same(by_functional, [104857.6], 2)


def test_circular_pad_of_more_than_is_left() -> None:
    x, wrong = torch.arange(1.0, 7).view(2, 3), [nan, 1, 1, nan, 4, 4]
    torch.use_deterministic_algorithms(True)  # so that uninitialised memory is NaN
    try:
        eager_gives(lambda: F.pad(x, (2, -2), mode="circular"), wrong)
        assert same(P.pad(x, (2, -2), mode="circular"), [1, 1, 1, 4, 4, 4])
    finally:
        torch.use_deterministic_algorithms(False)


def test_pad_of_an_empty_batch_to_a_negative_size() -> None:
    x = torch.zeros(0, 2, 3, 4)
    if AS_ON_THE_PAGE:
        fixed = F.pad(x, (0, 0, -5, 0), mode="reflect").shape != (0, 2, -2, 4)
        assert not fixed, "eager was fixed: update docs/where-eager-is-wrong.md"
    with pytest.raises(RuntimeError):
        P.pad(x, (0, 0, -5, 0), mode="reflect")


#: The version from which they do, also where another axis has pixels left.
REFUSES_EMPTY_AXES = {"replicate": "2.14", "reflect": "2.15"}


def test_pad_that_crops_to_nothing() -> None:
    line, picture = torch.zeros(1, 1, 3), torch.zeros(1, 1, 3, 4)
    for mode in ("constant", "reflect", "replicate", "circular"):
        if AS_ON_THE_PAGE and mode in ("reflect", "replicate"):
            with pytest.raises(RuntimeError, match="too small"):
                F.pad(line, (-3, 0), mode=mode)
        elif AS_ON_THE_PAGE:
            assert F.pad(line, (-3, 0), mode=mode).shape == (1, 1, 0)
        if torch.__version__ >= REFUSES_EMPTY_AXES.get(mode, "99"):
            with pytest.raises(RuntimeError, match=">= 1 in every dimension"):
                F.pad(picture, (-4, 0, 0, 0), mode=mode)
        else:
            assert F.pad(picture, (-4, 0, 0, 0), mode=mode).shape == (1, 1, 3, 0)
        assert P.pad(line, (-3, 0), mode=mode).shape == (1, 1, 0)
        assert P.pad(picture, (-4, 0, 0, 0), mode=mode).shape == (1, 1, 3, 0)


def test_linear_positions_by_layout() -> None:
    picture = torch.zeros(1, 4, 1, 198)
    picture[..., 64] = 1
    pixels = picture.contiguous(memory_format=torch.channels_last)
    scale = torch.tensor(198 / 134).double()
    right = [float((scale * 43.5 - 0.5).float() - 63)]

    def function(image: Tensor) -> Tensor:
        return F.interpolate(image, (1, 134), mode="bilinear")[:1, :1, :, 43]

    for image in (picture, pixels):
        ours_gives(right, function, image)
    if AVX:
        assert same(function(pixels), right)
        assert same(function(picture), right) == ROUNDS_LINEAR_POSITIONS_ONCE


def test_reflection_of_huge_coordinates() -> None:
    """Ours is eager's here: the coordinate itself has no digits left. The reference is right."""
    x, grid = torch.arange(5.0).view(1, 1, 1, 5), torch.tensor([1e10, 0.0]).view(1, 1, 1, 2)

    def function(image: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(image, grid, padding_mode="reflection", align_corners=True)

    eager_gives(lambda: function(x, grid), [0])
    eager_gives(lambda: function(x.double(), grid.double()), [2])
    ours_gives([0], function, x, grid)
    ours_gives([2], function, x.double(), grid.double())
    warp = Warp("grid", "bilinear", "reflection", align_corners=True)
    assert same(reference.run(Program(torch.float32, warp), x, grid=grid), [2])


def test_half_pixels() -> None:
    """Decompositions are as eager is."""
    x, places = torch.arange(0.0, 250, 50).view(1, 1, 1, 5), torch.tensor([-0.6, -0.2, 0.2, 0.6])
    grid = torch.stack([places, torch.zeros(4)], dim=-1).view(1, 1, 4, 2)
    eager_gives(lambda: F.grid_sample(x, grid, align_corners=False), [24.999996185302734, 75, 125, 175])
    assert same(P.grid_sample(x, grid, align_corners=False), [25, 75, 125, 175])


def test_antialias_with_align_corners() -> None:
    """Ours is eager's, by choice."""
    x, function = torch.arange(3.0).view(1, 1, 1, 3), resized((1, 5), "bilinear", antialias=True, align_corners=True)
    eager_gives(lambda: function(x), [0, 0.25, 0.75, 1.25, 1.75], 1e-6)
    for image in layouts(x):
        ours_gives([0, 0.25, 0.75, 1.25, 1.75], lambda t: function(t)[0, -1], image, atol=1e-6)


def test_left_neighbour_in_float32() -> None:
    """Ours is eager's, by choice. On a ramp the right value is the coordinate itself."""
    x, scale = torch.arange(1468.0, dtype=torch.float64).view(1, 1, 1468), 0.9728902819593748
    right = 1112.5 / scale - 0.5
    assert 1142.9999 < right < 1143

    def run(image: Tensor) -> Tensor:
        return F.interpolate(image, scale_factor=scale, mode="linear")[0, 0, 1112]

    eager_gives(lambda: run(x), [1143])
    ours_gives([1143], run, x)
    assert same(reference_of(x, Resize(1428, "bilinear", scale=scale))[0, 0, 1112], [right], 1e-9)


def test_scales_that_contradict_the_size() -> None:
    """Ours is eager's, by choice."""
    aten, x = torch.ops.aten, torch.ones(1, 1, 1, 5)
    arguments = ([1, 9], False, 1.0, 1.2)
    eager_gives(lambda: aten._upsample_bilinear2d_aa(x, *arguments), [1] * 7 + [0] * 2, 1e-6)
    eager_gives(lambda: aten.upsample_bilinear2d(x, *arguments), [1] * 9, 1e-6)
    ours_gives([1] * 7 + [0] * 2, aten._upsample_bilinear2d_aa, x, *arguments, atol=1e-6)
    ours_gives([1] * 9, aten.upsample_bilinear2d, x, *arguments, atol=1e-6)


def test_the_page_has_a_line_for_each_test() -> None:
    named = re.findall(r"`(test_\w+)` \|$", PAGE.read_text(), re.MULTILINE)
    about = {name for name in globals() if name.startswith("test_") and not name.startswith("test_the_page")}
    assert len(named) == len(set(named))
    assert set(named) == about
