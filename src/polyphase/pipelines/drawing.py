"""Random numbers made in C++ from the state of torch's generator, where they are what torch and torchvision would draw.

Nothing is taken for granted. Each kind of draw is compared with torch's when a process first asks for it; and of each
of torchvision's transforms the first draws are its own, with which ours are compared. What differs stays torch's.
"""

from __future__ import annotations

import copy
import ctypes
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import torch

from polyphase import torch_private
from polyphase.calls import devices
from polyphase.errors import PolyphaseError
from polyphase.pipelines import draws as table
from polyphase.pipelines.draws import Draw, Draws, all_by_torch, packed
from polyphase.torch_private import (
    MANY_EXP,
    are_functorch_transforms_active,
    len_torch_dispatch_stack,
    library_of_torch,
)

#: Of a generator, and the height and width of an image: its numbers; None, and nothing drawn, where Python has to.
Drawer: TypeAlias = Callable[[torch.Generator, int, int], "tuple[float, ...] | None"]

#: So many draws of a transform of torchvision are compared with ours before ours are taken.
_COMPARED = 2
#: Bits of how torch rounds.
_FUSED, _END_STAYS = 1, 2
#: Other threads that draw at the same time make comparisons fail.
_MOST_FAILED = 3


def is_usual() -> bool:
    """Whether torch's functions, called without a generator, a device and a dtype, draw float32 from the CPU's
    generator, and nobody watches."""
    return (
        torch.get_default_dtype() is torch.float32
        and not torch_private.len_torch_function_stack()  # a default device is a mode, too
        and not len_torch_dispatch_stack()
        and are_functorch_transforms_active is not None
        and not are_functorch_transforms_active()
        and torch_private.default_device() == "cpu"
    )


def numbers(drawer: Drawer | None, draws: Draws, height: int, width: int) -> Iterator[float]:
    """What is drawn for an image of a size, from the generator that torch uses unasked."""
    if drawer is not None and is_usual():
        found = drawer(torch.default_generator, height, width)
        if found is not None:
            return iter(found)
    return all_by_torch(draws, height, width)


def drawer_of(draws: Draws) -> Drawer | None:
    """None where C++ cannot draw them, or is not known to draw as torch does."""
    return _drawer(draws) if draws and all(map(_is_as_torch, _kinds(draws))) else None


class Known:
    """A transform of torchvision whose draws are said to be a table's: its `params` of an image."""

    def __init__(self, ours: Any, itself: Any) -> None:
        self._ours, self._draws = ours, ours.draws()
        names = [name for name in ours.__dataclass_fields__ if hasattr(itself, name)]
        #: itself, a name, what it had under that at first, and so on.
        self.unchanged = tuple(one for name in names for one in (itself, name, copy.deepcopy(getattr(itself, name))))
        self._agreed = self._failed = 0

    @functools.cached_property
    def drawer(self) -> Drawer | None:
        return drawer_of(self._draws)

    def is_as_it_was(self) -> bool:
        """Whether nobody has given it other arguments."""
        parts = iter(self.unchanged)
        try:
            return all(getattr(itself, name) == value for itself, name, value in zip(parts, parts, parts, strict=True))
        except Exception:  # of values that cannot be compared
            return False

    @property
    def is_trusted(self) -> bool:
        return self._agreed >= _COMPARED and self.is_as_it_was()

    def params(self, plainly: Callable[[], Any], height: int, width: int) -> Any:
        """`plainly`: draws them as torchvision does."""
        if self._failed >= _MOST_FAILED or not is_usual() or self.drawer is None or not self.is_as_it_was():
            return plainly()
        if self._agreed < _COMPARED:
            return self._compared(plainly, height, width)
        found = self.drawer(torch.default_generator, height, width)
        return plainly() if found is None else self._ours.params(iter(found), height, width)

    def _compared(self, plainly: Callable[[], Any], height: int, width: int) -> Any:
        own = torch.Generator()
        own.set_state(torch.default_generator.get_state())
        params = plainly()
        assert self.drawer is not None, "it was asked for"
        after = torch.default_generator.get_state()
        found = self.drawer(own, height, width)
        agrees = found is not None and torch.equal(own.get_state(), after)
        if agrees and _are_equal(params, self._ours.params(iter(found or ()), height, width)):
            self._agreed += 1
        else:
            self._failed += 1
        return params


def _are_equal(params: Any, ours: Any) -> bool:
    """Compares what both have: v2's functions return more than v1's."""
    if params is None or ours is None:
        return params is ours
    return all(_frozen(params[name]) == _frozen(ours[name]) for name in params if name in ours)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# ---- whether C++ draws as torch does


def _kinds(draws: Iterable[Draw]) -> Iterator[Any]:
    for one in draws:
        yield type(one)
        for others in (getattr(one, "then", ()), *getattr(one, "branches", ())):
            yield from _kinds(others)


#: Of each kind, draws by which it is compared: so many that another rounding shows.
_EXAMPLES: dict[type[Draw], Draws] = {
    table.Uniform: (*[table.Uniform(-0.1, 0.7)] * 24, table.Uniform(0.08, 1.0), *[table.Uniform(1, 1 + 2**-23)] * 8),
    table.Integer: (*[table.Integer(-7, 1000)] * 4, table.Integer(0, 2**27), table.Integer(3, 4)),
    table.Normal: (*[table.Normal(0.5, 0.3)] * 15,),
    table.Chance: (*[table.Chance(0.3), table.Chance(0.6, (table.Uniform(0, 1),), with_p=True)] * 8,),
    table.Fork: (*[table.Fork(((), (table.Uniform(0, 1),), (table.Integer(0, 9), table.Integer(2, 3))))] * 8,),
    table.Order: (table.Order(1), table.Order(4), table.Order(19)),
    table.Choice: (*[table.Choice((0.2, 0.5, 0.0, 0.3))] * 6, table.Choice((1.0,))),
    table.ResizedBox: (*[table.ResizedBox((0.08, 1.0), (3 / 4, 4 / 3))] * 8, table.ResizedBox((3, 4), (0.1, 0.2))),
    table.ErasedBox: (*[table.ErasedBox((0.02, 0.33), (0.3, 3.3))] * 8, table.ErasedBox((3, 4), (0.1, 0.2))),
    table.Place: (table.Place((9, 9), (1, 2, 3, 4)), table.Place((90, 200), may_grow=True, both=True)),
    table.Shift: (*[table.Shift((0.1, 0.3))] * 4,),
    table.OneOf: (*[table.OneOf((480, 512, 544, 576, 608))] * 8, table.OneOf((0.5,))),
    table.JitteredSize: (
        *[table.JitteredSize((1024, 1024), (0.1, 2.0)), table.JitteredSize((64, 90), (0.3, 0.7))] * 8,
    ),
    table.Canvas: (*[table.Canvas((1.0, 4.0)), table.Canvas((1.3, 1.9))] * 8,),
    table.Corners: (*[table.Corners(0.6)] * 4,),
}


@functools.cache
def _is_as_torch(kind: Any) -> bool:
    """Whether C++ draws such numbers as torch does, and leaves the generator as torch would."""
    examples = _EXAMPLES.get(kind, ())
    drawer = _drawer(examples) if examples else None
    if drawer is None:
        return False
    theirs, ours = torch.Generator(), torch.Generator()
    for seed, (height, width) in enumerate(((375, 500), (61, 40))):
        theirs.manual_seed(seed)
        expected = tuple(all_by_torch(examples, height, width, theirs))
        ours.manual_seed(seed)
        if drawer(ours, height, width) != expected or not torch.equal(ours.get_state(), theirs.get_state()):
            return False
    return True


def _drawer(draws: Draws) -> Drawer | None:
    cpu = torch.device("cpu")
    make = devices.wing_of(cpu).drawer if devices.has_kernels("cpu") else None
    try:
        return None if make is None else make(packed(draws), *how_torch_draws())
    except PolyphaseError:  # nothing can be built
        return None


def how_torch_draws() -> tuple[int, int]:
    """Tells by which function it computes exp, and how it rounds numbers of a range (bits of `draws/generator.h`)."""
    return _address_of_exp(), _rounding()


@functools.cache
def _rounding() -> int:
    """Found by numbers in which it shows: of 64, in a range that holds two, some are rounded up to its end."""
    generator, unit, least, most = torch.Generator(), torch.empty(64), torch.tensor(-0.1), torch.tensor(0.7)
    drawn = torch.empty(64).uniform_(-0.1, 0.7, generator=generator.manual_seed(1))
    unit.uniform_(generator=generator.manual_seed(1))
    is_fused = not torch.equal(unit * (most - least) + least, drawn)
    end_stays = bool((torch.empty(64).uniform_(1, 1 + 2**-23, generator=generator) > 1).any())
    return is_fused * _FUSED + end_stays * _END_STAYS


@functools.cache
def _address_of_exp() -> int:
    """Finds MKL's function, by which `torch.exp` computes on x86; 0 where it does not: other functions, and the C
    library's too, round one value of a hundred otherwise."""
    try:
        many = getattr(ctypes.CDLL(library_of_torch), MANY_EXP)
    except (OSError, AttributeError):
        return 0
    of = torch.linspace(-3, 3, 8192)
    made = torch.empty_like(of)
    many.argtypes, many.restype = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64), None
    many(of.numel(), of.data_ptr(), made.data_ptr(), 0x140102)  # as `draws/walk.h` calls it
    return ctypes.cast(many, ctypes.c_void_p).value or 0 if torch.equal(made, of.exp()) else 0
