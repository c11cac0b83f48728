"""From a program, and the facts of the tensors it is given, to a call that can be made again and again.

Everything that can be checked is checked here, once: a kernel does not see where a tensor ends. What no kernel can be
had for is done by the plain twin.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from polyphase.errors import (
    BuildFailedError,
    CompilerMissingError,
    DriverError,
    NoKernelError,
    NoKernelsWarning,
    WrongInputError,
    WrongSizeError,
    warn,
)
from polyphase.kernels import devices, filled, operands, plain_torch
from polyphase.kernels.facts import Facts, Sizes, elements, facts
from polyphase.kernels.layout import keeps_strides, output_strides
from polyphase.kernels.patchwork import Patchwork
from polyphase.kernels.plans import HALF
from polyphase.kernels.recipes import Recipe
from polyphase.kernels.records import AnySize, CallRecord, GradientRecord
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import ORDERS, Axes, Program, by_moving, maps_program, moves_runs, warp_program
from polyphase.sampling.warps import Warp

Needed: TypeAlias = tuple[bool, bool]
Gradients: TypeAlias = tuple[Tensor | None, ...]
#: Gradient, image, coordinates and a formula's fields -> the gradients of all but the first, None where not needed.
BoundGradients: TypeAlias = Callable[..., Gradients]

Result = TypeVar("Result")

NOT_BUILT = (CompilerMissingError, BuildFailedError, DriverError)
RETRY_SECONDS = 1.0
WARPED_AXES = {"nearest": (2, 3), "bilinear": (2, 3), "bicubic": (2,)}


class BoundCall(NamedTuple):
    """A program for tensors of known facts. Inputs: an image, the coordinates of a warp, operands in their order.

    fresh: makes the output. into: writes it to the first tensor it is given. by_torch: it is the plain twin's. handle:
    what the wing's `launch_all` knows it by. direct: what its kernels in torch's dispatcher do. kernel: where none
    could be had at first, the call of one if it can be had now.
    """

    out: Facts
    fresh: Callable[..., Tensor]
    into: Callable[..., None]
    by_torch: bool = False
    handle: object = None
    direct: object = None
    kernel: Callable[[], BoundCall | None] | None = None


def bind(
    program: Program,
    inputs: Sequence[Facts],
    out: Facts | None = None,
    varies: bool = False,
    patchwork: Patchwork | None = None,
    batched: bool = False,
) -> BoundCall:
    """`out`: where the output's place in memory is given, else it lies as the program says. `patchwork`: it is cut
    into blocks; of maps, on a device whose wing `makes_patchwork`. `batched`: to be launched with others."""
    record = record_of(program, inputs, out)._replace(varies=varies, patchwork=patchwork)
    if patchwork is not None:
        patchwork.check(record.out)
    return bind_record(record, batched)


def bind_record(record: CallRecord, batched: bool = False) -> BoundCall:
    """Of a record that was checked."""
    if 0 in record.out.shape:
        return _bound_to_nothing(record.out)
    _check_that_it_can_be_allocated(record.out)
    wing = devices.wing_of(record.image.device)
    if not (_is_near(record.image, wing.most_warped) if record.coordinates else _is_short(record, wing)):
        return _bound_to_plain_torch(record)
    attempt = functools.partial((batched and wing.bind_batched) or wing.bind, record)
    try:
        return attempt()
    except NoKernelError:
        return _bound_to_plain_torch(record)
    except NOT_BUILT as error:
        _warn_once(error)
        kernel, twin = _tried_again(attempt), _bound_to_plain_torch(record)
        return BoundCall(
            record.written,
            lambda *inputs: (kernel() or twin).fresh(*inputs),
            lambda *all: (kernel() or twin).into(*all),
            kernel=kernel,
        )


def for_any_size(
    program: Program, inputs: Sequence[Facts], otherwise: Callable[..., Tensor]
) -> Callable[..., Tensor] | None:
    """A program for inputs of any sizes and strides, of which only ranks, dtypes and the device are as these'. What no
    kernel takes, mistakes among it, is `otherwise`'s. None where a device binds one size at a time."""
    wing, axes = devices.wing_of(inputs[0].device), program.sampler
    depends = axes.transposed if isinstance(axes, Axes) else axes.source == "formula"
    if wing.bind_any_size is None or depends:
        return None
    record = record_of(program, inputs)
    large = _bytes_of(record.out) >= _LARGE  # it may not be had, which is to be said
    if large or record.operands is not operands.NO_OPERANDS:
        return None
    rules = AnySize(
        order=ORDERS.index(program.order),
        keeps_strides=isinstance(axes, Axes) and keeps_strides(axes.maps),
        longest=wing.longest_runs if moves_runs(program) else wing.longest_axis,
        most_warped=wing.most_warped,
        most_bytes=_LARGE,
        element_bytes=program.target.itemsize,
    )
    try:
        return wing.bind_any_size(record, rules, otherwise)
    except (NoKernelError, *NOT_BUILT):
        return None


class Pattern:
    """Programs that differ in the numbers of their steps alone, for images of any size. Made of one that was bound."""

    def __init__(self, record: CallRecord, wing: devices.Wing) -> None:
        assert wing.bind_like is not None, "the device has patterns"
        self._record, self._wing = record, wing
        self._bind = wing.bind_like(record)
        self._longest = wing.longest_runs if moves_runs(record.program) else wing.longest_axis
        self._most = _LARGE // record.program.target.itemsize

    @staticmethod
    def of(
        program: Program,
        inputs: Sequence[Facts],
        out: Facts,
        patchwork: Patchwork | None = None,
    ) -> Pattern | None:
        """None where a device binds one program at a time, or nothing can be built."""
        wing = devices.wing_of(inputs[0].device)
        record = record_of(program, inputs, out)._replace(patchwork=patchwork)
        if wing.bind_like is None or record.coordinates is not None or record.operands.copied:
            return None
        if patchwork is not None and not wing.makes_patchwork:
            return None
        try:
            return Pattern(record, wing)
        except (NoKernelError, *NOT_BUILT):
            return None

    def teach(
        self, sized: devices.Sized | None, transforms: bytes, vectors: tuple[Tensor, ...]
    ) -> devices.Sized | None:
        """What makes such programs of an image's size alone: `sized`, or a new one, where it learns how."""
        if self._wing.sized is None:
            return sized
        made = sized or self._wing.sized(self._record.out.dtype)
        learned = made.learn(self._record, transforms, self._longest, self._most, vectors)
        return made if learned else sized

    def takes(self, image: Facts, mapped: Sizes) -> bool:
        """Whether a kernel does, or `bind` decides what is to be done. `mapped`: the image's sizes after its steps."""
        (_, rows, columns), (channels, height, width), longest = image.shape, mapped, self._longest
        is_short = rows <= longest and columns <= longest and height <= longest and width <= longest
        return is_short and channels * height * width < self._most

    def bound(
        self,
        image: Facts,
        out: Facts,
        patchwork: Patchwork | None,
        steps: tuple[Recipe, Recipe],
        batched: bool = False,
    ) -> BoundCall:
        """`steps`: of rows and columns, that lead from an image to the output, of as many dimensions as the one this
        was made of, and not empty."""
        return self._bind(image, out, patchwork, steps, batched)


#: The one cache of bound calls, by the program itself. Each call keeps its tables.
bound = functools.lru_cache(maxsize=256)(bind)


@functools.lru_cache(maxsize=256)
def bound_gradients(
    sampler: Warp, gradient: Facts, image: Facts, coordinates: Facts, needed: Needed, fields: tuple[Facts, ...] = ()
) -> BoundGradients:
    """Gradients of the image and of the coordinates, contiguous as eager's; of a formula, also those of its fields."""
    out_shape = _warped_shape(sampler, image, coordinates)
    if (gradient.dtype, gradient.shape) != (image.dtype, out_shape):
        raise WrongInputError(
            f"a gradient of {gradient.dtype} {tuple(gradient.shape)} for an output of {image.dtype} {out_shape}"
        )
    _check_coordinates(image.dtype, coordinates.dtype, sampler.mode)
    _check_fields(coordinates, fields)
    if sampler.fill:
        return functools.partial(filled.gradients, sampler, needed, warp, warp_gradients)
    wing = devices.wing_of(image.device)
    dense = elements(image.shape[1:])  # as the image's gradient is

    def plain(gradient: Tensor, image: Tensor, coordinates: Tensor, *fields: Tensor) -> Gradients:
        return plain_torch.warp_gradients(gradient, image, coordinates, sampler, needed, fields)

    if not _is_near(image, wing.most_warped) or dense > wing.most_warped:
        return plain
    of_fields = operands.describe_fields(out_shape, operands.fields_of(sampler), fields)
    given = operands.Operands(tensors=of_fields) if of_fields else operands.NO_OPERANDS
    attempt = functools.partial(
        wing.bind_gradients, GradientRecord(sampler, gradient, image, coordinates, needed, given)
    )
    try:
        return attempt()
    except NoKernelError:
        return plain
    except NOT_BUILT as error:
        _warn_once(error)
        kernel = _tried_again(attempt)
        return lambda *tensors: (kernel() or plain)(*tensors)


def forget() -> None:
    """So that what is called next is bound anew."""
    bound.cache_clear()
    bound_gradients.cache_clear()
    for wing in devices.loaded():
        wing.forget()


# ---- calls without a bound one at hand


def resample(
    image: Tensor, maps: tuple[AxisMap, ...], *, transposed: bool = False, in_size: Sizes = (), border: complex = 0
) -> Tensor:
    """The maps on the last dimensions, or their adjoint, which goes from the forward's output to its `in_size`."""
    program = maps_program(image.dtype, maps, in_size if transposed else (), border)
    return bound(program, (facts(image),)).fresh(image)


def warp(image: Tensor, coordinates: Tensor, sampler: Warp, *fields: Tensor) -> Tensor:
    """`image` (N, C, spatial...) at a grid (N, out..., axes), or where a matrix or a formula leads; contiguous."""
    inputs = (image, coordinates, *fields)
    return bound(warp_program(image.dtype, sampler), tuple(map(facts, inputs))).fresh(*inputs)


def warp_gradients(
    gradient: Tensor, image: Tensor, coordinates: Tensor, sampler: Warp, needed: Needed, *fields: Tensor
) -> Gradients:
    of_fields = tuple(map(facts, fields))
    call = bound_gradients(sampler, facts(gradient), facts(image), facts(coordinates), needed, of_fields)
    return call(gradient, image, coordinates, *fields)


def run(
    program: Program,
    *inputs: Tensor,
    channels: Mapping[int, Tensor] | None = None,
    tensors: Mapping[int, Tensor] | None = None,
) -> Tensor:
    """A whole program, arithmetic included: its image, the coordinates of a warp, and operands by their slots."""
    given = (*inputs, *operands.ordered(program, inputs[0], channels, tensors))
    return bound(program, tuple(map(facts, given))).fresh(*given)


# ---- records, checked


def record_of(program: Program, inputs: Sequence[Facts], out: Facts | None = None) -> CallRecord:
    program = by_moving(program)
    if isinstance(program.sampler, Axes):
        image, *given = inputs
        return _maps_record(program, image, given, out)
    image, coordinates, *given = inputs
    return _warp_record(program, image, coordinates, given, out)


def _maps_record(program: Program, image: Facts, given: Sequence[Facts], out: Facts | None) -> CallRecord:
    axes = program.sampler
    assert isinstance(axes, Axes), "warps have records of their own"
    shape = tuple(image.shape)
    leading = len(shape) - len(axes.maps)
    if leading < 0:
        raise WrongInputError(f"an image of shape {shape} for {len(axes.maps)} maps")
    _check_dtypes(program, image, out)
    _check_devices(image, given, out)
    sampled, adjoint_of = shape[leading:], axes.adjoint_of
    mapped = tuple([one.output_size(n) for one, n in zip(axes.maps, adjoint_of or sampled, strict=True)])  # or raises
    if adjoint_of and mapped != sampled:
        raise WrongInputError(f"maps from {adjoint_of} lead to {mapped}, but their adjoint is given {sampled}")
    out_shape = shape[:leading] + (adjoint_of or mapped)
    out = _output(program, image, out_shape, out)
    return CallRecord(program, image, out, operands=operands.describe(program, out_shape, leading - 1, given))


def _warp_record(
    program: Program, image: Facts, coordinates: Facts, given: Sequence[Facts], out: Facts | None
) -> CallRecord:
    sampler = program.sampler
    assert isinstance(sampler, Warp), "axis maps have records of their own"
    out_shape = _warped_shape(sampler, image, coordinates)
    _check_dtypes(program, image, out)
    _check_devices(image, [coordinates, *given], out)
    _check_coordinates(program.sampled, coordinates.dtype, sampler.mode)
    _check_fields(coordinates, given[len(given) - operands.fields_of(sampler) :])
    if len(sampler.fill) > 1 and len(sampler.fill) != out_shape[1]:
        raise WrongInputError(
            f"a fill of {len(sampler.fill)} numbers for {out_shape[1]} channels; give one, or as many"
        )
    out = _output(program, image, out_shape, out)
    return CallRecord(program, image, out, coordinates, operands.describe(program, out_shape, 1, given))


def _output(program: Program, image: Facts, shape: Sizes, given: Facts | None) -> Facts:
    """Where the output lies; of a given one, the check that it is the one that is written."""
    if given is None:
        return Facts(program.target, shape, output_strides(program, image, shape), image.device)
    if tuple(given.shape) != shape:
        raise WrongInputError(f"an image of {tuple(image.shape)} leads to {shape}; given is {tuple(given.shape)}")
    return given._replace(shape=shape)  # a tuple, which new outputs are allocated by, and no torch.Size


def _warped_shape(sampler: Warp, image: Facts, coordinates: Facts) -> Sizes:
    """Of a warp's output. Also the check that keeps kernels inside their buffers."""
    shape = image.shape
    batch, axes = (*shape, 0)[0], len(shape) - 2
    out: Sizes = sampler.size if sampler.source != "grid" else coordinates.shape[1:-1]
    needed: Sizes = (batch, *out, axes)
    if sampler.formula is not None:
        needed = (batch, sampler.formula.entries)
    elif sampler.source == "affine":
        needed = (batch, axes, axes + 1)
    empty = 0 in shape[2:] and 0 not in out
    if coordinates.shape != needed or len(out) != axes or empty or axes not in WARPED_AXES[sampler.mode]:
        raise WrongInputError(
            f"a {sampler.mode} warp of an image of shape {tuple(shape)} by a {sampler.source} of shape "
            f"{tuple(coordinates.shape)} to size {tuple(out)}; a grid is (batch, out..., axes), a matrix (batch, axes, "
            "axes + 1), a formula's entries (batch, count), for 2 or 3 axes (bicubic: 2) that are not empty"
        )
    return (*shape[:2], *map(int, out))


def _check_dtypes(program: Program, image: Facts, out: Facts | None) -> None:
    target = program.target if out is None else out.dtype
    if image.dtype != program.source or target != program.target:
        raise WrongInputError(
            f"an image of {image.dtype} of shape {tuple(image.shape)} to {target}; the program was made for "
            f"{program.source} to {program.target}"
        )


def _check_devices(image: Facts, given: Sequence[Facts], out: Facts | None) -> None:
    for one in given if out is None else (*given, out):
        if one.device != image.device:
            raise WrongInputError(
                f"a tensor on {one.device} with an image on {image.device}; all must be on one device: move it with .to"
            )


def _check_coordinates(sampled: torch.dtype, coordinates: torch.dtype, mode: str) -> None:
    """Positions are found in the dtype values are summed in, float32 for halves; bytes and moved values take any."""
    floats = (torch.float32, torch.float64)
    if sampled in HALF:
        allowed: tuple[torch.dtype, ...] = (sampled, torch.float32)
    elif sampled.is_floating_point:
        allowed = (sampled,)
    else:
        allowed = floats
    if coordinates not in allowed and not (mode == "nearest" and coordinates in floats):
        raise WrongInputError(
            f"a {mode} warp of {sampled} pixels by {coordinates} coordinates; they can be "
            f"{' or '.join(map(str, allowed))}: convert them"
        )


def _check_fields(coordinates: Facts, fields: Sequence[Facts]) -> None:
    for one in fields:
        if one.dtype != coordinates.dtype:
            raise WrongInputError(
                f"a field of {one.dtype} with entries of {coordinates.dtype}; a formula has one dtype: convert it"
            )


def _check_that_it_can_be_allocated(out: Facts) -> None:
    """Before any work; what is small is not tried."""
    count = _bytes_of(out)
    if count >= 2**63:
        raise WrongSizeError(
            f"an output of shape {out.shape} of {out.dtype}; no memory has so many bytes: give a smaller size"
        )
    if count >= _LARGE:
        _empty(out)  # torch says what is missing, as in eager


_LARGE = 2**30


def _bytes_of(out: Facts) -> int:
    return out.elements * out.dtype.itemsize


def _is_short(record: CallRecord, wing: devices.Wing) -> bool:
    """Whether no axis that is mapped is longer than a kernel's, before or after."""
    first = len(record.out.shape) - record.program.axes(len(record.out.shape))
    longest = max(*record.image.shape[first:], *record.out.shape[first:])
    return longest <= wing.longest_runs or (longest <= wing.longest_axis and not moves_runs(record.program))


def _is_near(image: Facts, most: int) -> bool:
    """Whether a plane of the image extends over no more elements than kernels of warps count."""
    steps = zip(image.shape[2:], image.strides[2:], strict=True)
    return sum([(n - 1) * stride for n, stride in steps]) + image.shape[1] <= most


# ---- without a kernel


def _bound_to_nothing(out: Facts) -> BoundCall:
    """An output without elements."""
    return BoundCall(out, lambda *inputs: _empty(out), lambda *tensors: None)


def _bound_to_plain_torch(record: CallRecord) -> BoundCall:
    def into(out: Tensor, image: Tensor, *others: Tensor) -> None:
        result = plain_torch.run(record.program, _as_bound(image, record.image), *others)
        if record.patchwork:
            record.patchwork.write(result, out, record.out)
        else:
            _as_bound(out, record.out).copy_(result)

    def fresh(image: Tensor, *others: Tensor) -> Tensor:
        if record.patchwork:
            into(out := _empty(record.written), image, *others)
            return out
        inputs = (_as_bound(image, record.image), *others)
        result = plain_torch.run(record.program, *inputs)
        return result if _is_made_for(record.out, result, inputs) else _empty(record.out).copy_(result)

    return BoundCall(record.written, fresh, into, by_torch=True)


def _as_bound(given: Tensor, known: Facts) -> Tensor:
    """What lies at an address, which is all that kernels ask for: pipelines give images without their batch, and memory
    that is no tensor's."""
    if isinstance(given, Tensor):
        return given if given.shape == known.shape else given.as_strided(known.shape, known.strides)
    last = sum((n - 1) * stride for n, stride in zip(known.shape, known.strides, strict=True))
    memory = (ctypes.c_char * ((last + 1) * known.dtype.itemsize)).from_address(given.data_ptr())
    return torch.frombuffer(memory, dtype=known.dtype).as_strided(known.shape, known.strides)


def _is_made_for(out: Facts, result: Tensor, inputs: Sequence[Tensor]) -> bool:
    """Whether a result lies as the output should, and is no view, of an input or of something larger."""
    storage = result.untyped_storage()
    of_its_own = all(storage.data_ptr() != one.untyped_storage().data_ptr() for one in inputs)
    return of_its_own and storage.nbytes() == out.elements * out.dtype.itemsize and result.stride() == out.strides


def _tried_again(attempt: Callable[[], Result]) -> Callable[[], Result | None]:
    """What to call now; None until an attempt succeeds. Callers keep what they are given for good, so this is what
    tries again; what is not worth another try, and how soon, the wing knows."""
    made: list[Result] = []
    next_try = time.monotonic() + RETRY_SECONDS

    def latest() -> Result | None:
        nonlocal next_try
        if made:
            return made[0]
        if time.monotonic() >= next_try:
            try:
                made.append(attempt())
                return made[0]
            except NOT_BUILT as error:
                _warn_once(error)
            next_try = time.monotonic() + RETRY_SECONDS
        return None

    return latest


def _empty(out: Facts) -> Tensor:
    return torch.empty_strided(out.shape, out.strides, dtype=out.dtype, device=out.device)


_warned: set[str] = set()


def _warn_once(error: Exception) -> None:
    text = f"Polyphase runs on plain PyTorch operations, correct but slow: {error}"
    if text not in _warned:
        _warned.add(text)
        warn(text, NoKernelsWarning)
