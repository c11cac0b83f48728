"""Twenty optimiser steps compiled by the backend: eager's losses, and eager's weights at the end."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.compile.running import compiled, launches

pytestmark = pytest.mark.inductor

STEPS = 20


class Decoder(nn.Module):
    """Two steps up a U-Net: resize, join with the skip, convolve."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(12, 6, 3, padding=1), nn.Conv2d(9, 4, 3, padding=1)
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, low: Tensor, middle: Tensor, high: Tensor) -> Tensor:
        y = F.interpolate(low, scale_factor=2.0, mode="bilinear", align_corners=False)
        y = F.relu(self.first(torch.cat([middle, y], 1)))
        y = F.interpolate(y, size=high.shape[-2:], mode="bicubic", align_corners=True)
        y = F.silu(self.second(F.pad(torch.cat([high, y], 1), (1, 1, 1, 1), mode="reflect"))[..., 1:-1, 1:-1])
        return F.interpolate(self.head(y), scale_factor=0.5, mode="bilinear", antialias=True)


class Transformer(nn.Module):
    """Finds a matrix, warps by it, and looks at what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.localise = nn.Sequential(nn.Conv2d(3, 4, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten())
        self.matrix = nn.Linear(36, 6)
        nn.init.normal_(self.matrix.weight, std=0.01)
        self.matrix.bias.data.copy_(torch.tensor([0.9137, 0.0513, 0.0271, -0.0417, 0.8713, -0.0311]))
        self.head = nn.Conv2d(3, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        theta = self.matrix(self.localise(x)).view(-1, 2, 3)
        x = F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)  # type: ignore[arg-type]
        result: Tensor = self.head(x).mean((2, 3))
        return result


def train(model: nn.Module, inputs: list[tuple[Tensor, ...]], run: nn.Module) -> list[float]:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(STEPS):
        optimiser.zero_grad()
        output = run(*inputs[step % len(inputs)])
        loss = F.mse_loss(output, torch.linspace(-1, 1, output.numel()).view(output.shape))
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


CASES: dict[str, tuple[type[nn.Module], list[tuple[int, ...]]]] = {
    "decoder": (Decoder, [(2, 6, 6, 7), (2, 6, 12, 14), (2, 3, 23, 29)]),
    "spatial transformer": (Transformer, [(3, 3, 21, 26)]),
}


def smooth(shape: tuple[int, ...]) -> Tensor:
    """Noise without sharp edges. The gradient of a matrix jumps where a sample crosses an edge: the last bit of a step
    decides on which side it lies, and trainings part."""
    return F.interpolate(torch.randn(*shape[:2], 4, 4), size=shape[2:], mode="bicubic")


@pytest.mark.parametrize("name", ["decoder", pytest.param("spatial transformer", marks=pytest.mark.full)])
def test_losses_and_weights(name: str) -> None:
    kind, shapes = CASES[name]
    eager = kind()
    ours = copy.deepcopy(eager)
    inputs = [tuple(smooth(shape) for shape in shapes) for _ in range(3)]
    run = compiled(ours)
    wanted = train(eager, inputs, eager)
    losses, launched = launches(train, ours, inputs, run)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-4, atol=1e-5)
    assert losses[-1] < losses[0]
    for got, want in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-4)
    assert launched >= 2 * STEPS  # forward and backward


@pytest.mark.full
def test_gradients_of_one_step() -> None:
    for kind, shapes in CASES.values():
        eager = kind()
        ours = copy.deepcopy(eager)
        inputs = [torch.randn(shape) for shape in shapes]
        eager(*inputs).square().sum().backward()
        compiled(ours)(*inputs).square().sum().backward()
        for got, want in zip(ours.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(got.grad, want.grad, rtol=1e-3, atol=1e-3)


class Wide(nn.Module):
    """Of weights enough for several of the buckets in which gradients are sent: a graph for each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 40, 3, padding=1), nn.Conv2d(40, 800, 3, padding=1)
        self.head = nn.Conv2d(800, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.second(F.interpolate(self.first(x), size=(5, 6), mode="bilinear")))
        result: Tensor = self.head(F.interpolate(y, scale_factor=2, mode="bilinear", antialias=True))
        return result


@pytest.mark.full
@pytest.mark.cpu
def test_data_parallel(tmp_path: Path) -> None:
    """One process stands for many: graphs are split in the same way."""
    eager, x = Wide(), torch.rand(2, 3, 9, 11)
    ours = copy.deepcopy(eager)
    eager(x).square().sum().backward()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        parallel = nn.parallel.DistributedDataParallel(ours, bucket_cap_mb=1)
        output, launched = launches(compiled(parallel), x)
        output.square().sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    assert launched == 2
    for got, want in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-3, atol=1e-3)
