"""An image on its way through a chain of transforms: what it will look like, and the programs that make it so.

Nothing is computed before the picture is asked for. What follows grows the last program while that is one launch:
maps compose, arithmetic goes around them, crops and flips after a warp are of its grid. What does not fit begins
another program, with the image stored between, as torchvision has it.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase import arguments
from polyphase.calls import devices
from polyphase.errors import InvalidStepError
from polyphase.pipelines import strides
from polyphase.pipelines.grids import AffineGrid, PerspectiveGrid
from polyphase.pipelines.patched import Patched
from polyphase.pipelines.pillow import Edits, NewPicture, in_one_block, lies_as, of_pil
from polyphase.pipelines.sources import Source, in_order, of_tensor
from polyphase.pipelines.stages import CROP, FLIP, Positions, Ready, Stage, run, run_into
from polyphase.records.facts import Facts, Sizes
from polyphase.records.layout import BY_ROWS, dense_strides
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import (
    MOST_OPERATIONS_PER_TAP,
    VALUE,
    Binary,
    Cast,
    Channel,
    Expression,
    Unary,
    chain,
    clamp,
    length_of,
)
from polyphase.sampling.programs import Axes, Border, Program, Sampler
from polyphase.sampling.steps import Flip, Nearest, Pad, Resize, Slice, Step
from polyphase.sampling.warps import Warp

#: What a picture is: a tensor, one of torchvision's images, a Pillow image, an array (height, width, channels).
TENSOR, IMAGE, PIL, ARRAY = "tensor", "image", "Pillow image", "array"

Steps: TypeAlias = tuple[Step, ...]
#: What `Resize` of Pillow's images, and of tensors, is done by.
FILTERS = ("bilinear", "bicubic", "lanczos", "hamming", "box")
NEAREST = ("nearest", "nearest-exact")


class Picture:
    """kind: what it is by now. dtype, shape and strides: those of torchvision's tensor at this place of the chain.
    plain: its programs run by torch operations, which can be recorded. has_run: some of them have. only_shown: the
    image that was given is not to be changed, whatever the transforms say."""

    _steps: tuple[Steps, Steps]  # of rows, and of columns
    dtype: torch.dtype
    shape: Sizes
    strides: Sizes
    _original: object
    _edits: Edits | None  # of a Pillow image, as long as they are all that is done to it

    def __init__(self, kind: str, source: Source, original: object, *, plain: bool = False) -> None:
        """`original`: what it was read from."""
        self.kind, self.plain, self.has_run, self.only_shown = kind, plain, False, False
        self._begin_with(source, original)
        if source.flipped != (False, False):
            y, x = ((Flip(),) if one else () for one in source.flipped)
            self._steps = y, x

    def _begin(self) -> None:
        self._steps = ((), ())
        self._sums = False
        self._warp: Warp | None = None
        self._positions: Positions | None = None
        self._prologue: Expression = VALUE
        self._epilogue: Expression = VALUE
        self._borders: tuple[Border, ...] = ()
        self._vectors: tuple[Tensor, ...] = ()
        self.patches: Patched | None = None

    @property
    def height(self) -> int:
        return self.shape[-2]

    @property
    def width(self) -> int:
        return self.shape[-1]

    @property
    def channels(self) -> int:
        return self.shape[-3]

    @property
    def is_untouched(self) -> bool:
        return not self._stages and not self._has_begun()

    @property
    def is_what_was_given(self) -> bool:
        """Whether its value is the very object that it was read from."""
        return self._original is not None and self.is_untouched

    @property
    def is_view(self) -> bool:
        """Whether its result lies within the tensor that it was read from, as torchvision's would."""
        is_copied = self._stages or self._is_copied or not self._only_crops()
        return not is_copied and isinstance(self._source.memory, Tensor)

    @property
    def is_pixels(self) -> bool:
        """Whether it is no tensor yet."""
        return self.kind in (PIL, ARRAY)

    # ---- what can be done to it

    def becomes(self, kind: str, *, contiguous: bool = False) -> None:
        """The same pixels as something else; `contiguous`: torchvision copies them in order. Pillow's stay as they lie,
        one pixel after the other."""
        if contiguous:
            self._shares_an_array()
            self.strides = dense_strides(self.shape, False)
        elif self.kind == PIL:
            self.strides = (1, self.width * self.channels, self.channels)
        self.kind, self._original = kind, None

    def _shares_an_array(self) -> None:
        """Reads an array as a tensor that shares its memory, where it lies as torchvision's tensor of it does."""
        shared = in_order(self._original) if self.kind == ARRAY and self.is_untouched else None
        if shared is not None:
            self._begin_with(of_tensor(shared), None)

    def crop(self, top: int, left: int, height: int, width: int) -> None:
        """A rectangle that lies within: of a tensor a view, of a Pillow image a copy."""
        if (top, left, height, width) == (0, 0, self.height, self.width):
            if self.kind == PIL:
                self.copies()
            return
        if self._positions is not None:
            self._positions = self._positions.then(CROP, top, left, height, width)
        else:
            self._follow((_part(top, height, self.height), _part(left, width, self.width)))
        self._edit("crop", top, left, height, width)
        self._resized_to(height, width, self.strides, densely=False)

    def flip(self, dim: int) -> None:
        """`dim`: -1 or -2."""
        if self._positions is not None:
            self._positions = self._positions.then(FLIP, dim)
        else:
            self._follow(((), (Flip(),)) if dim == -1 else ((Flip(),), ()))
        self._edit("flip", dim)
        self._lies_densely()

    def pad(self, amounts: Sequence[int], fill: float, mode: str, *, as_batch: bool = True) -> None:
        """`amounts`: left, right, top, bottom. `mode`: of `polyphase.functional.pad`."""
        amounts = tuple(amounts)
        maps = arguments.pad_maps(self.shape[-3:], amounts, mode)  # one image, however many there are
        value = arguments.border_value(fill, mode, self.dtype, amounts)
        if not maps:
            self.copies()
            return
        if self._positions is not None:
            self.store()
        added = [one.steps for one in maps]
        self._is_copied = True
        if mode == "constant":
            self._borders = (*self._borders, Border(value, stored=self._epilogue != VALUE))
            added = [tuple(_numbered(step, len(self._borders)) for step in steps) for steps in added]
        self._follow((added[0], added[1]))
        self._edit("pad", amounts, fill)
        size = maps[0].output_size(self.height), maps[1].output_size(self.width)
        out_shape = (*self.shape[:-2], *size)
        lies = strides.padded(self.shape, self.strides, out_shape, as_batch=as_batch)
        if mode == "constant" and max(amounts) <= 0:  # a copy of what is left
            lies = strides.dense_like(out_shape, self.strides)
        self._resized_to(*size, lies)

    def resize(
        self,
        height: int,
        width: int,
        mode: str,
        antialias: bool,
        *,
        in_floats: bool = False,
        rows_first: bool = False,
    ) -> None:
        """`in_floats`: bytes are summed as floats, and rounded once, as torchvision's v1 does. `rows_first`: bytes are
        rounded after rows were summed, then after columns were."""
        if (height, width) == (self.height, self.width):
            return
        if 0 in (self.height, self.width):  # said now: what comes next draws nothing
            raise InvalidStepError(
                f"cannot resize {self.height}x{self.width} pixels; a crop before it has left none: make it larger"
            )
        self._edits = None
        dtype, is_nearest = self.dtype, mode in NEAREST
        native = (torch.float32, torch.float64, *(() if in_floats or not _sums_bytes(mode) else (torch.uint8,)))
        casts = dtype not in native
        steps = (_resize_step(height, mode, antialias, rows_first),), (_resize_step(width, mode, antialias),)
        self._follow(steps, weighs=not is_nearest, cast=torch.float32 if casts else None)
        if casts:
            of = self._epilogue
            if mode in ("bicubic", "lanczos") and dtype == torch.uint8:
                of = clamp(of, 0, 255)
            self._epilogue = Cast(of if dtype.is_floating_point else Unary("round", of), dtype)
        size = (height, width)
        lies = strides.resized(self.shape, self.strides, size, keeps_channels_last=not in_floats)
        self._resized_to(height, width, lies)

    def warp(self, grid: AffineGrid | PerspectiveGrid, mode: str, fill: Sequence[float] | None) -> None:
        """`fill`: what lies outside, one for all channels or one for each; None is black, and mixes with the edge."""
        self._make_ready_for_a_warp()
        dtype, fills = self.dtype, fill is not None and (mode != "nearest" or any(fill))
        casts = not dtype.is_floating_point and dtype != torch.uint8 and (fills or mode != "nearest")
        if casts:
            self._prologue = Cast(self._prologue, torch.float32)
        self._warp = Warp("grid", mode, fill=tuple(fill) if fill is not None and fills else ())
        self._positions = Positions(grid)
        if casts:
            self._epilogue = Cast(Unary("round", self._epilogue), dtype)
        shape = (*self.shape[:-2], *grid.size)
        self._resized_to(*grid.size, dense_strides(shape, False))

    def compute(self, expression: Callable[[Expression], Expression], dtype: torch.dtype) -> None:
        """Arithmetic on every element, which makes it `dtype`."""
        if any(border.stored for border in self._borders):
            self.store()
        self._epilogue = expression(self._epilogue)
        self.dtype, self._original = dtype, None
        self._lies_densely()

    def normalise(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        vectors = [vector(one, self.dtype, self._source.facts.device) for one in (mean, std)]
        if any(border.stored for border in self._borders):
            self.store()
        first = len(self._vectors)
        self._vectors = (*self._vectors, *vectors)
        dtype = self.dtype
        self.compute(
            lambda of: Binary("div", Binary("sub", of, Channel(first, dtype)), Channel(first + 1, dtype)), dtype
        )

    def cut(self, size: int, merge: int, frames: int, channels_last: bool) -> None:
        """Cuts the picture into patches, of which it is no image any more."""
        patches = Patched(self.shape, size, merge, frames, channels_last)
        if self.plain or not devices.wing_of(self._source.facts.device).makes_patchwork:
            self.by_torch(patches.of)
            return
        if self._warp is not None:
            self.store()
        self.patches, self._original = patches, None
        self.shape, self.strides, self._is_dense = patches.out_shape, dense_strides(patches.out_shape, False), True

    def copies(self) -> None:
        """The same pixels, in memory of their own: what is done to them in place is not done to the image."""
        self._original, self._is_copied = None, True
        self._edit("copy")
        self._lies_densely()

    def by_torch(self, function: Callable[[Tensor], Tensor]) -> None:
        """What programs do not have."""
        self.has_run = True
        self._begin_with(of_tensor(function(self.tensor())), None)

    def in_place(self, function: Callable[[Tensor], Tensor]) -> None:
        """Calls a function that changes the tensor it is given: the caller's, where this is a view of it."""
        self.by_torch(lambda image: function(image.clone() if self.only_shown else image))

    def by_pillow(self, function: Callable[[Any], Any]) -> None:
        """What Pillow does by rules of its own; of a Pillow image."""
        self.has_run, result = True, function(self.value())
        self._begin_with(of_pil(result), result)

    def _begin_with(self, source: Source, original: object) -> None:
        self._source, self._stages = source, list[Stage]()
        self._original, self._is_dense, self._is_copied = original, False, False
        self._edits = Edits(original) if self.kind == PIL and original is not None else None
        self.dtype, self.shape, self.strides = source.facts.dtype, tuple(source.facts.shape), source.facts.strides
        if self.strides[-2] == BY_ROWS:
            self.strides = in_one_block(source).facts.strides
        self._begin()

    # ---- what comes out

    def stages(self) -> list[Stage]:
        """All programs there are, the one that grows included."""
        return [*self._stages, self._stage()] if self._has_begun() or not self._stages else self._stages

    def run(self, out: Tensor | None = None) -> Tensor:
        """A tensor of its own, or `out`."""
        return run(self.stages(), self._source, out, plain=self.plain)

    @property
    def source(self) -> Source:
        return self._source

    def tensor(self) -> Tensor:
        """A view where nothing was done to a tensor but cropping."""
        if self.is_view or (self._stages and self._only_crops()):
            image = run(self._stages, self._source, plain=self.plain) if self._stages else self._source.tensor()
            for dim, steps in zip((-2, -1), self._steps, strict=True):
                for step in steps:
                    assert isinstance(step, Slice), "only crops"
                    image = image.narrow(dim, step.start, step.stop - step.start)
            return image
        return self.run()

    def value(self) -> Any:
        """What the picture has become, as its kind is."""
        if self.is_what_was_given:
            return self._original
        if self.kind == PIL:
            return self._as_pil() if self._edits is None else self._edits.made()
        return as_kind(self.tensor(), self.kind)

    def _as_pil(self) -> Any:
        """A new Pillow image, whose pixels are written where they lie."""
        made = NewPicture(self.shape)
        run_into(self.stages(), self._source, made, lies_as(self.shape))
        return made.image()

    def is_for_others(self) -> bool:
        """Whether its programs are those of the next image of this kind: they depend on nothing else."""
        is_view = self._only_crops() and (self._moves() if self._stages else not self._is_copied)
        is_pillows = self.kind == PIL and self._edits is not None
        return not (self.has_run or self.plain or is_pillows or is_view)

    def ready(self) -> Ready | None:
        """Its programs, bound; None where one is not a kernel's. Of what is for others."""
        self.store()
        made = Ready.made(self._stages, self._source)
        return None if any(call.by_torch for call, _ in made.calls) else made

    def again(self, source: Source) -> Picture:
        """The same done to another image of this kind; of what is `ready`."""
        other = copy.copy(self)
        vars(other)["_source"] = source
        return other

    # ---- the program that grows

    def _edit(self, name: str, *arguments: Any) -> None:
        if self._edits is not None:
            self._edits = self._edits.then(name, *arguments)

    def _has_begun(self) -> bool:
        begun = self._warp is not None or self.patches is not None or self._moves()
        begun = begun or (self._is_copied and not self._stages)
        return begun or self._prologue != VALUE or self._epilogue != VALUE

    def _only_crops(self) -> bool:
        return (
            self._warp is None
            and self.patches is None
            and self._prologue == VALUE == self._epilogue
            and all(isinstance(step, Slice) for steps in self._steps for step in steps)
        )

    def _resized_to(self, height: int, width: int, lies: Sizes, *, densely: bool = True) -> None:
        self.shape, self.strides, self._original = (*self.shape[:-2], height, width), lies, None
        self._is_dense = densely

    def _lies_densely(self) -> None:
        if not self._is_dense:
            self.strides, self._is_dense = strides.dense_like(self.shape, self.strides), True

    def _follow(self, added: tuple[Steps, Steps], *, weighs: bool = False, cast: torch.dtype | None = None) -> None:
        """Steps after all there are. `weighs`: they sum; `cast`: values of this dtype."""
        if self._warp is not None or (weighs and not self._can_be_summed()):
            self.store()
        self._steps = self._steps[0] + added[0], self._steps[1] + added[1]
        if cast is not None:
            self._epilogue = Cast(self._epilogue, cast)
        if weighs:
            self._sums = True
            self._prologue, self._epilogue = chain(self._prologue, self._epilogue), VALUE

    def _can_be_summed(self) -> bool:
        """Whether a weighted step can follow: the normal form of axis maps."""
        return not self._sums and all(isinstance(step, (Slice, Flip)) for steps in self._steps for step in steps)

    def _make_ready_for_a_warp(self) -> None:
        """Nothing is left before it but arithmetic that is as good done for every tap."""
        if not self._stages and (self._only_crops() or not self._moves()):
            self._source = in_one_block(self._source)
        if self._only_crops() and not self._stages and self._source.flipped == (False, False):
            bounds = [(0, n) for n in self._source.facts.shape[-2:]]
            for axis, steps in enumerate(self._steps):
                for step in steps:
                    assert isinstance(step, Slice), "only crops"
                    bounds[axis] = (bounds[axis][0] + step.start, step.stop - step.start)
            (top, height), (left, width) = bounds
            self._source = self._source.cropped(top, left, height, width)
            self._steps = ((), ())
        short = length_of(self._epilogue) <= MOST_OPERATIONS_PER_TAP
        if self._warp is not None or self._prologue != VALUE or self._borders or not short or self._moves():
            self.store()
        self._prologue, self._epilogue = self._epilogue, VALUE

    def _moves(self) -> bool:
        return bool(self._steps[0] or self._steps[1])

    def store(self) -> None:
        """The program is done; its result is the next one's image."""
        if self._has_begun():
            self._stages.append(self._stage())
        self._begin()

    def _stage(self) -> Stage:
        sampler: Sampler = self._warp or Axes((AxisMap(self._steps[0]), AxisMap(self._steps[1])))
        source = self._stages[-1].out if self._stages else self._source.facts
        program = Program(source.dtype, sampler, self._prologue, self._epilogue, self._borders)
        lies = self.strides if self._is_dense else strides.dense_like(self.shape, self.strides)
        out = Facts(self.dtype, self.shape, lies, source.device)
        return Stage(program, out, self._vectors, self._positions, self.patches)


@functools.lru_cache(maxsize=256)
def vector(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


@functools.lru_cache(maxsize=1024)
def _resize_step(size: int, mode: str, antialias: bool, first: bool = False) -> Step:
    return Nearest(size, mode == "nearest-exact") if mode in NEAREST else Resize(size, mode, antialias, first=first)


def _part(start: int, length: int, of: int) -> Steps:
    return () if length == of else (Slice(start, start + length),)


def _numbered(step: Step, number: int) -> Step:
    return Pad(step.before, step.after, step.mode, number) if isinstance(step, Pad) and step.border else step


@functools.cache
def _sums_bytes(mode: str) -> bool:
    """Whether torchvision's v2 has bytes resized as bytes on this machine. CUDA's pictures are to be the CPU's."""
    import platform

    if mode != "bilinear":
        return True
    arm = platform.machine() in ("aarch64", "arm64")
    return arm or torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def as_kind(tensor: Tensor, kind: str) -> Any:
    return sys.modules["torchvision.tv_tensors"].Image(tensor) if kind == IMAGE else tensor
