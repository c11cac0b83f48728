"""Many pictures in one call: everything is drawn and bound, then a queue of threads runs it, into one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase.calls import devices
from polyphase.calls.devices import BatchedCall, BySize, LaunchSized
from polyphase.calls.plain import is_plain
from polyphase.errors import WrongArgumentError, WrongImageError
from polyphase.pipelines.picture import Picture
from polyphase.pipelines.sources import Source, of_tensor
from polyphase.pipelines.stages import Stage
from polyphase.pipelines.templates import Sketch
from polyphase.records.facts import Facts, Sizes, elements, facts
from polyphase.records.layout import dense_strides
from polyphase.sampling.axis_maps import AxisPath
from polyphase.sampling.programs import Axes
from polyphase.sampling.steps import Resize

#: So many images are bound before the first are run.
AT_ONCE = 16
#: Sizes that are remembered of a kind of images; then all are forgotten.
MOST_SIZES = 1024
#: Bound calls that others are compared with, which differ in more than sizes.
MOST_PATTERNS = 8


Pictured: TypeAlias = Picture | Sketch
#: Shape, dtype and device of a result.
_Becomes: TypeAlias = tuple[tuple[int, ...], torch.dtype, torch.device]


def are_alike(pictures: Sequence[Pictured]) -> bool:
    """Whether they are to be one tensor; none are not."""
    return len({_becomes(picture) for picture in pictures}) == 1


def check_alike(pictures: Sequence[Pictured], numbers: Sequence[int]) -> None:
    """`numbers`: of the images in the caller's list."""
    wanted = _becomes(pictures[0])
    for picture, number in zip(pictures, numbers, strict=True):
        seen = _becomes(picture)
        if seen != wanted:
            raise WrongImageError(
                f"image {number} becomes {_said(*seen)}, and image {numbers[0]} {_said(*wanted)}; {_fix(seen, wanted)}"
            )


def most_alike(pictures: Sequence[Pictured], numbers: Sequence[int]) -> tuple[list[Pictured], list[int]]:
    """Those that most others are like, and their numbers."""
    kinds = [_becomes(picture) for picture in pictures]
    wanted = max(kinds, key=kinds.count, default=None)
    kept = [i for i, kind in enumerate(kinds) if kind == wanted]
    return [pictures[i] for i in kept], [numbers[i] for i in kept]


def _fix(seen: _Becomes, wanted: _Becomes) -> str:
    if seen[2] != wanted[2]:
        return "a batch is on one device: move them there with .to"
    if seen[1] != wanted[1]:
        return "a batch has one dtype: put ToDtype into the chain"
    if len(seen[0]) == len(wanted[0]) == 3 and seen[0][0] != wanted[0][0]:
        return "a batch has one number of channels: convert the image, as with image.convert('RGB')"
    return "a batch has one size: end with a crop or a resize to one (height, width), or ask for a list (as_list=True)"


def _becomes(picture: Pictured) -> _Becomes:
    return tuple(picture.shape), picture.dtype, picture.source.facts.device


def _said(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> str:
    return f"{dtype} of shape {shape} on {device}"


def empty_batch(picture: Pictured, count: int, *, channels_last: bool, make: Any = torch.empty) -> Tensor:
    """Makes an empty batch for so many like a picture. `make`: allocates so many elements of a dtype."""
    shape = (count, *picture.shape)
    return empty(shape, picture.dtype, picture.source.facts.device, channels_last=channels_last, make=make)


def empty(
    shape: Sizes, dtype: torch.dtype, device: torch.device, *, channels_last: bool, make: Any = torch.empty
) -> Tensor:
    if channels_last and len(shape) != 4:
        raise WrongArgumentError(f"channels_last of a batch of shape {shape}; it is for (N, channels, height, width)")
    flat = make(elements(shape), dtype=dtype, device=device)
    made: Tensor = flat.as_strided(shape, dense_strides(shape, channels_last))
    return made


def check_out(out: Any, picture: Pictured, count: int) -> None:
    wanted = ((count, *picture.shape), picture.dtype, picture.source.facts.device)
    if not _is_out(out, picture, count):
        seen = _said(tuple(out.shape), out.dtype, out.device) if isinstance(out, Tensor) else type(out).__name__
        raise WrongArgumentError(f"out is {seen}; the batch is {_said(*wanted)}: give a tensor like that, or none")


def _is_out(out: Any, picture: Pictured, count: int) -> bool:
    wanted = ((count, *picture.shape), picture.dtype, picture.source.facts.device)
    return isinstance(out, Tensor) and (tuple(out.shape), out.dtype, out.device) == wanted


def is_dense_out(out: Any, shape: Sizes, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a batch can be written into it past torch, without a gap or an element in two places."""
    if not is_plain(out) or (tuple(out.shape), out.dtype, out.device) != (shape, dtype, device):
        return False
    return out.stride() in (dense_strides(shape, False), dense_strides(shape, True))


def launches_together(image: object) -> bool:
    """Whether its device takes images of several sizes by one launch."""
    if not isinstance(image, Tensor) or not devices.has_kernels(image.device.type):
        return False
    return devices.wing_of(image.device).bind_batched is not None


class Sheet:
    """Tensors of one kind, and where nothing is random what they become, by their sizes and strides: bound calls of one
    launch."""

    def __init__(
        self, picture_of: Callable[[Any], Pictured], templates_of: Callable[[Any], bytes], channels_last: bool
    ) -> None:
        """`templates_of`: those of images like one, as `BySize` has them."""
        self._picture_of, self._templates_of, self._channels_last = picture_of, templates_of, channels_last
        self._launches: dict[Any, LaunchSized | None] = {}
        self._like: Pictured | None = None
        self._calls: dict[tuple[Any, Any], BatchedCall] = {}

    def run(self, images: Sequence[Tensor], out: Tensor | None) -> Tensor | None:
        """None where one of them is not for this."""
        count = len(images)
        if self._like is None:
            self._like = self._picture(images[0])
        if self._like is None or (out is not None and not _is_out(out, self._like, count)):
            return None
        if out is None:
            out = empty_batch(self._like, count, channels_last=self._channels_last)
        left = self._left_by_size(out, tuple(images))
        if left != ():
            some = images if left is None else [images[i] for i in left]
            calls = self._calls_of(some, out)
            if calls is None:
                return None
            launch_into = devices.wing_of(out.device).launch_into
            assert launch_into is not None, "the device takes many at once"
            launch_into(out, calls, some, left, BySize(self._templates_of(some[0]), self._launches))
        return out

    def _left_by_size(self, out: Tensor, images: tuple[Tensor, ...]) -> tuple[int, ...] | None:
        """The places of those that are not launched by their size alone; None where all are not."""
        left: tuple[int, ...] | None = None
        for launch in list(self._launches.values())[::-1]:  # others may learn
            if launch is not None and left != ():
                left = launch(out, images, left)
        return left

    def _picture(self, image: Tensor) -> Pictured | None:
        """None where it cannot be done: which image it is, the longer way says."""
        try:
            return self._picture_of(image)
        except Exception:
            return None

    def _calls_of(self, images: Sequence[Tensor], out: Tensor) -> list[BatchedCall] | None:
        names = [(one.shape, one.stride()) for one in images]
        try:
            return [self._calls[name] for name in names]
        except KeyError:  # some are new
            if len(self._calls) > MOST_SIZES:
                self._calls.clear()
        lies, calls = facts(out[0]), list[BatchedCall]()
        for image, name in zip(images, names, strict=True):
            call = self._calls.get(name) or self._new(image, lies)
            if call is None:
                return None
            self._calls[name] = call
            calls.append(call)
        return calls

    def _new(self, image: Tensor, out: Facts) -> BatchedCall | None:
        """Makes the call of a size that was not seen before."""
        picture, like = self._picture(image), self._like
        assert like is not None, "there is one to compare with"
        if picture is None or (picture.shape, picture.dtype) != (like.shape, like.dtype):
            return None
        if isinstance(picture, Picture) and not picture.is_for_others():
            return None
        stage, *others = picture.stages()
        if others or (isinstance(stage, Stage) and stage.positions is not None):
            return None
        call, _, inputs = stage.bound(picture.source, out, batched=True)
        return None if call.handle is None else (call.handle, inputs)


def run_into(pictures: Sequence[Pictured], targets: Sequence[Tensor]) -> None:
    """Each picture, none of which is recorded, into its tensor. Those of several programs are run one program after the
    other, all at a time."""
    sources = [picture.source for picture in pictures]
    stages = [picture.stages() for picture in pictures]
    for level in range(max(map(len, stages), default=0)):
        with _Queue(sources[0].facts.device) as queue:
            for i, own in enumerate(stages):
                if level < len(own):
                    out = targets[i] if own[level] is own[-1] else _empty(own[level].out)
                    queue.add(own[level], sources[i], out)
                    sources[i] = of_tensor(out)


def _empty(out: Facts) -> Tensor:
    return torch.empty_strided(out.shape, out.strides, dtype=out.dtype, device=out.device)


class _Queue:
    """Calls that do not depend on each other; all have run at the end of a `with`. Where torch has several threads,
    another one runs what there is while the next are bound."""

    def __init__(self, device: torch.device) -> None:
        wing = devices.wing_of(device)
        self._launch_all, self._of_size = wing.launch_all, wing.of_size
        self._patterns = list[tuple[Stage, Facts, object]]()
        self._calls = list[tuple[Any, ...]]()  # which keep alive what they read and write
        threads = torch.get_num_threads() > 1 and wing.bind_batched is None  # else all are one launch
        self._runner = ThreadPoolExecutor(1) if threads else None
        self._running = list[Future[Any]]()

    def __enter__(self) -> _Queue:
        return self

    def add(self, stage: Stage | Sketch, source: Source, out: Tensor) -> None:
        handle = self._like_another(stage, source, facts(out)) if isinstance(stage, Stage) else None
        if handle is not None:
            self._calls.append((handle, out, source.memory, *stage.vectors))
            return
        call, memory, inputs = stage.bound(source, facts(out), batched=True)
        if call.handle is None or self._launch_all is None:
            call.into(out, memory, *inputs)
            return
        self._calls.append((call.handle, out, memory, *inputs))
        if (
            self._of_size is not None
            and isinstance(stage, Stage)
            and stage.positions is None
            and len(self._patterns) < MOST_PATTERNS
        ):
            self._patterns.append((stage, facts(out), call.handle))
        if self._runner is not None and len(self._calls) == AT_ONCE:
            assert self._launch_all is not None, "there is something to launch"
            self._running.append(self._runner.submit(self._launch_all, *self._calls))
            self._calls = []

    def _like_another(self, stage: Stage, source: Source, out: Facts) -> object | None:
        """The handle of a call that differs from one before in its sizes alone; None where it has to be bound."""
        if self._of_size is None or len(source.facts.shape) != 3:
            return None
        for other, lies, handle in self._patterns:
            paths = _paths_like(stage, other, source.facts.shape) if lies == out else None
            found = None if paths is None else self._of_size(handle, source.facts, paths)
            if found is not None:
                return found
        return None

    def __exit__(self, *error: object) -> None:
        if self._runner is not None:
            self._runner.shutdown()
        for one in self._running:
            one.result()
        if self._calls and self._launch_all is not None and error == (None, None, None):
            self._launch_all(*self._calls)


def _paths_like(stage: Stage, other: Stage, shape: Sizes) -> tuple[AxisPath, AxisPath] | None:
    """What an image's axes go through, where that is all that two stages differ in, sizes of resizes among it."""
    program, like = stage.program, other.program
    axes, own = program.sampler, like.sampler
    if not isinstance(axes, Axes) or not isinstance(own, Axes) or stage.positions is not None:
        return None
    for one, another in zip(axes.maps, own.maps, strict=True):
        first, second = one.weighted, another.weighted
        if not isinstance(first, Resize) or not isinstance(second, Resize) or _filter(first) != _filter(second):
            return None
    fields = [(one.source, one.prologue, one.epilogue, one.borders, one.order) for one in (program, like)]
    if fields[0] != fields[1] or list(map(id, stage.vectors)) != list(map(id, other.vectors)):
        return None
    rows, columns = (AxisPath.of(one.steps, n) for one, n in zip(axes.maps, shape[1:], strict=True))
    return None if rows is None or columns is None else (rows, columns)


def _filter(step: Resize) -> tuple[object, ...]:
    return step.filter, step.antialias, step.align_corners, step.scale
