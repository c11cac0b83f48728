"""The wings: which devices have kernels of ours, and how to reach them.

A wing is the part of the house that knows one device. It is used when a tensor of its device first needs a kernel, so
that `import polyphase` touches no device. Nothing imports from a wing but another wing.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from polyphase import settings
from polyphase.calls import handles  # noqa: F401
from polyphase.calls.slower import Slower
from polyphase.errors import ForkedProcessError
from polyphase.importing import uncollected

# What every wing needs is imported with the package, and not in the first call of a process.
from polyphase.kernels import expressions, tables  # noqa: F401

if TYPE_CHECKING:
    from polyphase.calls.attention import Gradients as AttentionGradients
    from polyphase.calls.bound import BoundCall, BoundGradients
    from polyphase.calls.dispatched import DirectCall, Kernels
    from polyphase.kernels.plans import MapsPlan, WarpPlan
    from polyphase.kernels.tables import TapBytes
    from polyphase.records.facts import Facts
    from polyphase.records.patchwork import Patchwork
    from polyphase.records.recipes import Recipe
    from polyphase.records.records import AnySize, CallRecord, GradientRecord
    from polyphase.sampling.attention import Attention
    from polyphase.sampling.axis_maps import AxisPath

#: Image, output (within a block, where it is cut), how it is cut, the recipes of rows and columns, and whether it is to
#: be launched with others.
BindLike: TypeAlias = "Callable[[Facts, Facts, Patchwork | None, tuple[Recipe, Recipe], bool], BoundCall]"

#: A handle, and what a call reads besides its image.
BatchedCall: TypeAlias = "tuple[Any, tuple[Tensor, ...]]"
#: An output, images and the places of those that are wanted in both, None for all; the places of those that are left.
LaunchSized: TypeAlias = "Callable[[Tensor, tuple[Tensor, ...], tuple[int, ...] | None], tuple[int, ...] | None]"

#: The module of each wing, which has it as `WING`.
MODULES = {"cpu": "polyphase.cpu.wing", "cuda": "polyphase.cuda.wing"}


@dataclass(frozen=True)
class MovingCosts:
    """What the compiler weighs where pixels only move, which Inductor's own loops can do too.

    worth_a_call: elements from which on a loop of Inductor's that loads one by one costs more than a call and a pass.
    vector: elements that lie together, from which on its loop is vectorised. gathers: the bytes of elements, at least,
    that its loops read as quickly where they lie apart as where they are neighbours; 0 if there are none.
    """

    worth_a_call: int
    vector: int
    gathers: int = 0


class Described(NamedTuple):
    """A kernel, as `explain` tells of it. source: a file that has it as it was generated. resources: what it takes of
    its device."""

    plan: MapsPlan | WarpPlan
    source: Path
    resources: str


class BySize(NamedTuple):
    """Images of one kind, to one kind of output, whose steps follow from their sizes: by `templates`, as
    `pipelines/recording.py` writes them, one after the other. launches: of images like others that were launched, None
    where there is none."""

    templates: bytes
    launches: dict[Any, LaunchSized | None]


class Sized(Protocol):
    """Calls for images (channels, height, width) of one kind and of any size, by templates that were learned, which
    draw from torch's generator where they have to. Kinds differ in dtype, device, channels, and the order that results
    lie in.

    call: of an image, or of the sizes, strides and memory of one that is of this kind, what its program makes, or the
    part of the image's memory that the picture is; None where that is not known. many: of a tuple of plain images, of
    pictures, or of tuples of sizes, strides and memory, and what makes a tensor, or None, of the sizes and dtype of a
    result, that tensor with all results; None where one of them is not known, or becomes another size. follow: of a
    height and width what `SizedCalls::follow` says. learn: of a template whether it is followed from then on. Where
    something is None, nothing was drawn.
    """

    call: Callable[..., Tensor | None]
    many: Callable[[tuple[Any, ...], Callable[[tuple[int, ...], torch.dtype], Tensor | None]], Tensor | None]
    follow: Callable[[int, int], tuple[Any, ...] | None]
    learn: Callable[[bytes], bool]

    def teach(self, program: int, record: CallRecord, drawn: bytes, given: SizedGiven) -> bool:
        """A program of the templates, by a record of it and the numbers that were drawn for that. False where its
        numbers do not follow."""


class SizedGiven(NamedTuple):
    """What a program is given: the vectors that it reads; what a picture becomes: a new tensor, a view of the image, or
    the image (0, 1, 2, `Becomes` of `launch/sized_calls.h`); and what makes of sizes, strides and dtype what is written
    to, by its address, None where that is a tensor."""

    vectors: tuple[Tensor, ...]
    becomes: int
    make: Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], Any] | None = None


@dataclass(frozen=True)
class Wing:
    """What a device brings. What may be None, a device may do without."""

    device: str
    #: How many vectors, and how many tensors, a kernel can read.
    most_operands: int
    #: The longest axis that is mapped, before and after.
    longest_axis: int
    #: The longest where whole runs of pixels are only moved: torch needs no tables for them.
    longest_runs: int
    #: Over how many elements the planes of a warped image may extend.
    most_warped: int
    #: Whether a child of a process that used the device can use it.
    survives_fork: bool
    costs: MovingCosts
    #: What kernels are built for.
    architecture: Callable[[], str]
    bind: Callable[[CallRecord], BoundCall]
    bind_gradients: Callable[[GradientRecord], BoundGradients]
    #: Attention at sampled places: output, value, places, weights.
    attend: Callable[[Tensor, Tensor, Tensor, Tensor, Attention], None]
    #: The output's gradient, value, places, weights; and whether the value's gradient is asked for.
    attend_gradients: Callable[[Tensor, Tensor, Tensor, Tensor, Attention, bool], AttentionGradients]
    #: Binds a record, for all other sizes too; the last argument is called for those that are not for kernels.
    bind_any_size: Callable[[CallRecord, AnySize, Callable[..., Any]], Callable[..., Any]] | None
    #: `again.plainly` in C; its result is None where nothing can be built.
    again: Callable[[], Callable[..., Callable[..., Any]] | None]
    #: Kernels of operators, for torch's dispatcher; None where nothing can be built.
    dispatched_kernels: Callable[[], Kernels | None]
    #: Forgets what was bound.
    forget: Callable[[], None]
    #: Makes tables of taps, as kernels read them.
    tap_bytes: Callable[..., TapBytes]
    #: Tells of a record's kernel what `explain` says.
    described: Callable[[CallRecord], Described]
    #: While it is entered, what is bound runs the kernel of a source file.
    built_from: Callable[[Path], AbstractContextManager[None]]
    #: Numbers for `polyphase.stats()`.
    stats: Callable[[], dict[str, int]]
    #: Takes what `bind_any_size` made, the sizes that it is given and tensors; tells what it calls for these.
    bound_of: Callable[..., DirectCall | None] | None = None
    #: Makes many calls in any order, each a tuple of a handle and tensors: output, image, coordinates, operands.
    launch_all: Callable[..., None] | None = None
    #: Whether kernels of maps write outputs that are cut into blocks.
    makes_patchwork: bool = False
    #: Makes of a record of maps what binds programs that differ in the numbers of their steps alone.
    bind_like: Callable[[CallRecord], BindLike] | None = None
    #: Makes what learns records whose numbers follow from the image's size, to results of a dtype.
    sized: Callable[[torch.Generator | None, int, int, tuple[Any, ...], tuple[Any, ...] | None], Sized] | None = None
    #: `launch_all` into the parts of one tensor: images, and their places there, None for all. Of images whose steps
    #: follow from their sizes it learns how others are launched.
    launch_into: (
        Callable[[Tensor, Sequence[BatchedCall], Sequence[Tensor], Sequence[int] | None, BySize | None], None] | None
    ) = None
    #: Binds a call that is for `launch_all`, where that is another than `bind`'s.
    bind_batched: Callable[[CallRecord], BoundCall] | None = None
    #: Makes of such a call's handle that for another image (channels, height, width) whose rows and columns take other
    #: paths; None where it takes binding.
    of_size: Callable[[object, Facts, tuple[AxisPath, AxisPath]], object | None] | None = None
    #: Calls that ATen's own kernels do in less time.
    slower: tuple[Slower, ...] = ()
    #: Takes a table as `pipelines/draws.py` packs it, the address of exp, and how numbers of a range are rounded; makes
    #: what draws from a generator for an image of the height and width that follow, as `launch/drawing.h` says.
    drawer: Callable[[bytes, int, int], Callable[..., tuple[float, ...] | None]] | None = None
    #: Makes a warp as `pipelines/pillow.py` packs it, of what have the addresses of lists of rows: a Pillow picture's,
    #: and those of one to be written. False where Pillow is quicker.
    warp_picture: Callable[[bytes, object, object], bool] | None = None


def has_kernels(device: str) -> bool:
    """Whether a type of device has kernels, and is not switched off. Imports nothing."""
    return device in MODULES and device in settings.devices()


def wing_of(device: torch.device) -> Wing:
    """Gives the wing of a device that has kernels. Raises in a process whose parent used a device that is lost by a
    fork.
    """
    wing = _load(device.type)
    if not wing.survives_fork and _first_user.setdefault(device.type, os.getpid()) != os.getpid():
        raise ForkedProcessError(
            f"a kernel for {device} in a forked process, whose parent has used that device; it is lost by a fork: "
            "start workers with the 'spawn' or 'forkserver' method, or use the device in workers only"
        )
    return wing


def loaded() -> list[Wing]:
    """Lists the wings in use so far."""
    return [_load(device) for device in MODULES if MODULES[device] in _loaded]


def import_the_usual() -> None:
    """The modules of the wing that nearly every process needs, or its first call would take half as long again. They
    use what only Unix has."""
    if hasattr(os, "register_at_fork"):
        importlib.import_module(MODULES["cpu"])


#: By type of device: the process that first asked for a kernel there. A forked child inherits its parent's.
_first_user: dict[str, int] = {}
_loaded: set[str] = set()


@functools.cache
def _load(device: str) -> Wing:
    with uncollected():
        wing: Wing = importlib.import_module(MODULES[device]).WING
    _loaded.add(MODULES[device])
    return wing
