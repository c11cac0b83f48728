"""Sample inputs for the resampling operators, shared by every test next to PyTorch's own OpInfo.

OpInfo has no antialiased, no channels-last and no image over 4 x 5 for ``interpolate``; these samples do.  Two sets:

* ``full()``: thousands of samples, the product of the tables below.
* ``small()``: the few hundred of them in which every two parameters of an operator still meet.

A sample is a description.  Its tensors are built when ``args`` is asked for, from a generator seeded by the label, so
the same label gives the same bits in any order, and holding a list of samples holds no tensors.  Every sample is one
that eager PyTorch runs on the CPU without raising; ``Sample.eager_is_right`` tells where eager's answer can be trusted.
"""

import functools
import itertools
import math
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch.nn.functional import affine_grid, grid_sample, interpolate, pad

from polyphase.torch_versions import SAMPLES_VOLUMES_BY_BICUBIC

Shape = tuple[int, ...]
Asked = TypeVar("Asked")

OPERATORS: dict[str, Callable[..., torch.Tensor]] = {
    "interpolate": interpolate,
    "grid_sample": grid_sample,
    "affine_grid": affine_grid,
    "flip": torch.flip,
    "pad": pad,
}

RESAMPLING = ("interpolate", "grid_sample", "affine_grid")
"""The operators with an algorithm of their own for each number of spatial axes."""

DTYPES: dict[torch.dtype, str] = {
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "bool",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
}

# What eager accepts: antialiasing has no 16-bit floats on the CPU.
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
PIXELS = (torch.uint8, *FLOATS)
PRECISE = (torch.float32, torch.float64)
ANTIALIASED = (torch.uint8, *PRECISE)

LAYOUTS = ("CF", "CL", "sliced", "slicedCL", "transposed", "expanded")
COMMON_LAYOUTS = ("CF", "CL")

MAX_BYTES = 2_000_000
"""No sample has an input larger than this."""


def image(
    shape: Shape,
    dtype: torch.dtype = torch.float32,
    layout: str = "CF",
    seed: int = 0,
    low: float = 0.0,
    high: float = 1.0,
) -> torch.Tensor:
    """Make a random tensor of shape (batch, channels, ...) in one of ``LAYOUTS``.

    Floats and the two parts of complex numbers lie in [low, high], integers take every value of their type.

    * ``CF``: contiguous, channels first.
    * ``CL``: channels last; the strides are those of a permuted (batch, ..., channels) image even with one channel.
    * ``sliced``, ``slicedCL``: the interior of a ``CF`` or ``CL`` image that is larger along every spatial axis.
    * ``transposed``: contiguous once the last two axes are swapped.
    * ``expanded``: one contiguous image, repeated along the batch with stride 0.
    """
    batch, channels, *spatial = shape
    values = functools.partial(_values, dtype=dtype, seed=seed, low=low, high=high)
    if layout == "CF":
        return values(shape)
    if layout == "CL":
        return values((batch, *spatial, channels)).movedim(-1, 1)
    if layout in ("sliced", "slicedCL"):
        larger = image((batch, channels, *(size + 3 for size in spatial)), dtype, layout[6:] or "CF", seed, low, high)
        interior = (slice(None), slice(None), *(slice(1, size + 1) for size in spatial))
        return larger[interior]
    if layout == "transposed":
        return values((*shape[:-2], shape[-1], shape[-2])).transpose(-1, -2)
    if layout == "expanded":
        return values((1, *shape[1:])).expand(shape)
    raise ValueError(f"unknown layout {layout!r}, expected one of {LAYOUTS}")


def _values(shape: Shape, dtype: torch.dtype, seed: int, low: float, high: float) -> torch.Tensor:
    """The same ones on every device."""
    with torch.device("cpu"):
        values = _values_on_host(shape, dtype, seed, low, high)
    return values.to(torch.get_default_device())


def _values_on_host(shape: Shape, dtype: torch.dtype, seed: int, low: float, high: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)

    def uniform() -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low

    if dtype.is_complex:
        return torch.complex(uniform(), uniform()).to(dtype)
    if dtype.is_floating_point:
        return uniform().to(dtype)
    if dtype == torch.bool:
        return uniform() > (low + high) / 2
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, min(limits.max + 1, 2**63 - 1), shape, generator=generator, dtype=dtype)


class Spec(NamedTuple):
    """What ``image`` needs to make a tensor, except the seed."""

    shape: Shape
    dtype: torch.dtype
    layout: str = "CF"
    low: float = 0.0
    high: float = 1.0

    def build(self, seed: int) -> torch.Tensor:
        return image(self.shape, self.dtype, self.layout, seed, self.low, self.high)


@dataclass(frozen=True, eq=False)
class Sample:
    """One call of an operator: ``OPERATORS[operator](*args, **kwargs)``, where ``args`` are the tensors."""

    operator: str
    specs: tuple[Spec, ...]
    kwargs: dict[str, Any]
    label: str

    def __str__(self) -> str:
        return self.label

    @property
    def seed(self) -> int:
        return zlib.crc32(self.label.encode())

    @property
    def args(self) -> tuple[torch.Tensor, ...]:
        """The tensors, built anew with the same bits each time."""
        return tuple(spec.build(self.seed + index) for index, spec in enumerate(self.specs))

    @property
    def input(self) -> torch.Tensor:
        """The first tensor."""
        return self.specs[0].build(self.seed)

    @property
    def shape(self) -> Shape:
        return self.specs[0].shape

    @property
    def dtype(self) -> torch.dtype:
        return self.specs[0].dtype

    @property
    def layout(self) -> str:
        return self.specs[0].layout

    @property
    def axes(self) -> int:
        """The number of spatial axes."""
        return len(self.kwargs["size"] if self.operator == "affine_grid" else self.shape) - 2

    @property
    def mode(self) -> str | None:
        return self.kwargs.get("mode")

    @property
    def antialias(self) -> bool:
        return bool(self.kwargs.get("antialias", False))

    @property
    def eager_is_right(self) -> bool:
        """False where eager on the CPU (PyTorch 2.13) is known to give wrong pixels for an ``interpolate``.

        * Its separable kernel, which runs everything antialiased and every uint8 ``bilinear`` or ``bicubic``, repeats
          the first row in an output one pixel wide and more than one high.  Channels last with more than one channel
          is spared; so is uint8 with up to 4 channels, but on a CPU with AVX2 only.
        * Its AVX2 kernel takes the wrong stride for the rows of a transposed uint8 image one pixel wide, and so reads
          past the end of the image: keep such samples small.
        """
        if self.mode not in SEPARABLE or not (self.antialias or self.dtype == torch.uint8):
            return True
        height, width = output_size(self.shape, self.kwargs)
        channels_last = self.layout.endswith("CL") and self.shape[1] > 1
        thin_output = width == 1 and height > 1 and not channels_last
        thin_input = self.dtype == torch.uint8 and self.layout == "transposed" and self.shape[-1] == 1
        return not (thin_output or thin_input)

    def eager(self) -> torch.Tensor:
        """Call the operator of PyTorch, without its warning on the unit-size grids that ``affine_grid`` redefined."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*affine_grid behavior has changed")
            return OPERATORS[self.operator](*self.args, **self.kwargs)


def output_size(shape: Shape, kwargs: dict[str, Any]) -> Shape:
    """The spatial size that ``interpolate`` gives an input of this shape, from its ``size`` or ``scale_factor``."""
    spatial = shape[2:]
    if "size" in kwargs:
        return tuple(kwargs["size"])
    factors = kwargs["scale_factor"]
    if isinstance(factors, float):
        factors = (factors,) * len(spatial)
    return tuple(int(size * factor) for size, factor in zip(spatial, factors, strict=True))


HAS_LANCZOS = hasattr(torch.ops.aten, "_upsample_lanczos2d_aa")
"""Since PyTorch 2.13."""


class Kernel(NamedTuple):
    """A mode of ``interpolate``, with the numbers of spatial axes, data types and ``align_corners`` it accepts."""

    mode: str
    axes: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]
    align_corners: tuple[bool | None, ...] = (None,)
    antialias: bool = False


KERNELS = (
    Kernel("nearest", (1, 2, 3), PIXELS),
    Kernel("nearest-exact", (1, 2, 3), PIXELS),
    Kernel("area", (1, 2, 3), FLOATS),
    Kernel("linear", (1,), FLOATS, (False, True)),
    Kernel("bilinear", (2,), PIXELS, (False, True)),
    Kernel("bicubic", (2,), PIXELS, (False, True)),
    Kernel("trilinear", (3,), FLOATS, (False, True)),
    Kernel("bilinear", (2,), ANTIALIASED, (False, True), antialias=True),
    Kernel("bicubic", (2,), ANTIALIASED, (False, True), antialias=True),
    *([Kernel("lanczos", (2,), ANTIALIASED, (False,), antialias=True)] if HAS_LANCZOS else []),
)

SEPARABLE = ("bilinear", "bicubic", "lanczos")
"""The modes that eager runs one axis at a time if antialiased or of uint8."""

Resize = tuple[Shape, dict[str, Any]]
"""The shape of an image and how its new size is given."""

RESIZES_IN_EVERY_LAYOUT: tuple[Resize, ...] = (
    ((2, 3, 37), {"size": (19,)}),
    ((2, 4, 11), {"scale_factor": 1.7}),
    ((2, 3, 37, 53), {"size": (19, 29)}),
    ((2, 4, 17, 11), {"size": (31, 40)}),
    ((2, 3, 29, 16), {"scale_factor": (0.5, 1.7)}),
    ((2, 1, 23, 1), {"size": (11, 7)}),
    ((2, 5, 1, 19), {"size": (3, 8)}),
    ((2, 3, 5, 7, 6), {"size": (3, 4, 11)}),
)

RESIZES: tuple[Resize, ...] = (
    # One spatial axis: far down, far up, to one, from one, unchanged, no batch, scale factors.
    ((1, 1, 941), {"size": (10,)}),
    ((1, 4, 7), {"size": (500,)}),
    ((2, 5, 11), {"size": (1,)}),
    ((1, 3, 1), {"size": (6,)}),
    ((2, 8, 16), {"size": (16,)}),
    ((0, 3, 8), {"size": (4,)}),
    ((1, 3, 31), {"scale_factor": (0.3,)}),
    ((1, 5, 2000), {"scale_factor": 0.6, "recompute_scale_factor": True}),
    # Two spatial axes, both down or both up.
    ((1, 3, 345, 456), {"size": (270, 270)}),
    ((2, 8, 32, 24), {"size": (16, 12)}),
    ((1, 8, 12, 15), {"size": (24, 45)}),
    # One axis down and the other up, one axis unchanged, both unchanged.
    ((2, 5, 9, 7), {"size": (4, 20)}),
    ((1, 3, 13, 17), {"size": (13, 40)}),
    ((1, 4, 40, 31), {"size": (10, 31)}),
    ((1, 1, 64, 47), {"size": (64, 47)}),
    # To one pixel along one or both axes, and from one pixel.
    ((2, 1, 20, 30), {"size": (1, 1)}),
    ((1, 3, 20, 30), {"size": (1, 1)}),
    ((1, 3, 33, 21), {"size": (1, 9)}),
    ((1, 3, 33, 21), {"size": (9, 1)}),
    ((1, 5, 33, 21), {"size": (9, 1)}),
    ((1, 3, 1, 1), {"size": (7, 5)}),
    ((2, 4, 1, 1), {"size": (1, 1)}),
    # Large ratios and long thin images.
    ((1, 3, 941, 5), {"size": (10, 5)}),
    ((1, 1, 6, 941), {"size": (4, 10)}),
    ((1, 4, 7, 3), {"size": (500, 3)}),
    ((2, 3, 5, 7), {"size": (2, 500)}),
    ((1, 3, 2000, 3), {"size": (1999, 5)}),
    ((1, 1, 3, 2000), {"size": (3, 667)}),
    ((1, 1, 3, 2), {"size": (2000, 82)}),
    # No batch, scale factors.
    ((0, 3, 8, 9), {"size": (4, 12)}),
    ((1, 3, 24, 18), {"scale_factor": 2.0}),
    ((1, 4, 24, 19), {"scale_factor": 0.4}),
    ((1, 8, 15, 31), {"scale_factor": (1.5, 0.7)}),
    ((1, 3, 25, 19), {"scale_factor": 0.55, "recompute_scale_factor": True}),
    ((2, 1, 11, 14), {"scale_factor": (2.3, 0.3), "recompute_scale_factor": True}),
    # Three spatial axes.
    ((2, 1, 3, 1, 5), {"size": (6, 4, 5)}),
    ((1, 5, 3, 3, 4), {"size": (1, 1, 1)}),
    ((0, 3, 2, 3, 4), {"size": (4, 2, 3)}),
    ((1, 3, 2, 300, 3), {"size": (2, 5, 100)}),
    ((1, 8, 4, 5, 6), {"scale_factor": 1.9}),
    ((1, 4, 7, 5, 4), {"scale_factor": (0.5, 1.3, 2.0)}),
    ((1, 3, 5, 6, 7), {"scale_factor": 0.6, "recompute_scale_factor": True}),
)

GRIDS_IN_EVERY_LAYOUT: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3, 7, 9), (5, 6)),
    ((2, 2, 4, 5, 3), (3, 4, 5)),
)

GRIDS: tuple[tuple[Shape, Shape], ...] = (
    ((1, 5, 64, 48), (40, 51)),
    ((1, 1, 1, 1), (3, 4)),
    ((2, 4, 11, 1), (1, 1)),
    ((0, 3, 4, 5), (2, 3)),
    ((1, 1, 2, 1, 3), (2, 1, 7)),
    ((0, 3, 2, 3, 4), (2, 3, 2)),
)
"""Shapes of the input of ``grid_sample`` and spatial sizes of its output."""

GRID_MODES = dict.fromkeys((2, 3), ("nearest", "bilinear", "bicubic"))
EAGER_GRID_MODES = GRID_MODES if SAMPLES_VOLUMES_BY_BICUBIC else GRID_MODES | {3: ("nearest", "bilinear")}
GRID_PADDINGS = ("zeros", "border", "reflection")
GRID_RANGE = (-1.3, 1.3)

AFFINE_SIZES: tuple[Shape, ...] = (
    (2, 3, 4, 5),
    (2, 1, 31, 17),
    (1, 3, 1, 9),
    (1, 1, 1, 1),
    (2, 3, 4, 5, 6),
    (1, 2, 3, 1, 4),
    (1, 1, 1, 1, 1),
)

FLIPS_IN_EVERY_LAYOUT: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3, 7, 9), (3,)),
    ((2, 3, 7, 9), (2, 3)),
)

FLIPS: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3, 11), (2,)),
    ((2, 3, 11), (0, 2)),
    ((1, 4, 33, 20), (2,)),
    ((1, 4, 33, 20), (-1, 1)),
    ((2, 1, 5, 1), (0, 1, 2, 3)),
    ((2, 5, 6, 7), ()),
    ((0, 3, 4, 5), (3,)),
    ((2, 3, 4, 5, 6), (-1,)),
    ((2, 3, 4, 5, 6), (4, 2)),
)
"""Shapes and the dimensions that ``flip`` reverses."""

PADS_IN_EVERY_LAYOUT: tuple[tuple[Shape, Shape], ...] = (((2, 3, 7, 9), (1, 2, 3, 1)),)

PADS: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3, 9), (1, 2)),
    ((1, 4, 9), (-2, 3)),
    ((1, 1, 9), (-1, -3)),
    ((1, 4, 33, 20), (0, 19, 5, 0)),
    ((1, 5, 7, 9), (-1, 2, 3, -2)),
    ((1, 1, 7, 9), (-1, -2, 0, -1)),
    ((0, 3, 4, 5), (1, 1, 2, 0)),
    ((2, 3, 4, 5, 6), (1, 2, 0, 1, 2, 1)),
    ((1, 2, 4, 5, 6), (1, -1, 2, 0, -1, 1)),
)
"""Shapes and the amounts that ``pad`` adds, which every mode accepts."""

CONSTANT_PADS: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3, 7, 9), (2, 1)),
    ((2, 3, 7, 9), (10, 0, 0, 12)),
    ((2, 3, 4, 5), (0, 1, 2, 0, 1, 3, -1, 2)),
)
"""What only the constant mode accepts: some of the axes, more than the image has, the batch and the channels."""

PAD_MODES = {
    "constant": tuple(DTYPES),
    "reflect": tuple(dtype for dtype in DTYPES if dtype != torch.bool),
    "replicate": tuple(dtype for dtype in DTYPES if dtype != torch.bool),
    "circular": tuple(DTYPES),
}


@functools.cache
def full() -> tuple[Sample, ...]:
    """Every sample of every operator."""
    return tuple(itertools.chain(_interpolate(), _grid_sample(), _affine_grid(), _flip(), _pad()))


@functools.cache
def small() -> tuple[Sample, ...]:
    """A quick subset of ``full()`` in which every two traits of an operator that meet in ``full()`` meet again.

    ``_traits`` lists the traits.  The choice is greedy, the samples that show the most new pairs first, and always the
    same.
    """
    candidates = [(sample, _shows(sample)) for sample in sorted(full(), key=lambda sample: sample.seed)]
    shown: set[object] = set()
    chosen: set[str] = set()
    for least in (32, 24, 16, 12, 8, 6, 4, 3, 2, 1):
        for sample, shows in candidates:
            if len(shows - shown) >= least:
                shown |= shows
                chosen.add(sample.label)
    return tuple(sample for sample in full() if sample.label in chosen)


def select(samples: Iterable[Sample], **wanted: object) -> list[Sample]:
    """Keep the samples whose attributes have the wanted values: ``select(small(), operator="pad", layout="CL")``."""
    return [sample for sample in samples if all(getattr(sample, name) == value for name, value in wanted.items())]


def _interpolate() -> Iterator[Sample]:
    for (shape, given), layout in _in_layouts(RESIZES_IN_EVERY_LAYOUT, RESIZES):
        for kernel in KERNELS:
            if len(shape) - 2 not in kernel.axes:
                continue
            for dtype, align_corners in itertools.product(kernel.dtypes, kernel.align_corners):
                kwargs = given | {"mode": kernel.mode}
                if align_corners is not None:
                    kwargs["align_corners"] = align_corners
                if kernel.antialias:
                    kwargs["antialias"] = True
                if math.prod(shape) * dtype.itemsize <= MAX_BYTES and not _trips_eager(shape, dtype, kwargs):
                    tags = (kernel.mode, "aa" * kernel.antialias, "ac" * bool(align_corners))
                    yield _sample("interpolate", tags, [Spec(shape, dtype, layout)], kwargs, _given(given))


def _trips_eager(shape: Shape, dtype: torch.dtype, kwargs: dict[str, Any]) -> bool:
    """Whether an internal assertion of eager's AVX2 kernel fails: uint8 with 3 channels to one pixel."""
    to_one_pixel = output_size(shape, kwargs) == (1, 1)
    return dtype == torch.uint8 and shape[1] == 3 and to_one_pixel and kwargs["mode"] in SEPARABLE


def _given(given: dict[str, Any]) -> str:
    if "size" in given:
        return _by("x", given["size"])
    factors = given["scale_factor"]
    text = str(factors) if isinstance(factors, float) else _by("x", factors)
    return f"s{text}" + "r" * ("recompute_scale_factor" in given)


def _grid_sample() -> Iterator[Sample]:
    for (shape, size), layout in _in_layouts(GRIDS_IN_EVERY_LAYOUT, GRIDS):
        axes = len(size)
        grid_layout = layout if layout in ("sliced", "transposed", "expanded") else "CF"
        for mode, padding, align_corners, dtype in itertools.product(
            EAGER_GRID_MODES[axes], GRID_PADDINGS, (False, True), PRECISE
        ):
            grid = Spec((shape[0], *size, axes), dtype, grid_layout, *GRID_RANGE)
            kwargs = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
            tags = (mode, padding, "ac" * align_corners)
            yield _sample("grid_sample", tags, [Spec(shape, dtype, layout), grid], kwargs, _by("x", size))


def _affine_grid() -> Iterator[Sample]:
    for size in AFFINE_SIZES:
        axes = len(size) - 2
        shape = (size[0], axes, axes + 1)
        for layout, align_corners, dtype in itertools.product(_layouts(shape), (False, True), PRECISE):
            kwargs = {"size": size, "align_corners": align_corners}
            theta = Spec(shape, dtype, layout, *GRID_RANGE)
            yield _sample("affine_grid", ("ac" * align_corners,), [theta], kwargs, _by("x", size))


def _flip() -> Iterator[Sample]:
    for (shape, dims), layout in _in_layouts(FLIPS_IN_EVERY_LAYOUT, FLIPS):
        for dtype in DTYPES:
            yield _sample("flip", (), [Spec(shape, dtype, layout)], {"dims": dims}, "d" + _by("_", dims))


def _pad() -> Iterator[Sample]:
    for (shape, amounts), layout in _in_layouts(PADS_IN_EVERY_LAYOUT, PADS + CONSTANT_PADS):
        modes = ("constant",) if (shape, amounts) in CONSTANT_PADS else tuple(PAD_MODES)
        for mode, value in itertools.product(modes, (None, 3.0)):
            if value is not None and mode != "constant":
                continue
            for dtype in PAD_MODES[mode]:
                kwargs = {"pad": amounts, "mode": mode, "value": value}
                tags = (mode, "v" * (value is not None))
                yield _sample("pad", tags, [Spec(shape, dtype, layout)], kwargs, "p" + _by("_", amounts))


def _sample(operator: str, tags: Iterable[str], specs: list[Spec], kwargs: dict[str, Any], asked: str) -> Sample:
    """Label a sample by its tags (the empty ones left out), its input and what is asked of the operator."""
    given = (DTYPES[specs[0].dtype], specs[0].layout, _by("x", specs[0].shape), asked)
    label = "-".join(filter(None, (operator, *tags, *given)))
    return Sample(operator, tuple(specs), kwargs, label)


def _by(separator: str, numbers: Iterable[float]) -> str:
    return separator.join(map(str, numbers))


def _in_layouts(
    every: tuple[tuple[Shape, Asked], ...], common: tuple[tuple[Shape, Asked], ...]
) -> Iterator[tuple[tuple[Shape, Asked], str]]:
    """Pair each case, a shape and what is asked of it, with every layout or with the common ones only."""
    for case in every:
        for layout in _layouts(case[0]):
            yield case, layout
    for case in common:
        for layout in _layouts(case[0], COMMON_LAYOUTS):
            yield case, layout


def _layouts(shape: Shape, layouts: tuple[str, ...] = LAYOUTS) -> list[str]:
    """Leave out what a shape cannot show: channels last without two spatial axes, a batch of one expanded."""
    hidden = {"CL", "slicedCL"} if len(shape) < 4 else set()
    if shape[0] < 2:
        hidden.add("expanded")
    return [layout for layout in layouts if layout not in hidden]


def _shows(sample: Sample) -> set[object]:
    """What a sample shows of its operator: each pair of its traits, its sizes, whether eager has its mode right."""
    shapes = tuple(spec.shape for spec in sample.specs)
    asked = tuple(sample.kwargs.get(name) for name in ("size", "scale_factor", "dims", "pad"))
    pairs = itertools.combinations(_traits(sample), 2)
    shows = (*pairs, (shapes, asked), (sample.mode, sample.axes, sample.antialias, sample.eager_is_right))
    return {(sample.operator, *show) for show in shows}


def _traits(sample: Sample) -> Iterator[tuple[str, object]]:
    """The parameters of a sample, sizes by the kind of change along each axis and not by their value."""
    yield "dtype", sample.dtype
    yield "layout", sample.layout
    yield "mode", (sample.mode, sample.antialias, sample.axes if sample.operator in RESAMPLING else None)
    for name in ("padding_mode", "align_corners", "value"):
        yield name, sample.kwargs.get(name)
    if sample.operator == "interpolate":
        yield "batch", sample.shape[0]
        yield "channels", sample.shape[1]
        yield "given", _kind(sample.kwargs)
        sizes = zip(sample.shape[2:], output_size(sample.shape, sample.kwargs), strict=True)
        for axis, (before, after) in enumerate(sizes):
            yield f"axis {axis - sample.axes}", _change(before, after)


def _kind(kwargs: dict[str, Any]) -> str:
    if "size" in kwargs:
        return "size"
    kind = "factor" if isinstance(kwargs["scale_factor"], float) else "factors"
    return "recomputed " * ("recompute_scale_factor" in kwargs) + kind


def _change(before: int, after: int) -> str:
    if before == after:
        return "same"
    if after == 1:
        return "to one"
    if before == 1:
        return "from one"
    far = "far " * (max(before, after) > 20 * min(before, after))
    return far + ("up" if after > before else "down")
