"""Pictures of one program by their numbers: a template says how these follow from an image's size, and from what is
drawn for it. C++ follows templates (`launch/templates.h`); a walk with numbers that are recorded writes them down, for
the first image that goes another way. The plain twin is the walk of a `Picture`."""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyphase.calls import devices
from polyphase.calls.binding import NOT_BUILT, Pattern
from polyphase.calls.bound import BoundCall
from polyphase.pipelines.drawing import Drawer, how_torch_draws, is_usual
from polyphase.pipelines.draws import Draws
from polyphase.pipelines.outlines import Outline
from polyphase.pipelines.patched import Patched
from polyphase.pipelines.picture import ARRAY, PIL, Picture, as_kind
from polyphase.pipelines.pillow import NewPicture, lies_as, told_of_pictures
from polyphase.pipelines.reading import OWN, V2, Step
from polyphase.pipelines.recording import NO_PROGRAM, NotRecordedError, Recording, Size, plain
from polyphase.pipelines.sources import CPU, Source
from polyphase.pipelines.stages import Ready
from polyphase.pipelines.vocabulary import NO_PARAMS, Container, Normalize, Params, ToDtype
from polyphase.pipelines.walks import Image, Walk
from polyphase.pipelines.warps import Warped
from polyphase.records.facts import Facts, Sizes, facts
from polyphase.records.layout import BY_ROWS
from polyphase.records.recipes import Recipe

#: Programs, and templates, of one kind of images; what is more takes a walk.
_MOST_PROGRAMS, _MOST_TEMPLATES = 64, 1024
#: Of strides: in the order of rows, and of pixels with all their channels, one after the other or with gaps.
_ROWS, _PIXELS, _PIXELS_APART = "rows", "pixels", "pixels apart"
#: What templates say of images that are not for them.
_TO_BE_WALKED = "to be walked"
#: `Becomes` of `launch/sized_calls.h`.
_TENSOR, _VIEW, _ITSELF = range(3)


class Program(NamedTuple):
    """What pictures have in common that differ in numbers. vectors: what they read besides their image. in_pixels: the
    order of results. cut_by: as of `Outline`."""

    pattern: Pattern
    vectors: tuple[Tensor, ...]
    kind: str
    dtype: torch.dtype
    in_pixels: bool
    becomes: int
    cut_by: tuple[int, int, int, bool] | None


class Sketch:
    """A picture at the end of its way, as far as it is asked for that: its only stage is itself."""

    plain = False

    def __init__(self, image: Image, program: Program, followed: tuple[Any, ...]) -> None:
        """`followed`: height and width, and the numbers of the steps of rows and columns."""
        self._original, self.source, self._program = image.original, image.source, program
        self.vectors, self.kind, self.dtype = program.vectors, program.kind, program.dtype
        height, width, rows, columns = followed
        self._size, self._steps = (image.source.facts.shape[0], height, width), (Recipe(rows), Recipe(columns))

    @property
    def shape(self) -> Sizes:
        return self.out.shape

    @property
    def is_cut(self) -> bool:
        """Whether the picture is cut into patches, which Python has to bind."""
        return self._program.cut_by is not None

    @functools.cached_property
    def _patches(self) -> Patched | None:
        return None if self._program.cut_by is None else Patched(self._size, *self._program.cut_by)

    @property
    def out(self) -> Facts:
        (channels, height, width), device = self._size, self.source.facts.device
        if self._patches is not None:
            patches, values = self._patches.out_shape
            return Facts(self.dtype, (patches, values), (values, 1), device)
        if self.kind == PIL:
            return lies_as(self._size)
        strides = (1, width * channels, channels) if self._program.in_pixels else (height * width, width, 1)
        return Facts(self.dtype, self._size, strides, device)

    def stages(self) -> list[Sketch]:
        return [self]

    def bound(
        self, source: Source, out: Facts | None = None, *, batched: bool = False
    ) -> tuple[BoundCall, Any, tuple[Tensor, ...]]:
        patchwork, out = None, out or self.out
        if self._patches is not None:
            out, patchwork = self._patches.lie(out)
            patchwork.check(out)
        call = self._program.pattern.bound(source.facts, out, patchwork, self._steps, batched)
        return call, source.memory, self.vectors

    def run(self) -> Tensor:
        call, memory, inputs = self.bound(self.source)
        return call.fresh(memory, *inputs)

    def value(self) -> Any:
        if self.kind == PIL:
            made = NewPicture(self.shape)
            call, source, inputs = self.bound(self.source)
            call.into(made, source, *inputs)
            return made.image()
        if self._program.becomes == _ITSELF:
            return self._original
        return as_kind(self.run() if self._program.becomes == _TENSOR else self._view(), self.kind)

    def _view(self) -> Tensor:
        part = self.source.tensor()
        for dim, recipe in zip((1, 2), self._steps, strict=True):
            for one in recipe.steps():
                part = part.narrow(dim, one.start, one.stop - one.start)  # type: ignore[union-attr]
        return part

    def ready(self) -> Ready:
        call, _, inputs = self.bound(self.source)
        return Ready(((call, inputs),))


class _Way:
    """A walk by size alone, written down. done: each step that has something to do, and what was drawn for it."""

    def __init__(self, image: Image) -> None:
        dtype, (channels, height, width), *_ = image.source.facts
        self.recording = Recording(height, width)
        self.outline: Any = Outline(image.kind, dtype, channels, self.recording.height, self.recording.width)
        self.done = list[tuple[Step, Params]]()
        self._generator = torch.Generator()  # of its own: what is written down is drawn afterwards
        self._generator.set_state(torch.default_generator.get_state())

    @property
    def name(self) -> tuple[object, ...]:
        """What its program depends on, numbers aside."""
        return *self.outline.name, *[id(step) for step, _ in self.done]

    def take(self, step: Step | Container) -> None:
        outline = self.outline
        if isinstance(step, Container):
            for one in step.chosen_by(self._drawn(step.drawer, step.draws(), 1, 1)):
                self.take(one)
            return
        ours = step.ours
        assert ours is not None, "it can be followed"
        drawn = self._drawn(step.drawer, ours.draws(), outline.height, outline.width) if ours.is_random else None
        params = NO_PARAMS if drawn is None else ours.params(drawn, outline.height, outline.width)
        if params is None:
            return
        if not isinstance(ours, (ToDtype, Normalize)):  # these move nothing
            ours.apply(outline, params)
        self.done.append((step, plain(params)))

    def _drawn(self, drawer: Drawer | None, draws: Draws, height: Size, width: Size) -> Iterator[Any]:
        if not draws:
            return iter(())
        numbers = None if drawer is None else drawer(self._generator, plain(height), plain(width))
        if numbers is None:
            raise _NotDrawnError
        return iter(self.recording.draw(draws, numbers, height, width))

    def written(self, program: int) -> bytes:
        if program == NO_PROGRAM:
            return self.recording.template(program)
        size, steps = (self.outline.height, self.outline.width), (self.outline.rows, self.outline.columns)
        return self.recording.template(program, size, steps)


class _NotDrawnError(Exception):
    """Torch has to draw, or to say what is wrong."""


class _Kind:
    """Templates of images that differ in their sizes alone. calls: what follows them. written: all of them. result: the
    kind of pictures that C++ makes by itself, None where there are none. Other threads may be here too."""

    def __init__(self, calls: devices.Sized) -> None:
        self.calls, self.written = calls, b""
        self.result: str | None = None
        self._programs, self._numbers, self._count = dict[int, Program | None](), dict[object, int](), 0
        self._new_numbers = itertools.count()

    @property
    def is_full(self) -> bool:
        return self._count >= _MOST_TEMPLATES or len(self._programs) >= _MOST_PROGRAMS

    def followed(self, image: Image) -> Sketch | str | None:
        """What a template says of an image; None where there is none; a walk where it has to take one."""
        found = self.calls.follow(*image.source.facts.shape[1:])
        if found is None or found[0] == NO_PROGRAM:
            return None if found is None else _TO_BE_WALKED
        program = self._programs[found[0]]
        assert program is not None, "templates have programs"
        return Sketch(image, program, found[1:])

    def learn(self, image: Image, whole: Step | Container) -> None:
        """How images are done that go the same way as this."""
        way, number, self._count = _Way(image), NO_PROGRAM, self._count + 1
        try:
            way.take(whole)
            number = self._number_of(image, way)
        except _NotDrawnError:
            return
        except NotRecordedError:
            pass
        written = way.written(number)
        if self.calls.learn(written):
            self.written += written
            self._teach(number, way)

    def _number_of(self, image: Image, way: _Way) -> int:
        """Numbers a program, a new one too; none where it is no kernel's for such sizes."""
        number = self._numbers.get(way.name)
        if number is None:
            new = next(self._new_numbers)
            self._programs[new] = _program(image, way.done, way.outline.cut_by)
            number = self._numbers.setdefault(way.name, new)  # another thread may have been here
        program, outline, recording = self._programs[number], way.outline, way.recording
        sizes = recording.height, recording.width, outline.height, outline.width
        if program is None or not program.pattern.takes(sizes, outline.channels):
            return NO_PROGRAM
        return number

    def _teach(self, number: int, way: _Way) -> None:
        """C++ makes pictures of a program by itself, where they are all of one kind."""
        program = None if number == NO_PROGRAM else self._programs[number]
        if program is None or program.cut_by or self.result not in (None, program.kind):
            return
        make = NewPicture if program.kind == PIL else None
        drawn, given = way.recording.drawn, devices.SizedGiven(program.vectors, program.becomes, make)
        if program.pattern.teach(self.calls, number, struct.pack(f"={len(drawn)}d", *drawn), given):
            self.result = program.kind


class Templates:
    """Makes an image's sketch by one pipeline, or else its walk. Whatever is random is drawn once, for either."""

    def __init__(self, steps: Step | Container) -> None:
        self._whole, self._kinds = steps, dict[object, _Kind | None]()
        leaves = list(_leaves(steps))
        random = [one for one in leaves if isinstance(one, Step) and one.ours is not None and one.ours.is_random]
        self._known = [one.known for one in random if one.version != OWN]
        self._draws = any(one.draws() for one in leaves if isinstance(one, Container)) or bool(random)
        self._can_be_followed = all(map(_can_be_followed, leaves)) and None not in self._known
        #: Whether an image within a sample is done as one alone is.
        self.takes_samples = self._can_be_followed and all(
            one.version in (OWN, V2) for one in leaves if isinstance(one, Step)
        )

    def of(self, image: Image) -> Sketch | Walk:
        kind = self._kind(image)
        found = None if kind is None else kind.followed(image)
        if kind is not None and found is None and not kind.is_full and self._are_trusted():
            kind.learn(image, self._whole)
            found = kind.followed(image)
        if isinstance(found, Sketch):
            return found
        walk = Walk(image.picture())
        walk.take(self._whole)
        return walk

    def sized(self, image: Image) -> tuple[devices.Sized, str] | None:
        """What makes pictures of such images in C++, and their kind; None where there is nothing."""
        kind = self._kind(image)
        return None if kind is None or kind.result is None else (kind.calls, kind.result)

    def written_for(self, image: Image) -> bytes:
        """The templates of such images."""
        kind = self._kind(image)
        return b"" if kind is None else kind.written

    def _kind(self, image: Image) -> _Kind | None:
        """None of images that are not followed now."""
        if not self._can_be_followed or (self._draws and not is_usual()):
            return None
        name = kind_but_size(image)
        if name is None:
            return None
        if name not in self._kinds:
            calls = self._new_calls(image) if _has_patterns(image) else None
            self._kinds[name] = None if calls is None else _Kind(calls)
        return self._kinds[name]

    def _new_calls(self, image: Image) -> devices.Sized | None:
        """Makes the calls for all images of this one's kind; None where nothing can be built."""
        make = devices.wing_of(CPU).sized if devices.has_kernels("cpu") else None
        generator = torch.default_generator if self._draws else None
        unchanged = tuple(part for one in self._known if one is not None for part in one.unchanged)
        pictures = told_of_pictures(image.original.mode) if image.kind == PIL else None
        try:
            return None if make is None else make(generator, *how_torch_draws(), unchanged, pictures)
        except NOT_BUILT:
            return None

    def _are_trusted(self) -> bool:
        return all(one is not None and one.is_trusted for one in self._known)


def kind_but_size(image: Image) -> object:
    """What pictures that differ in their sizes have in common; None of one that is not followed."""
    kind, source, _, plain = image
    dtype, shape, strides, device = source.facts
    if plain or len(shape) != 3 or shape[1] < 2 or shape[2] < 2 or source.flipped != (False, False):
        return None
    # Arrays are put in order first.
    order = _ROWS if kind == ARRAY else _PIXELS_APART if kind == PIL else _order(shape, strides)
    return None if order is None else (kind, dtype, shape[0], order, device, torch.get_default_dtype())


def _order(shape: Sizes, strides: Sizes) -> str | None:
    """None of such strides, or of so few channels, that results lie by other rules."""
    (channels, _, width), (along_c, along_y, along_x) = shape, strides
    if along_c >= along_y >= along_x:
        return _ROWS
    if channels < 2 or along_c < 1 or along_x < channels * along_c or BY_ROWS != along_y < width * along_x:
        return None
    return _PIXELS if strides == (1, width * channels, channels) else _PIXELS_APART


def _has_patterns(image: Image) -> bool:
    device = image.source.facts.device
    return devices.has_kernels(device.type) and devices.wing_of(device).bind_like is not None


def _leaves(step: Step | Container) -> Iterator[Step | Container]:
    """All that can draw, or do something."""
    yield step
    for one in step.transforms if isinstance(step, Container) else ():
        yield from _leaves(one)


def _can_be_followed(step: Step | Container) -> bool:
    """Whether it is not for a picture alone, and draws from torch's generator if at all."""
    if isinstance(step, Container):
        return not getattr(step, "by_python", False)
    return step.ours is not None and not isinstance(step.ours, Warped)


def _program(image: Image, done: Sequence[tuple[Step, Params]], cut_by: Any) -> Program | None:
    """None where a picture is not one program's, or is done by Pillow itself."""
    try:
        walk = Walk(image.picture(), runs=False)
        for step, params in done:
            walk.take(step, (params,))
    except Exception:  # the walk that comes next says what is wrong
        return None
    picture = walk.leaves[0]
    becomes = _becomes(picture, image) if walk.is_whole and isinstance(picture, Picture) else None
    if becomes is None:
        return None
    stage, *others = picture.stages()
    order = picture.patches is not None or picture.kind == PIL or _order(stage.out.shape, stage.out.strides)
    if others or order is None:
        return None
    out, patchwork = (stage.out, None) if stage.patches is None else stage.patches.lie(stage.out)
    out = lies_as(out.shape) if picture.kind == PIL else out
    inputs = (picture.source.facts, *map(facts, stage.vectors))
    pattern = None if stage.bound(picture.source)[0].by_torch else Pattern.of(stage.program, inputs, out, patchwork)
    if pattern is None:
        return None
    return Program(pattern, stage.vectors, picture.kind, picture.dtype, order == _PIXELS, becomes, cut_by)


def _becomes(picture: Picture, image: Image) -> int | None:
    if picture.is_for_others():
        return _TENSOR
    if picture.kind == PIL or picture.plain or picture.has_run or picture.source is not image.source:
        return None
    if picture.is_what_was_given:
        return _ITSELF
    return _VIEW if picture.is_view else None
