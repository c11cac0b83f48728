"""Pictures of one program by their numbers: an image of a size, or a crop, that was not seen before is bound by the
pattern of one that was. The plain twin is the walk of a `Picture`, which is what the first of a pattern takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyphase.kernels import devices
from polyphase.kernels.binding import BoundCall, Pattern
from polyphase.kernels.facts import Facts, Sizes, facts
from polyphase.kernels.layout import BY_ROWS
from polyphase.pipelines import ways
from polyphase.pipelines.drawing import Ahead, Chain
from polyphase.pipelines.outlines import NotFollowedError, Outline
from polyphase.pipelines.picture import ARRAY, PIL, Picture, as_kind
from polyphase.pipelines.pillow import lies_as, written_picture
from polyphase.pipelines.reading import OWN, V2, Step, drawn
from polyphase.pipelines.sources import Addressed, Source
from polyphase.pipelines.stages import Ready
from polyphase.pipelines.vocabulary import NO_PARAMS, Compose, Container, Normalize, Params, ToDtype
from polyphase.pipelines.walks import Image, Walk, image_of, only_picture, stand_in
from polyphase.pipelines.warps import Warped

#: Patterns of one kind of images; then all are forgotten.
_MOST_PATTERNS = 64
#: Of strides: in the order of rows, and of pixels with all their channels, one after the other or with gaps.
_ROWS, _PIXELS, _PIXELS_APART = "rows", "pixels", "pixels apart"


class Likeness(NamedTuple):
    """What pictures have in common that differ in numbers. vectors: what they read besides their image. in_pixels: the
    order of results."""

    pattern: Pattern
    vectors: tuple[Tensor, ...]
    kind: str
    dtype: torch.dtype
    in_pixels: bool


class Sketch:
    """A picture at the end of its way, as far as it is asked for that: its only stage is itself."""

    plain = False

    def __init__(self, source: Source, outline: Outline, likeness: Likeness) -> None:
        self.source, self._outline, self._likeness = source, outline, likeness
        self.vectors, self.kind, self.dtype = likeness.vectors, likeness.kind, likeness.dtype

    @property
    def shape(self) -> Sizes:
        return self.out.shape

    @property
    def out(self) -> Facts:
        return _out(self._outline, self._likeness, self.source)

    def stages(self) -> list[Sketch]:
        return [self]

    def bound(
        self, source: Source, out: Facts | None = None, *, batched: bool = False
    ) -> tuple[BoundCall, Any, tuple[Tensor, ...]]:
        outline, patchwork, out = self._outline, None, out or self.out
        if outline.patches is not None:
            out, patchwork = outline.patches.lie(out)
            patchwork.check(out)
        steps = (outline.rows, outline.columns)
        call = self._likeness.pattern.bound(source.facts, out, patchwork, steps, batched)
        return call, source.memory, self.vectors

    def run(self) -> Tensor:
        call, memory, inputs = self.bound(self.source)
        return call.fresh(memory, *inputs)

    def value(self) -> Any:
        if self.kind == PIL:
            return written_picture(self.shape, self._write, self.run)
        return as_kind(self.run(), self.kind)

    def _write(self, memory: Addressed, lies: Facts) -> None:
        call, source, inputs = self.bound(self.source, lies)
        call.into(memory, source, *inputs)

    def ready(self) -> Ready:
        call, _, inputs = self.bound(self.source)
        return Ready(((call, inputs),))


def _out(outline: Outline, likeness: Likeness, source: Source) -> Facts:
    channels, height, width = shape = outline.shape
    device = source.facts.device
    if outline.patches is not None:
        patches, values = outline.patches.out_shape
        return Facts(likeness.dtype, (patches, values), (values, 1), device)
    if likeness.kind == PIL:
        return lies_as(shape)
    strides = (1, width * channels, channels) if likeness.in_pixels else (height * width, width, 1)
    return Facts(likeness.dtype, shape, strides, device)


class Sized(NamedTuple):
    """What makes pictures of images of one kind by their sizes, and what they become."""

    calls: devices.Sized
    kind: str
    dtype: torch.dtype


class _Kind:
    """Patterns of images that differ in their sizes alone, by what their outlines have in common; None where there is
    none. sized: what tells from the size alone. Other threads may be here too."""

    def __init__(self) -> None:
        self.patterns = dict[object, Likeness | None]()
        self.sized: Sized | None = None

    def learn(self, name: object, likeness: Likeness | None, by_size: bytes | None) -> None:
        """`by_size`: transforms as `ways` packs them, where the size tells."""
        if len(self.patterns) >= _MOST_PATTERNS:
            self.patterns, self.sized = {}, None
        self.patterns[name] = likeness
        if likeness is not None and by_size is not None and likeness.kind != PIL:
            calls = None if self.sized is None else self.sized.calls
            calls = likeness.pattern.teach(calls, by_size, likeness.vectors)
            self.sized = None if calls is None else Sized(calls, likeness.kind, likeness.dtype)


class Sketches:
    """Of one pipeline: an image's sketch, or else its walk. Whatever is random is drawn once, for either."""

    def __init__(self, steps: Step | Container) -> None:
        self._whole, self._steps = steps, _steps_to_follow(steps)
        self._by_size = dict[str, bytes | None]()
        self._kinds: dict[object, _Kind | None] = {}  # None of a kind that had to be done otherwise
        random = [step for step in self._steps or () if step.ours is not None and step.ours.is_random]
        self.chain = Chain(
            [step.ours for step in self._steps or ()], [step.known for step in random if step.version != OWN]
        )
        self.draws_ahead = bool(random)
        #: Whether an image within a sample is done as one alone is.
        self.takes_samples = self._steps is not None and all(one.version in (OWN, V2) for one in _steps_of(steps))

    def by_size(self, kind: str) -> bytes | None:
        """Transforms of such images as `ways` packs them; None where steps do not follow from the size alone."""
        if kind not in self._by_size:
            steps = self._steps
            self._by_size[kind] = None if steps is None else ways.packed([one.ours for one in steps if one.ours], kind)
        return self._by_size[kind]

    def sized(self, image: Image) -> Sized | None:
        """What makes pictures of such images by their sizes; None where there is nothing."""
        kind = None if self.by_size(image.kind) is None else self._kinds.get(kind_of(image))
        return None if kind is None else kind.sized

    def ahead(self, images: Sequence[Image]) -> Ahead | None:
        """What is drawn for several images at once; None where it is drawn for one after the other."""
        if any(self._kinds.get(kind_of(one)) is None for one in images):
            return None  # of kinds that are new, or have to be done otherwise
        return self.chain.ahead(*[n for one in images for n in one.source.facts.shape[-2:]])

    def of(self, image: Image) -> Sketch | Walk:
        """Whose numbers are drawn at once where that can be; again, step by step, where something is wrong: an error is
        raised with the generator as torchvision would leave it."""
        named = None if self._steps is None else kind_of(image)
        ahead = None if self._kinds.get(named) is None else self.chain.ahead(*image.source.facts.shape[-2:])
        if ahead is None or not ahead.numbers:
            return self._of(image, named, None)
        try:
            return self._of(image, named, ahead.numbers[0])
        except Exception:
            ahead.take_back(0)
            return self._of(image, named, None)

    def of_drawn(self, image: Image, numbers: tuple[float, ...]) -> Sketch | Walk:
        """With the numbers of all its steps."""
        return self._of(image, kind_of(image), numbers)

    def _of(self, image: Image, named: object, numbers: tuple[float, ...] | None) -> Sketch | Walk:
        """`named`: its kind. `numbers`: of all steps, where they are drawn already."""
        if named is None:
            walk = Walk(image.picture())
            walk.take(self._whole)
            return walk
        kind = self._kinds.get(named)
        if kind is None:
            walk = self._walked(image, ())
            if named not in self._kinds:
                self._kinds[named] = _Kind() if walk.is_whole and _has_patterns(image) else None
            return walk
        draws, left = list[Params | None](), None if numbers is None else iter(numbers)
        outline = self._followed(image, draws, left)
        name = None if outline is None else outline.name
        likeness = kind.patterns.get(name)
        if outline is not None and likeness is not None and likeness.pattern.takes(image.source.facts, outline.shape):
            return Sketch(image.source, outline, likeness)
        walk = self._walked(image, draws, left)
        if name is not None and name not in kind.patterns:
            kind.learn(name, _likeness(walk), self.by_size(image.kind))
        return walk

    def _followed(self, image: Image, draws: list[Params | None], numbers: Iterator[float] | None) -> Outline | None:
        """`draws`: what random steps have drawn, until the end or where it is not followed any further. `numbers`: from
        which, where they are drawn already."""
        known = image.source.facts
        outline: Any = Outline(image.kind, known.dtype, known.shape)
        try:
            for step in self._steps or ():
                ours = step.ours
                assert ours is not None, "it can be followed"
                if not ours.is_random:
                    ours.apply(outline, NO_PARAMS)
                    continue
                if numbers is None:
                    params = drawn(step, [stand_in(outline.shape)], outline.height, outline.width)
                else:
                    params = ours.params(numbers, outline.height, outline.width)
                draws.append(params)
                if params is not None:
                    ours.apply(outline, params)
        except NotFollowedError:
            return None
        return outline  # type: ignore[no-any-return]

    def _walked(self, image: Image, draws: Sequence[Params | None], numbers: Iterator[float] | None = None) -> Walk:
        """By a picture, with what was drawn for it."""
        walk, left = Walk(image.picture()), list(draws)
        for step in _steps_of(self._whole):
            assert step.ours is not None, "it can be followed"
            before = None
            if step.ours.is_random and left:
                before = (left.pop(0),)
            elif step.ours.is_random and numbers is not None:
                (picture,) = walk.pictures()
                before = (step.ours.params(numbers, picture.height, picture.width),)
            walk.take(step, before)
        return walk


class Drawn:
    """Images of a batch whose numbers were drawn at once, if that could be: those of the first of them."""

    def __init__(self, sketches: Sketches, images: Sequence[Any]) -> None:
        self._sketches, self._images = sketches, _images_of(images) if sketches.draws_ahead else []
        self._ahead = sketches.ahead(self._images) if self._images else None

    def picture(self, number: int) -> Sketch | Picture | None:
        """None of an image that is still to be drawn for, as it is where something is wrong with it."""
        if self._ahead is None or number >= len(self._ahead.numbers):
            return None
        try:
            found = self._sketches.of_drawn(self._images[number], self._ahead.numbers[number])
            return found if isinstance(found, Sketch) else only_picture(found)
        except Exception:
            self._ahead.take_back(number)
            self._ahead = None
            return None


def _images_of(images: Sequence[Any]) -> list[Image]:
    """None at all, unless all are images."""
    found = list[Image]()
    for one in images:
        try:
            image = image_of(one)
        except Exception:  # whoever takes them one by one says which it is
            return []
        if image is None:
            return []
        found.append(image)
    return found


def kind_of(image: Image) -> object:
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


def _steps_of(step: Step | Container) -> list[Step]:
    return [step] if isinstance(step, Step) else [one for part in step.transforms for one in _steps_of(part)]


def _steps_to_follow(whole: Step | Container) -> list[Step] | None:
    """Those that are more than arithmetic; None where there is one that only a picture can take, or may not be done."""
    if not _are_all_done(whole) or any(step.ours is None or isinstance(step.ours, Warped) for step in _steps_of(whole)):
        return None
    return [step for step in _steps_of(whole) if not isinstance(step.ours, (ToDtype, Normalize))]


def _are_all_done(step: Step | Container) -> bool:
    return isinstance(step, Step) or (type(step) is Compose and all(map(_are_all_done, step.transforms)))


def _likeness(walk: Walk) -> Likeness | None:
    """None where a picture is not one program's, or is no tensor of its own."""
    picture = walk.leaves[0]
    if not walk.is_whole or not isinstance(picture, Picture) or not picture.is_for_others():
        return None
    stage, *others = picture.stages()
    order = picture.patches is not None or picture.kind == PIL or _order(stage.out.shape, stage.out.strides)
    if others or order is None:
        return None
    out, patchwork = (stage.out, None) if stage.patches is None else stage.patches.lie(stage.out)
    inputs = (picture.source.facts, *map(facts, stage.vectors))
    pattern = Pattern.of(stage.program, inputs, out, patchwork)
    if pattern is None:
        return None
    return Likeness(pattern, stage.vectors, picture.kind, picture.dtype, order == _PIXELS)
