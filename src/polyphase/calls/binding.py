"""From a program, and the facts of the tensors it is given, to a call that can be made again and again.

Records say what is asked for, and are checked as they are made (`checking.py`). What no kernel can be had for is done
by the plain twin.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from polyphase.calls import again, devices, filled, plain_torch
from polyphase.calls.bound import BoundCall, BoundGradients, Gradients, Needed
from polyphase.errors import (
    BuildFailedError,
    CompilerMissingError,
    DriverError,
    NoKernelError,
    NoKernelsWarning,
    WrongSizeError,
    warn,
)
from polyphase.records import operands
from polyphase.records.checking import gradient_record, record_of
from polyphase.records.facts import Facts, Sizes, elements, facts
from polyphase.records.layout import BY_ROWS, keeps_strides
from polyphase.records.patchwork import Patchwork
from polyphase.records.recipes import Recipe
from polyphase.records.records import AnySize, CallRecord
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import ORDERS, Axes, Program, differ_in_sizes, maps_program, moves_runs, warp_program
from polyphase.sampling.warps import Warp

Result = TypeVar("Result")

NOT_BUILT = (CompilerMissingError, BuildFailedError, DriverError)
RETRY_SECONDS = 1.0


def bind(
    program: Program,
    inputs: Sequence[Facts],
    out: Facts | None = None,
    patchwork: Patchwork | None = None,
    batched: bool = False,
) -> BoundCall:
    """`out`: where the output's place in memory is given, else it lies as the program says. `patchwork`: it is cut
    into blocks; of maps, on a device whose wing `makes_patchwork`. `batched`: to be launched with others."""
    record = record_of(program, inputs, out)._replace(patchwork=patchwork)
    if patchwork is not None:
        patchwork.check(record.out)
    return bind_record(record, batched)


def bind_record(record: CallRecord, batched: bool = False) -> BoundCall:
    """Binds a record that was already checked."""
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
        warn_once(error)
        kernel, twin = _tried_again(attempt), _bound_to_plain_torch(record)
        return BoundCall(
            record.written,
            lambda *inputs: (kernel() or twin).fresh(*inputs),
            lambda *all: (kernel() or twin).into(*all),
            kernel=kernel,
        )


def for_any_size(
    program: Program, inputs: Sequence[Facts], otherwise: Callable[..., Tensor], given: int = 0
) -> Callable[..., Tensor] | None:
    """A program for inputs of any sizes and strides, of which only ranks, dtypes and the device are as these'. What no
    kernel takes, mistakes among it, is `otherwise`'s. None where it is bound to one size at a time. `given`: sizes that
    every call is given before the tensors, for those of the maps' steps, of which each has one; 0 where they are the
    program's."""
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
        given=given,
    )
    try:
        return wing.bind_any_size(record, rules, otherwise)
    except (NoKernelError, *NOT_BUILT):
        return None


def for_given_sizes(
    program_of: Callable[[tuple[int, ...]], Program | None],
    sizes: tuple[int, ...],
    inputs: Sequence[Facts],
    otherwise: Callable[..., Tensor],
) -> Callable[..., Tensor] | None:
    """Does as `for_any_size` where axes are resized to `sizes`, or likewise to others. None where a program has more of
    sizes than one in each map, as another's shows."""
    others = tuple([one + 1 for one in sizes])
    program, other = program_of(sizes), program_of(others)
    if program is None or other is None or not differ_in_sizes(program, sizes, other, others):
        return None
    return for_any_size(program, inputs, otherwise, len(sizes))


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
        """Gives None where a device binds one program at a time, or nothing can be built."""
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

    def teach(self, sized: devices.Sized, number: int, drawn: bytes, given: devices.SizedGiven) -> bool:
        """Whether `sized` can make such programs by templates, of which this is the number. `drawn`: numbers, for the
        image that this was made of."""
        return self._wing.sized is not None and sized.teach(number, self._record, drawn, given)

    def takes(self, sizes: Sequence[Any], channels: int) -> bool:
        """Whether a kernel does, or `bind` decides what is to be done. `sizes`: of an image's rows and columns, before
        and after its steps."""
        *_, height, width = sizes
        return all(n <= self._longest for n in sizes) and channels * height * width < self._most

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


#: Bound calls, found again by the program and the facts of its tensors. Each keeps its tables. Callers that can tell a
#: call by less keep it themselves.
bound = functools.lru_cache(maxsize=256)(bind)


@functools.lru_cache(maxsize=256)
def bound_gradients(
    sampler: Warp, gradient: Facts, image: Facts, coordinates: Facts, needed: Needed, fields: tuple[Facts, ...] = ()
) -> BoundGradients:
    """Gradients of the image and of the coordinates, contiguous as eager's; of a formula, also those of its fields."""
    record = gradient_record(sampler, gradient, image, coordinates, needed, fields)
    if sampler.fill:
        return functools.partial(filled.gradients, sampler, needed, warp, warp_gradients)
    wing = devices.wing_of(image.device)
    dense = elements(image.shape[1:])  # as the image's gradient is

    def plain(gradient: Tensor, image: Tensor, coordinates: Tensor, *fields: Tensor) -> Gradients:
        return plain_torch.warp_gradients(gradient, image, coordinates, sampler, needed, fields)

    if not _is_near(image, wing.most_warped) or dense > wing.most_warped:
        return plain
    attempt = functools.partial(wing.bind_gradients, record)
    try:
        return attempt()
    except NoKernelError:
        return plain
    except NOT_BUILT as error:
        warn_once(error)
        kernel = _tried_again(attempt)
        return lambda *tensors: (kernel() or plain)(*tensors)


def forget() -> None:
    """Forgets what was bound, so that what is called next is bound anew."""
    bound.cache_clear()
    bound_gradients.cache_clear()
    again.forget()
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


# ---- what can be bound


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
    if known.strides[-2] == BY_ROWS:
        return _gathered(given.data_ptr(), known)
    last = sum((n - 1) * stride for n, stride in zip(known.shape, known.strides, strict=True))
    memory = (ctypes.c_char * ((last + 1) * known.dtype.itemsize)).from_address(given.data_ptr())
    return torch.frombuffer(memory, dtype=known.dtype).as_strided(known.shape, known.strides)


def _gathered(address: int, known: Facts) -> Tensor:
    """A picture (channels, height, width) of bytes that is a list of where its rows begin, as a tensor."""
    channels, height, width = known.shape
    step = known.strides[-1]
    made = torch.empty(height, width, step, dtype=known.dtype)
    for y, row in enumerate((ctypes.c_void_p * height).from_address(address)):
        ctypes.memmove(made[y].data_ptr(), row, (width - 1) * step + channels)
    return made.permute(2, 0, 1)[:channels]


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
                warn_once(error)
            next_try = time.monotonic() + RETRY_SECONDS
        return None

    return latest


def _empty(out: Facts) -> Tensor:
    return torch.empty_strided(out.shape, out.strides, dtype=out.dtype, device=out.device)


_warned: set[str] = set()


def warn_once(error: Exception) -> None:
    text = f"Polyphase runs on plain PyTorch operations, correct but slow: {error}"
    if text not in _warned:
        _warned.add(text)
        warn(text, NoKernelsWarning)
