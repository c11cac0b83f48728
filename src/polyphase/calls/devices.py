"""The wings: which devices have kernels of ours, and how to reach them.

A wing is the part of the house that knows one device. It is used when a tensor of its device first needs a kernel, so
that `import polyphase` touches no device; nothing outside a wing imports from it.
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
    """What a device brings.

    most_operands: how many vectors, and how many tensors, a kernel can read. longest_axis: of those that are mapped,
    before and after. longest_runs: likewise, where whole runs of pixels are only moved: torch needs no tables for them.
    most_warped: over how many elements the planes of a warped image may extend. survives_fork: whether a child of a
    process that used the device can use it. built_from: what is bound meanwhile runs the kernel of a source file.
    attend: attention at sampled places: output, value, places, weights. attend_gradients: the output's gradient, value,
    places, weights; and whether the value's gradient is asked for.
    bind_any_size: a record, for all other sizes too; the last argument is called for those that are not for kernels.
    bound_of: of what that made, the sizes that it is given and tensors, what it calls for these.
    bind_like: of a record of maps, what binds programs that differ in the numbers of their steps alone. sized: what
    learns records whose numbers follow from the image's size, to results of a dtype.
    again: `again.plainly` in C, None where nothing can be built. dispatched_kernels: kernels of operators, likewise.
    launch_all: many calls in any order, each a tuple of a handle and tensors: output, image, coordinates, operands.
    makes_patchwork: whether kernels of maps write outputs that are cut into blocks.
    launch_into: likewise, into the parts of one tensor: images, and their places there, None for all. Of images whose
    steps follow from their sizes it learns how others are launched.
    slower: calls that ATen's own kernels do in less time.
    bind_batched: a call that is for `launch_all`, where that is another than `bind`'s. of_size: its handle, for another
    image (channels, height, width) whose rows and columns take other paths; None where it takes binding.
    drawer: of a table as `pipelines/draws.py` packs it, the address of exp and whether multiply-adds are fused, what
    draws from a generator for an image of the height and width that follow, as `launch/drawing.h` says.
    warp_picture: a warp as `pipelines/pillow.py` packs it, and what have the addresses of lists of rows: a Pillow
    picture's, and those of one to be written. False where Pillow is quicker.
    """

    device: str
    most_operands: int
    longest_axis: int
    longest_runs: int
    most_warped: int
    survives_fork: bool
    costs: MovingCosts
    architecture: Callable[[], str]
    bind: Callable[[CallRecord], BoundCall]
    bind_gradients: Callable[[GradientRecord], BoundGradients]
    attend: Callable[[Tensor, Tensor, Tensor, Tensor, Attention], None]
    attend_gradients: Callable[[Tensor, Tensor, Tensor, Tensor, Attention, bool], AttentionGradients]
    bind_any_size: Callable[[CallRecord, AnySize, Callable[..., Any]], Callable[..., Any]] | None
    again: Callable[[], Callable[..., Callable[..., Any]] | None]
    dispatched_kernels: Callable[[], Kernels | None]
    forget: Callable[[], None]
    tap_bytes: Callable[..., TapBytes]
    described: Callable[[CallRecord], Described]
    built_from: Callable[[Path], AbstractContextManager[None]]
    stats: Callable[[], dict[str, int]]
    bound_of: Callable[..., DirectCall | None] | None = None
    launch_all: Callable[..., None] | None = None
    makes_patchwork: bool = False
    bind_like: Callable[[CallRecord], BindLike] | None = None
    takes_sized: bool = False
    sized: Callable[[torch.Generator | None, int, bool, tuple[Any, ...], tuple[Any, ...] | None], Sized] | None = None
    launch_into: (
        Callable[[Tensor, Sequence[BatchedCall], Sequence[Tensor], Sequence[int] | None, BySize | None], None] | None
    ) = None
    bind_batched: Callable[[CallRecord], BoundCall] | None = None
    of_size: Callable[[object, Facts, tuple[AxisPath, AxisPath]], object | None] | None = None
    slower: tuple[Slower, ...] = ()
    drawer: Callable[[bytes, int, bool], Callable[..., tuple[float, ...] | None]] | None = None
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
