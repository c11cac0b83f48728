"""`interpolate` of a part of an image: against Pillow, ONNX's definition, the reference, and the whole image."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy
import PIL.Image
import pytest
import torch
from torch import Tensor

import polyphase.functional as P
from polyphase import arguments
from polyphase.errors import (
    NotSupportedError,
    WrongArgumentError,
    WrongArgumentTypeError,
    WrongImageError,
    WrongSizeError,
)
from polyphase.sampling import reference
from polyphase.sampling.programs import maps_program
from tests.support.samples import image
from tests.support.threads import threads as torch_threads
from tests.test_functional_modes import PILLOW

Box: TypeAlias = tuple[float, float, float, float]

#: An image's height and width, the box as parts of them, and the size it becomes.
PARTS = [
    ((345, 456), (0.113, 0.0721, 0.8817, 0.93), (60, 50)),
    ((64, 48), (0.0, 0.3, 0.51, 1.0), (33, 100)),
    ((40, 33), (0.31, 0.22, 0.76, 0.85), (20, 30)),
    ((60, 80), (0.25, 0.5, 0.75, 1.0), (15, 10)),
    ((50, 1), (0.25, 0.1, 1.0, 0.77), (20, 1)),
]
MODES: list[dict[str, Any]] = [
    *({"mode": mode, "antialias": True} for mode in PILLOW),
    *({"mode": mode, "align_corners": aligned} for mode in ("bilinear", "bicubic") for aligned in (False, True)),
    *({"mode": mode} for mode in ("nearest", "nearest-exact")),
]


def box_of(size: tuple[int, int], part: Box) -> Box:
    height, width = size
    return part[0] * width, part[1] * height, part[2] * width, part[3] * height


def by_pillow(pixels: Tensor, size: tuple[int, int], mode: str, box: Box) -> Tensor:
    """Of (height, width) or (height, width, 3) bytes. One axis after the other, x first: from version 13 on, Pillow may
    choose y."""
    left, top, right, bottom = box
    picture = PIL.Image.fromarray(pixels.numpy())
    narrow = picture.resize((size[1], picture.height), PILLOW[mode], (left, 0, right, picture.height))
    return torch.from_numpy(numpy.array(narrow.resize(size[::-1], PILLOW[mode], (0, top, size[1], bottom))))


@pytest.mark.parametrize("channels", [1, 3], ids=["L", "RGB"])
@pytest.mark.parametrize("mode", PILLOW)
def test_pillow(mode: str, channels: int) -> None:
    for before, part, after in PARTS:
        pixels, box = image((1, channels, *before), torch.uint8, "CL"), box_of(before, part)
        theirs = by_pillow(pixels[0].permute(1, 2, 0).squeeze(-1), after, mode, box)
        for layout in (torch.channels_last, torch.contiguous_format):
            given = pixels.contiguous(memory_format=layout)
            ours = P.interpolate(given, after, mode=mode, antialias=True, box=box)[0].permute(1, 2, 0)
            apart = (ours.int().reshape(theirs.shape) - theirs.int()).abs()
            assert apart.max() <= (2 if mode in ("bicubic", "lanczos") else 1), (before, part)
            assert (apart == 0).double().mean() >= 0.985, (before, part)


def test_nearest_exact_is_pillows() -> None:
    for before, part, after in PARTS:
        pixels, box = image((1, 3, *before), torch.uint8, "CL"), box_of(before, part)
        picture = PIL.Image.fromarray(pixels[0].permute(1, 2, 0).numpy())
        theirs = torch.from_numpy(numpy.array(picture.resize(after[::-1], PIL.Image.Resampling.NEAREST, box)))
        assert torch.equal(P.interpolate(pixels, after, mode="nearest-exact", box=box)[0].permute(1, 2, 0), theirs)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_reference(mode: dict[str, Any], dtype: torch.dtype) -> None:
    given = {"align_corners": None, "antialias": False, **mode}
    for before, part, after in PARTS[:2]:
        for layout in ("CF", "CL"):
            pixels, box = image((2, 3, *before), dtype, layout), box_of(before, part)
            maps = arguments.resize_maps(
                pixels.shape, dtype, after, None, given["mode"], given["align_corners"], None, given["antialias"], box
            )
            exact = reference.run(maps_program(dtype, maps), pixels)
            found = P.interpolate(pixels, after, **mode, box=box)
            tolerance = {torch.float16: 1e-3, torch.float32: 1e-4, torch.float64: 1e-12}.get(dtype, 0)
            torch.testing.assert_close(found.to(exact.dtype), exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_box_that_is_the_whole_image(mode: dict[str, Any], dtype: torch.dtype) -> None:
    x = image((1, 3, 37, 53), dtype)
    for size in ((20, 30), (37, 53), (64, 11)):
        assert torch.equal(P.interpolate(x, size, **mode, box=(0, 0, 53, 37)), P.interpolate(x, size, **mode))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("mode", [one for one in MODES if not one.get("align_corners")], ids=str)
def test_tiles_join_without_seams(mode: dict[str, Any], dtype: torch.dtype) -> None:
    """Apart by roundings alone: of positions, of sums in another order, and of bytes' weights, which are as precise as
    the largest of an axis allows."""
    for before, after in (((48, 96), (30, 60)), ((50, 98), (12, 24)), ((48, 98), (96, 192))):
        x = image((1, 3, *before), dtype)
        whole, (height, width) = P.interpolate(x, after, **mode), (before[0] / 3, before[1] / 3)
        rows = []
        for top in range(3):
            boxes = [(left * width, top * height, (left + 1) * width, (top + 1) * height) for left in range(3)]
            size = (after[0] // 3, after[1] // 3)
            rows.append(torch.cat([P.interpolate(x, size, **mode, box=box) for box in boxes], -1))
        tiles = torch.cat(rows, -2)
        if mode["mode"].startswith("nearest"):
            assert torch.equal(tiles, whole)
        elif dtype.is_floating_point:
            torch.testing.assert_close(tiles, whole, rtol=0, atol=3e-5 if dtype == torch.float32 else 1e-13)
        else:
            assert (tiles.int() - whole.int()).abs().max() <= (2 if mode["mode"] in ("bicubic", "lanczos") else 1)
            assert (tiles == whole).double().mean() >= 0.99


def crop_and_resize(x: Tensor, region: tuple[float, ...], size: tuple[int, int]) -> Tensor:
    """ONNX's `Resize` with `tf_crop_and_resize`, linear, by its definition; region: (x0, y0, x1, y1)."""
    for axis, (first, last), n in ((3, region[::2], size[1]), (2, region[1::2], size[0])):
        most = x.shape[axis] - 1
        step = (last - first) * most / (n - 1) if n > 1 else 0.0
        begin = first * most if n > 1 else 0.5 * (first + last) * most
        place = begin + step * torch.arange(n, dtype=x.dtype)
        left = place.floor().long().clamp(max=most - 1)
        share = (place - left).view([-1] + [1] * (3 - axis))
        x = x.index_select(axis, left) * (1 - share) + x.index_select(axis, left + 1) * share
    return x


def test_crop_and_resize_of_onnx() -> None:
    x = image((2, 3, 20, 31), torch.float64)
    for region in ((0.1, 0.2, 0.7, 0.95), (0.0, 0.0, 1.0, 1.0), (0.25, 0.5, 0.3, 1.0)):
        box = (region[0] * 30, region[1] * 19, region[2] * 30 + 1, region[3] * 19 + 1)
        found = P.interpolate(x, (9, 40), mode="bilinear", align_corners=True, box=box)
        torch.testing.assert_close(found, crop_and_resize(x, region, (9, 40)))
        single = P.interpolate(x, 1, mode="bilinear", box=box)
        torch.testing.assert_close(single, crop_and_resize(x, region, (1, 1)))


def test_lines_and_volumes() -> None:
    """Every axis has its own sides: near ones first, the last axis first."""
    volume = image((1, 2, 9, 14, 20), torch.float64)
    found = P.interpolate(volume, (4, 5, 6), mode="trilinear", antialias=True, box=(2, 1.5, 0.25, 19, 13, 8))
    deep = volume.permute(0, 3, 4, 1, 2).flatten(1, 3)  # (1, rest, depth)
    lines = P.interpolate(deep, 4, mode="linear", antialias=True, box=(0.25, 8))
    slices = lines.unflatten(1, (14, 20, 2)).permute(0, 4, 3, 1, 2)[0]  # (depth, channels, height, width)
    expected = P.interpolate(slices, (5, 6), mode="bilinear", antialias=True, box=(2, 1.5, 19, 13))
    torch.testing.assert_close(found[0], expected.transpose(0, 1))


def test_a_box_after_a_crop_is_counted_from_it() -> None:
    x = image((1, 3, 30, 40), torch.float32)
    found = P.interpolate(x[..., 5:25, 10:30], 8, mode="bilinear", box=(2.5, 1, 18, 20))
    assert torch.equal(found, P.interpolate(x[..., 5:25, 10:30].clone(), 8, mode="bilinear", box=(2.5, 1, 18, 20)))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_by_our_backend(dynamic: bool) -> None:
    def function(x: Tensor, left: float) -> Tensor:
        return P.interpolate(x * 2, (6, 5), mode="bicubic", box=(left, 1, x.shape[3] - 0.5, 7)).flip(-1) + 1

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="polyphase", dynamic=dynamic, fullgraph=True)
    for shape, left in (((2, 3, 8, 9), 0.5), ((2, 3, 11, 7), 0.5), ((2, 3, 8, 9), 1.25)):
        x = image(shape, torch.float32)
        torch.testing.assert_close(compiled(x, left), function(x, left))
    with pytest.raises(Exception, match=r"leaves an image|beyond the axis"):
        compiled(image((2, 3, 6, 9), torch.float32), 0.5)


def test_images_of_other_sizes() -> None:
    """One call for any size still asks whether the box is inside."""
    for shape in ((1, 3, 30, 40), (1, 3, 25, 31), (1, 3, 60, 30), (1, 3, 30, 40)):
        x = image(shape, torch.uint8)
        found = P.interpolate(x, (7, 8), mode="bilinear", antialias=True, box=(1.5, 2, 29.5, 24))
        assert torch.equal(
            found, P.interpolate(x.clone(), (7, 8), mode="bilinear", antialias=True, box=[1.5, 2, 29.5, 24])
        )
    for _ in range(3):
        with pytest.raises(WrongSizeError, match="leaves an image of shape"):
            P.interpolate(image((1, 3, 30, 29), torch.uint8), (7, 8), mode="bilinear", box=(1.5, 2, 29.5, 24))


@pytest.mark.parametrize("threads", [1, 2])
def test_lists_of_images(threads: int) -> None:
    with torch_threads(threads):
        images = [image((1, 3, n, n + 5), torch.uint8) for n in (20, 31, 45)]
        boxes = [(1, 2, 20.5, 19.25), (0, 0, 30, 31), None]
        for box in (boxes, boxes[0], list(boxes[0] or ())):
            for number, found in enumerate(P.interpolate(images, 9, mode="bilinear", box=box)):
                own = boxes[number] if box is boxes else boxes[0]
                assert torch.equal(found, P.interpolate(images[number], 9, mode="bilinear", box=own))
        with pytest.raises(WrongArgumentError, match="box is a list of 2, for 3 images"):
            P.interpolate(images, 9, mode="bilinear", box=boxes[:2])
        with pytest.raises(WrongImageError, match="image 0 of 3: box="):
            P.interpolate(images, 9, mode="bilinear", box=[(0, 0, 99, 9), None, None])


WRONG: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    ((0, 0, 9, 6.5), {}, WrongSizeError, r"box=\(0, 0, 9, 6.5\) leaves an image of shape \(1, 3, 6, 9\).*size at most"),
    ((-0.5, 0, 9, 6), {}, WrongSizeError, "leaves an image"),
    ((0, 0, float("inf"), 6), {}, WrongSizeError, "leaves an image"),
    ((4, 0, 4, 6), {}, WrongSizeError, "has nothing in it; its far sides must lie beyond its near ones"),
    ((5, 0, 4, 6), {}, WrongSizeError, "has nothing in it"),
    ((0, 0, float("nan"), 6), {}, WrongSizeError, "nan, 6.*has nothing in it"),
    ((0, 9), {}, WrongArgumentError, r"2 numbers; of such an image it has 4 numbers, \(left, top, right, bottom\)"),
    (7, {}, WrongArgumentTypeError, "box=7 of type int; it must be a tuple of 4 numbers"),
    (("0", 0, 9, 6), {}, WrongArgumentTypeError, "box has '0' of type str; give 4 numbers"),
    ((0, 0, 10**400, 6), {}, WrongArgumentTypeError, "box has a number beyond the greatest float"),
    ((0, 0, 9, 6), {"mode": "area"}, WrongArgumentError, "mode 'area'.*use mode 'box' with antialias=True"),
    ((0, 0, 9, 0.5), {"align_corners": True}, WrongSizeError, "align_corners=True.*one pixel along every axis"),
    ((0, 0, 9, 6), {"size": None, "scale_factor": 2.0}, WrongArgumentError, "box=.* and a scale_factor; give the size"),
]


@pytest.mark.parametrize(("box", "given", "error", "message"), WRONG)
def test_mistakes(box: Any, given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        P.interpolate(image((1, 3, 6, 9), torch.float32), **{"size": 3, "mode": "bilinear", **given}, box=box)


def test_what_has_no_kernel_has_no_box() -> None:
    with pytest.raises(NotSupportedError, match=r"box=\(0, 0, 3, 3\) of a 4-dimensional torch.sparse_coo image"):
        P.interpolate(torch.rand(1, 3, 4, 5).to_sparse(), 3, box=(0, 0, 3, 3))
