"""`polyphase.fuse`: a chain of transforms as one callable, to be pickled, that makes one program of it per image."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from polyphase.pipelines.doing import COMPUTED, not_an_image, not_fused
from polyphase.pipelines.picture import ARRAY, IMAGE, PIL, TENSOR, Picture, as_kind
from polyphase.pipelines.reading import OWN, V2, Step, drawn, is_random, read, why_not
from polyphase.pipelines.sources import (
    PIL_CHANNELS,
    array_dtype,
    can_be_read,
    is_array,
    is_pil,
    of_array,
    of_pil,
    of_tensor,
)
from polyphase.pipelines.stages import Ready
from polyphase.pipelines.vocabulary import NO_PARAMS, Compose, Container, Params, ToTensor
from polyphase.sampling.text import to_text

#: Any tensor's size, and no memory.
_STAND_IN = torch.empty(1)
#: So many sizes are remembered, then all are forgotten: each keeps its tables.
_MOST_READY = 256
_EXAMPLE = torch.empty(1, dtype=torch.uint8).expand(3, 480, 640)


def fuse(transform: Any) -> Pipeline:
    """A transform of torchvision (v1 or v2), of `polyphase.transforms`, an `nn.Sequential` or a list of such: as a
    callable that gives the same pictures for the same seeds, by one kernel wherever it can.

    What is not known, subclasses among it, runs as itself, between.
    """
    return Pipeline(transform)


class Pipeline:
    """Made by `fuse`. It keeps what it was given, and can be pickled if that can."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform
        self._steps = read(transform)
        self._is_fixed = not is_random(self._steps)
        self._ready: dict[Any, tuple[Ready, str]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.transform,)

    def __call__(self, *inputs: Any) -> Any:
        """As the transform it was made of: an image, or any sample that has one."""
        picture = picture_of(inputs[0]) if self._is_fixed and len(inputs) == 1 else None
        return self.walk(inputs).value() if picture is None else self._fixed(picture)

    def _fixed(self, picture: Picture) -> Any:
        """Where nothing is random, what was bound for an image is for the next of its size and kind."""
        source, given = picture.source, (picture.kind, picture.source.facts, picture.source.flipped, picture.plain)
        known = self._ready.get(given)
        if known is not None:
            return as_kind(known[0].run(source.memory), known[1])
        walk = Walk(picture)
        walk.take(self._steps)
        found = walk.leaves[0]
        ready = found.ready() if found is picture else None
        if ready is None:
            return walk.value()
        if len(self._ready) >= _MOST_READY:
            self._ready.clear()
        self._ready[given] = ready, found.kind
        return as_kind(ready.run(source.memory), found.kind)

    def walk(self, inputs: tuple[Any, ...]) -> Walk:
        """All that is drawn is drawn, and nothing is computed that need not be."""
        walk = Walk(inputs[0] if len(inputs) == 1 else inputs, unpacks=len(inputs) > 1)
        walk.take(self._steps)
        return walk

    def programs(self, image: Any) -> list[str]:
        """The texts of the programs for an image, with what the generators would give now; they stay as they are. What
        runs as itself is taken to leave the image as it is."""
        walk = Walk(image, runs=False)
        with _generators_kept():
            walk.take(self._steps)
        return [to_text(stage.program) for one in walk.pictures() for stage in one.stages()]

    def __repr__(self) -> str:
        lines = [f"  {line}" for line in _listed(self._steps)]
        try:
            programs = self.programs(_EXAMPLE)
        except Exception as error:
            programs = [f"none: {error}"]
        shown = [f"  {text}" for text in programs]
        return "\n".join(["Pipeline(", *lines, "  # of a uint8 image of (3, 480, 640), for example:", *shown, ")"])


def _listed(step: Step | Container) -> Iterator[str]:
    if isinstance(step, Step):
        yield repr(step) + ("" if step.ours is not None else "  # as itself")
        return
    if type(step) is not Compose:
        yield f"{type(step).__name__.removeprefix('_V1')}:"
    for one in step.transforms:
        for line in _listed(one):
            yield line if type(step) is Compose else f"  {line}"


@contextmanager
def _generators_kept() -> Iterator[None]:
    state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        yield
    random.setstate(state)


class Walk:
    """A sample on its way: its leaves, images among them as pictures. runs: whether anything is computed at all."""

    def __init__(self, sample: Any, *, unpacks: bool = False, runs: bool = True) -> None:
        """`unpacks`: the sample is a tuple that functions are given as so many arguments."""
        self._begin(sample)
        self._unpacks, self._runs = unpacks, runs

    def _begin(self, sample: Any) -> None:
        self._spec: TreeSpec | None = None
        picture = sample if isinstance(sample, Picture) else picture_of(sample)
        if picture is not None:
            self.leaves: list[Any] = [picture]
            return
        leaves, self._spec = tree_flatten(sample)
        self.leaves = _with_pictures(leaves)

    def pictures(self) -> list[Picture]:
        return [leaf for leaf in self.leaves if isinstance(leaf, Picture)]

    def value(self) -> Any:
        values = [leaf.value() if isinstance(leaf, Picture) else leaf for leaf in self.leaves]
        return values[0] if self._spec is None else tree_unflatten(values, self._spec)

    @property
    def spec(self) -> TreeSpec | None:
        return self._spec

    def take(self, step: Step | Container) -> None:
        if isinstance(step, Container):
            for one in step.chosen():
                self.take(one)
            return
        pictures = self.pictures()
        if step.ours is None or not pictures or (step.version not in (OWN, V2) and self._spec is not None):
            self._as_itself(step)
            return
        for picture in pictures:
            if picture.kind == ARRAY and not isinstance(step.ours, ToTensor):
                picture.becomes(ARRAY if _takes_arrays(step) else TENSOR, contiguous=True)
            reason = why_not(step, picture)
            if reason is not None:
                if step.version == OWN:
                    raise not_fused(step.ours, picture, reason)
                self._as_itself(step)
                return
        self._apply(step, pictures)

    def _apply(self, step: Step, pictures: list[Picture]) -> None:
        assert step.ours is not None, "it was read"
        params: Params | None = NO_PARAMS
        if step.ours.is_random:
            stand_ins = [_stand_in(leaf) for leaf in self.leaves if _takes_part(step, leaf)]
            params = drawn(step, stand_ins, pictures[0].height, pictures[0].width)
        if params is None:
            return
        for i, leaf in enumerate(self.leaves):
            if isinstance(leaf, Picture):
                step.ours.apply(leaf, params)
            elif _takes_part(step, leaf):
                self.leaves[i] = step.itself.transform(leaf, params)

    def _as_itself(self, step: Step) -> None:
        if not self._runs:
            for picture in self.pictures():
                picture.store()
            return
        sample = self.value()
        if step.ours is not None and step.version == OWN:
            raise not_an_image(step.ours, sample)
        self._begin(step.itself(*sample) if self._unpacks else step.itself(sample))


def picture_of(value: Any) -> Picture | None:
    """An image, if that is what it is."""
    kind = type(value)
    if kind is Tensor:
        return _of_tensor(value, TENSOR, value)
    if is_pil(value):
        return Picture(PIL, of_pil(value), value) if value.mode in PIL_CHANNELS and 0 not in value.size else None
    if is_array(value):
        fits = value.ndim in (2, 3) and 0 not in value.shape and array_dtype(value) in COMPUTED
        return Picture(ARRAY, of_array(value), value) if fits else None
    if _is_tv(kind, "Image"):
        return _of_tensor(value.as_subclass(Tensor), IMAGE, value)
    return None


def _of_tensor(tensor: Tensor, kind: str, original: Any) -> Picture | None:
    if tensor.layout != torch.strided or tensor.dim() < 3 or 0 in tensor.shape or tensor.dtype not in COMPUTED:
        return None
    return Picture(kind, of_tensor(tensor), original, plain=not can_be_read(tensor))


def _with_pictures(leaves: Sequence[Any]) -> list[Any]:
    """Images are what torchvision takes for them: its own and Pillow's; if there are none, the first tensor."""
    named = any(is_pil(leaf) or _is_tv(type(leaf), "Image", "Video") for leaf in leaves)
    found = list[Any]()
    for leaf in leaves:
        is_image = not is_array(leaf) and (not named or type(leaf) is not Tensor)
        picture = picture_of(leaf) if is_image else None
        named = named or type(leaf) is Tensor
        found.append(leaf if picture is None else picture)
    return found


def _is_tv(kind: type, *names: str) -> bool:
    return kind.__module__.startswith("torchvision.tv_tensors") and kind.__name__ in names


def _takes_part(step: Step, leaf: Any) -> bool:
    """Whether a transform is given a leaf: boxes, masks and such go the way they would have gone."""
    if isinstance(leaf, Picture):
        return True
    module = sys.modules.get("torchvision.tv_tensors")
    return step.version == V2 and module is not None and isinstance(leaf, module.TVTensor)


def _stand_in(leaf: Any) -> Any:
    return _STAND_IN.expand(leaf.shape) if isinstance(leaf, Picture) else leaf


def _takes_arrays(step: Step) -> bool:
    return type(step.ours).__name__ == "ToImage"
