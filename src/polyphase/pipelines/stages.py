"""One launch of a pipeline: a program, what it reads besides its image, and where its result lies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from polyphase.calls import plain_torch
from polyphase.calls.binding import bound
from polyphase.calls.bound import BoundCall
from polyphase.pipelines.grids import AffineGrid, PerspectiveGrid
from polyphase.pipelines.patched import Patched
from polyphase.pipelines.sources import Addressed, Source, of_tensor
from polyphase.records.facts import Facts, facts
from polyphase.sampling.programs import Program

CROP, FLIP = "crop", "flip"


@dataclass(frozen=True)
class Positions:
    """Where a warp reads: a grid, and what is done to the warped image afterwards, which is done to the grid instead.

    edits: (CROP, top, left, height, width) or (FLIP, dimension).
    """

    grid: AffineGrid | PerspectiveGrid
    edits: tuple[tuple[Any, ...], ...] = ()

    def then(self, *edit: Any) -> Positions:
        return replace(self, edits=(*self.edits, edit))

    def made(self, dtype: torch.dtype, device: torch.device, batch: int) -> Tensor:
        grid = self.grid.made(dtype, device)
        for name, *numbers in self.edits:
            if name == CROP:
                top, left, height, width = numbers
                grid = grid[:, top : top + height, left : left + width]
            else:
                grid = grid.flip(
                    numbers[0] - 1
                )  # of (batch, height, width, 2): the image's last two are before the end
        return grid.expand(batch, *grid.shape[1:])


@dataclass(frozen=True)
class Stage:
    """`out`: facts of an image (..., channels, height, width), or of its patches. A warp is of (batch, channels,
    height, width)."""

    program: Program
    out: Facts
    vectors: tuple[Tensor, ...] = ()
    positions: Positions | None = None
    patches: Patched | None = None

    def run(self, source: Source, out: Tensor | None = None, *, plain: bool = False) -> Tensor:
        """The result, in `out` if given. `plain`: by torch operations that can be recorded."""
        if plain:
            return self._by_torch(source.tensor(), out)
        call, memory, inputs = self.bound(source, None if out is None else facts(out))
        if out is None:
            out = torch.empty_strided(self.out.shape, self.out.strides, dtype=self.out.dtype, device=self.out.device)
        call.into(out, memory, *inputs)
        return out

    def bound(
        self, source: Source, out: Facts | None = None, *, batched: bool = False
    ) -> tuple[BoundCall, Any, tuple[Tensor, ...]]:
        """What to call with an output, the memory of the image, and the other inputs."""
        image, target = source.facts, out or self.out
        inputs = self.vectors
        if self.patches is not None:
            target, patchwork = self.patches.lie(target)
            return bound(self.program, (image, *map(facts, inputs)), target, patchwork), source.memory, inputs
        if self.positions is not None:
            image, target = _as_batch(image), _as_batch(target)
            inputs = self._warp_inputs(image)
        return bound(self.program, (image, *map(facts, inputs)), target, batched=batched), source.memory, inputs

    def _warp_inputs(self, image: Facts) -> tuple[Tensor, ...]:
        assert self.positions is not None, "maps read no grid"
        dtype = torch.float64 if self.program.sampled == torch.float64 else torch.float32
        return (self.positions.made(dtype, image.device, image.shape[0]), *self.vectors)

    def _by_torch(self, image: Tensor, out: Tensor | None) -> Tensor:
        if self.positions is None:
            result = plain_torch.run(self.program, image, *self.vectors)
        else:
            batch = image.reshape(-1, *image.shape[-3:])
            result = plain_torch.run(self.program, batch, *self._warp_inputs(facts(batch))).reshape(self.out.shape)
        if out is not None:
            return out.copy_(result)
        return result.clone() if result.data_ptr() == image.data_ptr() else result


@dataclass(frozen=True)
class Ready:
    """Stages without warps, bound to images of one kind, for the next of that kind."""

    calls: tuple[tuple[BoundCall, tuple[Tensor, ...]], ...]

    @staticmethod
    def made(stages: list[Stage], source: Source) -> Ready:
        found = []
        for stage in stages:
            call, _, inputs = stage.bound(source)
            found.append((call, inputs))
            source = replace(source, facts=stage.out)
        return Ready(tuple(found))

    def run(self, memory: Tensor | Addressed) -> Tensor:
        for call, inputs in self.calls:
            memory = call.fresh(memory, *inputs)
        assert isinstance(memory, Tensor), "there is a stage"
        return memory


def _as_batch(image: Facts) -> Facts:
    if len(image.shape) == 4:
        return image
    step = max(n * stride for n, stride in zip(image.shape, image.strides, strict=True))
    return image._replace(shape=(1, *image.shape), strides=(step, *image.strides))


def run_into(stages: list[Stage], source: Source, out: Addressed, lies: Facts) -> None:
    """Runs stages, the last into memory that is no tensor's."""
    *before, last = stages
    for stage in before:
        source = of_tensor(stage.run(source))
    call, memory, inputs = last.bound(source, lies)
    call.into(out, memory, *inputs)


def run(stages: list[Stage], source: Source, out: Tensor | None = None, *, plain: bool = False) -> Tensor:
    """One after the other, the last into `out`."""
    *before, last = stages
    for stage in before:
        source = of_tensor(stage.run(source, plain=plain))
    return last.run(source, out, plain=plain)
