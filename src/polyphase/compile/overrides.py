"""ATen's kernel of one operator, replaced in torch's dispatcher: ours where we take the call, else its own.

The replacement is Python's. Where an operator is called again and again, one of C++ is put above it
(`launch/dispatched.h`), which makes calls that it knows without Python, and brings all others here.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from polyphase import torch_private
from polyphase.arguments.warping import COORDINATES
from polyphase.calls import binding, devices, dispatched
from polyphase.calls.again import GivenSizes, Latest, are_given_sizes, forgets, never
from polyphase.calls.bound import BoundCall, Kept
from polyphase.calls.rules import rules_of
from polyphase.calls.slower import question
from polyphase.compile.checked import check
from polyphase.compile.recognise import ATEN_OPERATORS, AtenCall, Sampling, WarpOf
from polyphase.errors import PolyphaseError, WrongSettingError
from polyphase.records.facts import Facts, facts
from polyphase.records.layout import gradient_order, is_channels_last, order_on
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Program, maps_program, warp_program
from polyphase.sampling.steps import Pad, Step
from polyphase.sampling.warps import MODES, PADDINGS, Warp
from polyphase.torch_private import OpOverload
from polyphase.torch_versions import samples

aten = torch.ops.aten

#: As many as take about as long as to take an override away and put it back.
MOST_CALLS_OUTSIDE = 8

#: What torch says where there was a kernel. Compiled with the package, as `warnings` does it: `re` keeps it.
_OVERRIDING = re.compile(r"(?s).*Overriding a previously registered kernel", re.IGNORECASE).pattern


class Mode(Enum):
    OFF = 0
    ON = 1
    CHECKED = 2  # and every result is compared with that of ATen's own kernel


class Taken(NamedTuple):
    """A call that is ours: what to call with its tensors, whether it only moves values, what it asks for where that is
    the same for tensors of any size, and what makes it without Python."""

    run: Callable[..., Any]
    moves: bool
    program: Program | None = None
    direct: dispatched.DirectCall | None = None


#: What becomes of a call; None where ATen's own kernel is to do it. The arguments have no data.
Take = Callable[[OpOverload, torch.device, Sequence[Any]], Taken | None]


class Switch(Protocol):
    """What overrides ask: the mode they are in, at every call."""

    mode: Mode

    def called_while_off(self, override: Override) -> None: ...

    def called_again(self, override: Override) -> None: ...


def new_overrides(switch: Switch) -> list[Override]:
    """Makes the overrides of all operators and devices. Made before anything is overridden: each keeps ATen's own
    kernel.
    """
    torch_private.schema_of  # noqa: B018 an error here and now, where torch has no such thing
    built_for = ("cpu",) if torch.version.cuda is None else ("cpu", "cuda")
    keys = [device.upper() for device in devices.MODULES if device in built_for and devices.has_kernels(device)]
    found = [Override(op, key, take, switch) for key in keys for op, take in _TAKES.items()]
    if "CUDA" in keys:
        found += [Override(op, "CUDA", take, switch) for op, take in _OF_CUDNN.items()]
    return found


@contextmanager
def unwarned() -> Iterator[None]:
    """Silences torch, which says of kernels that are put that there were some."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _OVERRIDING)
        yield


class Override:
    """What stands in the place of an operator's kernel, under a dispatch key."""

    def __init__(self, op: OpOverload, key: str, take: Take, switch: Switch) -> None:
        self.operator = str(op)
        self._op, self._key, self._take, self._switch = op, key, take, switch
        self._dispatch_key = getattr(torch_private.DispatchKey, key)
        keys = torch_private.DispatchKeySet(self._dispatch_key)
        self._own = functools.partial(self._kernel().call_boxed, keys)
        self._for_any_size: Kept[tuple[Any, ...], Taken] = Kept()
        self._for_one_size: Kept[tuple[Any, ...], Taken] = Kept()
        self._given_sizes: Kept[tuple[Any, ...], Taken | None] = Kept()
        self._latest = Latest()
        forgets(self)
        self._library: torch.library.Library | None = None
        self._in_c: _InC | None = None
        self._may_be_in_c = True
        self._kept: list[Any] = []
        self._calls_outside = 0

    def forget(self) -> None:
        for calls in (self._for_any_size, self._for_one_size, self._given_sizes):
            calls.clear()
        self.__dict__.pop("_taken", None)  # the property is made anew

    def put(self) -> None:
        self._calls_outside = 0
        self._library = torch.library.Library("aten", "IMPL")
        self._library.impl(self._op, self._call, self._key, allow_override=True)
        self._keep()
        if self._in_c is not None:
            self._put_in_c(self._in_c)

    def put_in_c(self) -> dispatched.Kernels | None:
        """Puts a kernel of C++ above what was put: the same, but for calls that are known. None where there is no such
        kernel."""
        self._may_be_in_c = False
        signature = dispatched.signature_of(self._op)
        kernels = devices.wing_of(torch.device(self._key.lower())).dispatched_kernels() if signature else None
        if signature is None or kernels is None:
            return None
        name = torch_private.schema_of(self._op).name.split("::")
        self._in_c = _InC(kernels, kernels.operator(*name, self._key, signature, self._call, self._direct))
        self._put_in_c(self._in_c)
        return kernels

    def _put_in_c(self, one: _InC) -> None:
        one.kernels.put(one.place)
        self._keep()

    def _keep(self) -> None:
        """What was put may be running when it is taken away, and when it is put again."""
        self._kept = [*self._kept[-3:], self._kernel()]

    def _kernel(self) -> Any:
        """What is in the dispatcher now. Torch takes longer to find a key by its name than a kernel."""
        return torch.library.get_kernel(self._op, self._dispatch_key)

    def take_away(self) -> None:
        if self._in_c is not None:
            self._in_c.kernels.take_away(self._in_c.place)
        self._library = None  # which the other goes with

    def is_in_the_way(self) -> bool:
        """Whether the operator was called once more than is worth it, while nobody wanted the override."""
        self._calls_outside += 1
        return self._calls_outside >= MOST_CALLS_OUTSIDE

    @functools.cached_property
    def _is_slower(self) -> Callable[..., bool] | None:
        """Whether ATen's own kernel takes less time for a call."""
        table = devices.wing_of(torch.device(self._key.lower())).slower
        return question(table, torch_private.schema_of(self._op).name.removeprefix("aten::"))

    def _call(self, *args: Any) -> Any:
        mode = self._switch.mode
        if mode is not Mode.OFF and self._is_slower is not None and self._is_slower(*args):
            return self._own(*args)
        if mode is Mode.ON:
            result = self._latest.again(*args)
            if result is not None:
                return result
        if mode is Mode.OFF:
            self._switch.called_while_off(self)
        taken = None if mode is Mode.OFF else self._find(args)
        result = None if taken is None else taken.run(*[one for one in args if isinstance(one, Tensor)])
        if taken is None or result is None:
            return self._own(*args)
        if mode is Mode.CHECKED:
            check(self._op, args, result, self._own, taken.moves)
        return result

    def _find(self, args: tuple[Any, ...]) -> Taken | None:
        """What is bound to any size, or to the sizes of these tensors."""
        kinds = _kinds(args)
        taken = self._for_any_size.get(kinds) or self._by_sizes(args, kinds)
        any_size, known = taken is not None, tuple[Any, ...]()
        if taken is None:
            known = tuple([_key(one) for one in args])
            taken = self._for_one_size.get(known) or self._taken(*known)
            if taken is None:
                return None
        tensors = tuple([one for one in args if isinstance(one, Tensor)])
        given = tuple([list(one) if type(one) is list else one for one in args[len(tensors) :]])
        if taken.program is not None:
            otherwise = functools.partial(self._once, given)
            run = binding.for_any_size(taken.program, tuple(map(facts, tensors)), otherwise)
            if run is not None:
                taken = self._for_any_size[kinds] = Taken(run, taken.moves)
                any_size = True
            else:
                self._for_one_size[known] = taken._replace(program=None)
        place = (_place_of_sizes(args) or 0) - len(tensors)
        self._latest.follow(taken.run, tensors, given, any_size, place)
        if self._may_be_in_c and self._latest.again is not never:
            self._switch.called_again(self)
        return taken

    def _by_sizes(self, args: tuple[Any, ...], kinds: tuple[Any, ...]) -> Taken | None:
        """What is bound for any sizes among the arguments; None where nothing is."""
        place = _place_of_sizes(args)
        if place is None:
            return None
        name = (*kinds[:place], *kinds[place + 1 :])
        if name not in self._given_sizes:
            self._given_sizes[name] = self._bound_to_given_sizes(args, place)
        taken = self._given_sizes[name]
        if taken is None:
            return None
        taken = self._for_any_size[kinds] = Taken(GivenSizes(taken.run, tuple(args[place])), taken.moves)
        return taken

    def _bound_to_given_sizes(self, args: tuple[Any, ...], place: int) -> Taken | None:
        (image, *before), after, sizes = args[:place], args[place + 1 :], tuple(args[place])

        def taken_for(sizes: tuple[int, ...]) -> Taken | None:
            return self._taken(*[_key(one) for one in (image, *before, list(sizes), *after)])

        def program_of(sizes: tuple[int, ...]) -> Program | None:
            found = taken_for(sizes)
            return found and found.program

        def otherwise(*given: Any) -> Any:
            return self._once((*before, list(given[:-1]), *after), given[-1])

        run, taken = binding.for_given_sizes(program_of, sizes, (facts(image),), otherwise), taken_for(sizes)
        return None if run is None or taken is None else Taken(run, taken.moves)

    def _direct(self, *args: Any) -> dispatched.DirectCall | None:
        """Makes a direct call of one that came here a second time."""
        if self._switch.mode is not Mode.ON or (self._is_slower is not None and self._is_slower(*args)):
            return None
        taken = self._for_any_size.get(_kinds(args))
        if taken is not None:
            tensors = [one for one in args if isinstance(one, Tensor)]
            bound_of, run = devices.wing_of(tensors[0].device).bound_of, taken.run
            run, sizes = (run.call, run.sizes) if isinstance(run, GivenSizes) else (run, ())
            return None if bound_of is None else bound_of(run, sizes, *tensors)
        taken = self._taken(*[_key(one) for one in args])
        return None if taken is None else taken.direct

    def _once(self, given: tuple[Any, ...], *tensors: Tensor) -> Any:
        """Makes a call of sizes that are not for what is bound to any size."""
        taken = self._taken(*[_key(one) for one in (*tensors, *given)])
        result = None if taken is None else taken.run(*tensors)
        return self._own(*tensors, *given) if result is None else result

    @functools.cached_property
    def _taken(self) -> Callable[..., Taken | None]:
        """`_bind`, remembered."""
        return functools.lru_cache(maxsize=256)(self._bind)

    def _bind(self, *arguments: Any) -> Taken | None:
        found = {one[3] for one in arguments if type(one) is tuple and one and type(one[0]) is torch.dtype}
        if len(found) > 1:
            return None
        try:
            return self._take(self._op, found.pop(), [_argument(one) for one in arguments])
        except WrongSettingError:
            raise
        except PolyphaseError:
            return None  # ATen's own kernel says what is wrong, in its words


class _InC(NamedTuple):
    """A kernel of a launcher, and its place there."""

    kernels: dispatched.Kernels
    place: int


def _place_of_sizes(args: tuple[Any, ...]) -> int | None:
    """Where the arguments, an image before all others, have a list of sizes and no other."""
    lists = [place for place, one in enumerate(args) if type(one) is list]
    if len(lists) != 1 or sum([isinstance(one, Tensor) for one in args]) != 1 or not isinstance(args[0], Tensor):
        return None
    return lists[0] if are_given_sizes(args[lists[0]]) else None


def _kinds(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a call depends on, but for sizes and strides of tensors."""
    return tuple([(one.dtype, one.ndim, one.device) if isinstance(one, Tensor) else _key(one) for one in args])


def _key(argument: Any) -> Any:
    """What a call depends on, to be remembered by. -0.0 and 0.0, 1 and True are equal, but not the same."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.shape, argument.stride(), argument.device
    if isinstance(argument, list):
        return tuple(argument)
    return argument if argument is None or type(argument) is int else (type(argument), repr(argument), argument)


def _argument(key: Any) -> Any:
    """The argument again; of a tensor, one without data."""
    match key:
        case (torch.dtype() as dtype, shape, strides, _):
            return torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        case (type(), str(), value):
            return value
        case tuple():
            return list(key)
    return key


def _sampled(op: OpOverload, device: torch.device, args: Sequence[Any]) -> Taken | None:
    image, operator = args[0], ATEN_OPERATORS[op]
    if 0 in image.shape or not operator.takes(image.dtype, rules_of(device)):
        return None
    if operator.rank not in (None, image.dim()):
        return None
    sampling: Sampling | None = operator.read(AtenCall(op, args, {}), lambda size: size)
    if sampling is None:
        return None
    if isinstance(sampling, WarpOf):
        if sampling.coordinates.dtype not in COORDINATES[image.dtype]:
            return None
        program = warp_program(image.dtype, sampling.sampler)
        call = binding.bound(program, _on(device, image, sampling.coordinates))
        return None if call.by_torch else Taken(_by_kernel(call), program.moves_only, program, _direct(call, reads=2))
    if any(_leaves_nothing(step, n) for step, n in zip(reversed(sampling.steps), reversed(image.shape), strict=False)):
        return None
    maps = tuple(AxisMap(() if step is None else (step,)) for step in sampling.steps)
    program = maps_program(image.dtype, maps, sampling.adjoint_of, sampling.border)
    if sampling.adjoint_of:
        before = next((one for one in args[1:] if isinstance(one, Tensor)), image)  # resizes have only its sizes
        program = replace(program, order=gradient_order(maps, is_channels_last(before.shape, before.stride())))
    if order := order_on(device, maps, transposed=bool(sampling.adjoint_of)):
        program = replace(program, order=order)
    call = binding.bound(program, _on(device, image))
    if call.by_torch:
        return None
    run = _by_kernel(call)
    if sampling.adjoint_of:
        return Taken(lambda image, *others: run(image), program.moves_only, direct=_direct(call, reads=1))
    return Taken(run, program.moves_only, program, _direct(call, reads=1))


def _by_kernel(call: BoundCall) -> Callable[..., Tensor | None]:
    """Binds a call; None while there is no kernel: ATen's own is quicker than the plain twin, which calls some that are
    replaced.
    """
    kernel = call.kernel
    if kernel is None:
        return call.fresh

    def run(*inputs: Tensor) -> Tensor | None:
        made = kernel()
        return None if made is None else made.fresh(*inputs)

    return run


def _direct(call: BoundCall, reads: int) -> dispatched.DirectCall | None:
    if call.direct is None:
        return None
    return dispatched.DirectCall(call.direct, tuple(call.out.shape), tuple(call.out.strides), reads)


def _sampled_by_cudnn(op: OpOverload, device: torch.device, args: Sequence[Any]) -> Taken | None:
    return _sampled(aten.grid_sampler_2d.default, device, [*args, *_CUDNN])


def _gradients_by_cudnn(op: OpOverload, device: torch.device, args: Sequence[Any]) -> Taken | None:
    image, grid, gradient = args
    taken = _warp_gradients(op, device, [gradient, image, grid, *_CUDNN, (True, True)])
    return taken and Taken(lambda image, grid, gradient: taken.run(gradient, image, grid), moves=False)


def _leaves_nothing(step: Step | None, n: int) -> bool:
    """Where a pad crops all there is, eager has a result or an error by mode."""
    return isinstance(step, Pad) and n + min(step.before, 0) + min(step.after, 0) < 1


def _on(device: torch.device, *tensors: Tensor) -> tuple[Facts, ...]:
    return tuple(facts(one)._replace(device=device) for one in tensors)


def _warp_gradients(op: OpOverload, device: torch.device, args: Sequence[Any]) -> Taken | None:
    gradient, image, grid, mode, padding, align_corners, needed = args
    if image.dtype not in COORDINATES or grid.dtype not in COORDINATES[image.dtype]:
        return None
    if not samples(MODES[mode], image.dim() - 2):
        return None
    sampler = Warp("grid", MODES[mode], PADDINGS[padding], align_corners)
    run = binding.bound_gradients(sampler, *_on(device, gradient, image, grid), (needed[0], needed[1]))
    return Taken(run, moves=False)


_TAKES: dict[OpOverload, Take] = {
    **dict.fromkeys(ATEN_OPERATORS, _sampled),
    **{getattr(aten, f"grid_sampler_{axes}d_backward").default: _warp_gradients for axes in (2, 3)},
}
#: What torch sends to cuDNN, where that can be: bilinear, zeros, corners aligned.
_CUDNN = (MODES.index("bilinear"), PADDINGS.index("zeros"), True)
_OF_CUDNN: dict[OpOverload, Take] = {
    aten.cudnn_grid_sampler.default: _sampled_by_cudnn,
    aten.cudnn_grid_sampler_backward.default: _gradients_by_cudnn,
}
