"""Fragments as libraries' documentation has them, written anew: eager's output, and no graph that Inductor has not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.utils import counters

from tests.compile.running import compiled, launches
from tests.support.samples import image
from tests.support.vision import torchvision

pytestmark = pytest.mark.inductor

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def preprocess(x: Tensor) -> Tensor:
    """As torchvision's v2 transforms: Resize, CenterCrop, a flip, ToDtype, Normalize."""
    height, width = x.shape[-2:]
    size = (32, int(32 * width / height)) if height < width else (int(32 * height / width), 32)
    y = F.interpolate(x.reshape(-1, *x.shape[-3:]), size=size, mode="bilinear", align_corners=False, antialias=True)
    y = y.reshape(x.shape[:-2] + y.shape[-2:])
    top, left = int(round((y.shape[-2] - 24) / 2.0)), int(round((y.shape[-1] - 24) / 2.0))
    y = y[..., top : top + 24, left : left + 24].flip(-1)
    y = y.to(torch.float32).mul_(1.0 / 255)
    mean = torch.as_tensor(MEAN, dtype=y.dtype, device=y.device).view(-1, 1, 1)
    std = torch.as_tensor(STD, dtype=y.dtype, device=y.device).view(-1, 1, 1)
    return y.sub(mean).div_(std)


def warp_affine(x: Tensor, matrix: Tensor) -> Tensor:
    """As kornia: a matrix of pixels becomes one of coordinates from -1 to 1, is inverted, and samples."""
    height, width = x.shape[-2:]
    rows = torch.cat([matrix, torch.tensor([[[0.0, 0.0, 1.0]]], device=x.device).expand(x.shape[0], 1, 3)], 1)
    pixels = torch.tensor([[2 / (width - 1), 0, -1], [0, 2 / (height - 1), -1], [0, 0, 1]], device=x.device)
    normal = pixels @ rows @ torch.linalg.inv(pixels)
    theta = torch.linalg.inv(normal)[:, :2]
    grid = F.affine_grid(theta, [x.shape[0], x.shape[1], height, width], align_corners=True)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


def resample_embedding(embedding: Tensor) -> Tensor:
    """As timm: position embeddings of a grid of patches for another grid, the class token apart."""
    prefix, grid = embedding[:, :1], embedding[:, 1:]
    side = int(math.sqrt(grid.shape[1]))
    dtype = grid.dtype
    grid = grid.float().reshape(1, side, side, -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(9, 11), mode="bicubic", antialias=True)
    grid = grid.permute(0, 2, 3, 1).reshape(1, -1, embedding.shape[-1]).to(dtype)
    return torch.cat([prefix, grid], 1)


def upsample_block(x: Tensor, weight: Tensor) -> Tensor:
    """As diffusers' Upsample2D: nearest in float32, then a convolution."""
    y = F.interpolate(x.to(torch.float32), scale_factor=2.0, mode="nearest").to(x.dtype)
    return F.conv2d(y, weight, padding=1)


def fir_upsample(x: Tensor) -> Tensor:
    """As diffusers' FIR blocks: zeros between pixels, pad, filter, crop."""
    batch, channels, height, width = x.shape
    taps = torch.tensor([1.0, 3.0, 3.0, 1.0], device=x.device)
    kernel = torch.outer(taps, taps) / 16
    y = x.reshape(-1, height, 1, width, 1)
    y = F.pad(y, [0, 1, 0, 0, 0, 1]).view(-1, 1, height * 2, width * 2)
    y = F.pad(y, [2, 1, 2, 1])
    y = F.conv2d(y, torch.flip(kernel, [0, 1]).view(1, 1, 4, 4))
    return y.view(batch, channels, height * 2, width * 2)


def segmentation_head(x: Tensor, features: Tensor, weight: Tensor) -> Tensor:
    """Logits at an eighth, resized to the picture; a global branch resized from one pixel."""
    pooled = F.interpolate(F.adaptive_avg_pool2d(features, 1), size=features.shape[-2:], mode="bilinear")
    logits = F.conv2d(torch.cat([features, pooled], 1), weight)
    return F.interpolate(logits, size=x.shape[-2:], mode="bilinear", align_corners=False).softmax(1)


def feature_pyramid(c3: Tensor, c4: Tensor, c5: Tensor) -> list[Tensor]:
    p5 = c5 * 0.5
    p4 = c4 + F.interpolate(p5, size=c4.shape[-2:], mode="nearest")
    p3 = c3 + F.interpolate(p4, size=c3.shape[-2:], mode="nearest")
    return [p3, p4, p5, F.max_pool2d(p5, 1, 2)]


def mixup(x: Tensor) -> Tensor:
    """As timm: a batch with itself in the other order."""
    flipped = x.flip(0).mul_(1.0 - 0.3)
    return x.mul(0.3).add_(flipped)


def augmented_prediction(x: Tensor, weight: Tensor) -> Tensor:
    """Predictions of the flipped picture, flipped back, and of another scale, resized back; averaged."""

    def predict(x: Tensor) -> Tensor:
        return F.conv2d(x, weight, padding=1).sigmoid()

    plain = predict(x)
    mirrored = predict(torch.flip(x, dims=[3])).flip(3)
    larger = predict(F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=False))
    larger = F.interpolate(larger, size=x.shape[-2:], mode="bilinear", align_corners=False)
    return torch.stack([plain, mirrored, larger]).mean(0)


def spatial_transformer(x: Tensor, weight: Tensor) -> Tensor:
    """As PyTorch's tutorial: localisation by pooling, a matrix by a linear layer."""
    y = F.relu(F.max_pool2d(x, 2)).flatten(1)
    theta = (y[:, :30] @ weight).view(-1, 2, 3) * 0.01 + torch.tensor(
        [[0.9137, 0.05, 0.02], [-0.04, 0.8713, -0.03]], device=y.device
    )
    grid = F.affine_grid(theta, list(x.size()), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def super_resolution(x: Tensor, weight: Tensor) -> Tensor:
    """A residual on top of a bicubic upsampling."""
    residual = F.pixel_shuffle(F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), weight), 2)
    return (F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False) + residual).clamp(0, 1)


def floats(*shape: int) -> Tensor:
    return image((shape[0], shape[1], *shape[2:]), seed=sum(shape)) - 0.5


FRAGMENTS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "torchvision: preprocess": (preprocess, (image((1, 3, 45, 56), torch.uint8)[0],)),
    "kornia: warp_affine": (
        warp_affine,
        (floats(2, 3, 20, 31), torch.tensor([[[0.9137, -0.21, 3.1], [0.17, 1.083, -2.3]]]).repeat(2, 1, 1)),
    ),
    "timm: position embedding": (resample_embedding, (floats(1, 1, 50, 24)[0],)),
    "diffusers: Upsample2D": (upsample_block, (floats(2, 4, 9, 8), floats(3, 4, 3, 3))),
    "diffusers: FIR": (fir_upsample, (floats(2, 3, 7, 9),)),
    "segmentation head": (segmentation_head, (floats(2, 3, 33, 41), floats(2, 6, 5, 6), floats(4, 12, 1, 1))),
    "feature pyramid": (feature_pyramid, (floats(2, 4, 20, 24), floats(2, 4, 10, 12), floats(2, 4, 5, 6))),
    "timm: mixup": (mixup, (floats(4, 3, 12, 13),)),
    "test-time augmentation": (augmented_prediction, (floats(2, 3, 14, 18), floats(2, 3, 3, 3))),
    "spatial transformer": (spatial_transformer, (floats(2, 3, 16, 17), floats(1, 1, 30, 6)[0, 0])),
    "super-resolution": (super_resolution, (floats(2, 3, 11, 12), floats(12, 3, 3, 3))),
}


def graphs_and_breaks() -> tuple[int, int]:
    return int(counters["stats"]["unique_graphs"]), sum(counters["graph_break"].values())


def dynamos_graphs(function: Callable[..., Any], *tensors: Tensor) -> tuple[int, int]:
    """Of a backend that changes nothing: Dynamo traces for it what it traces for Inductor."""
    torch.compile(function, backend="eager")(*tensors)
    found = graphs_and_breaks()
    torch._dynamo.reset()
    counters.clear()
    return found


#: A chain of ours, a warp by a matrix, and flips and resizes among convolutions.
QUICK = ("torchvision: preprocess", "kornia: warp_affine")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in FRAGMENTS]
)
def test_fragment(name: str) -> None:
    function, tensors = FRAGMENTS[name]
    allowed = dynamos_graphs(function, *tensors)
    want, got = function(*tensors), compiled(function)(*tensors)
    torch.testing.assert_close(got, want)
    assert graphs_and_breaks() == allowed


GRADIENTS = ["kornia: warp_affine", "segmentation head", "super-resolution"]


@pytest.mark.full
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_fragment(name: str) -> None:
    function, tensors = FRAGMENTS[name]
    given = [[one.clone().requires_grad_() for one in tensors] for _ in range(2)]
    want, got = function(*given[0]), compiled(function)(*given[1])
    incoming = torch.cos(torch.arange(want.numel(), dtype=want.dtype)).view(want.shape)
    wanted, found = (
        torch.autograd.grad(output, inputs, incoming, allow_unused=True)
        for output, inputs in zip((want, got), given, strict=True)
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_preprocessing_is_one_kernel() -> None:
    run, x = compiled(preprocess), image((1, 3, 45, 56), torch.uint8)[0]
    run(x)
    assert launches(run, x)[1] == 1


# ---- torchvision itself


@pytest.fixture(scope="module")
def v2() -> Any:
    return torchvision()


@pytest.mark.cpu  # torchvision resizes bytes in floats on a GPU
def test_torchvision_compose_is_one_kernel(v2: Any) -> None:
    compose = v2.Compose(
        [
            v2.Resize(256, antialias=True),
            v2.CenterCrop(224),
            v2.Lambda(v2.functional.horizontal_flip),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    x = image((1, 3, 345, 456), torch.uint8)[0]
    run = compiled(compose, fullgraph=True)
    torch.testing.assert_close(run(x), compose(x))
    assert launches(run, x)[1] == 1


def test_torchvision_random_flip(v2: Any) -> None:
    """Whether to flip is decided by a tensor, where Dynamo ends a graph, for every backend."""
    compose = v2.Compose(
        [v2.Resize(32, antialias=True), v2.CenterCrop(24), v2.RandomHorizontalFlip(1.0), v2.Normalize(MEAN, STD)]
    )
    x = image((1, 3, 45, 56))[0]
    allowed = dynamos_graphs(compose, x)
    torch.testing.assert_close(compiled(compose)(x), compose(x))
    assert graphs_and_breaks() == allowed
