"""A sample on its way through the steps of a pipeline: which of its leaves are images, and what others become."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyphase.pipelines.doing import COMPUTED_BY_PIPELINES, not_an_image, not_fused
from polyphase.pipelines.picture import ARRAY, IMAGE, PIL, TENSOR, Picture
from polyphase.pipelines.pillow import PIL_CHANNELS, is_pil, of_pil, tensor_of_pil, warped_by
from polyphase.pipelines.reading import OWN, V2, Step, drawn, why_not
from polyphase.pipelines.sources import Source, array_dtype, can_be_read, is_array, of_array, of_tensor
from polyphase.pipelines.trees import Tree, tree
from polyphase.pipelines.vocabulary import NO_PARAMS, Container, Params, PILToTensor, ToImage, ToTensor
from polyphase.pipelines.warps import Warped
from polyphase.records.facts import Sizes

#: Any tensor's size, and no memory.
_STAND_IN = torch.empty(1)
_FOR_IMAGES_ALONE = (ToImage, PILToTensor, ToTensor)


class Image(NamedTuple):
    """Before anything is done to it. original: what it was read from. plain: something is to be recorded."""

    kind: str
    source: Source
    original: Any
    plain: bool = False

    def picture(self) -> Picture:
        kind, source, original, plain = self
        return Picture(kind, source, original, plain=plain)


class Walk:
    """A sample on its way: its leaves, images among them as pictures. is_whole: no step had to run as itself."""

    def __init__(self, sample: Any, *, unpacks: bool = False, runs: bool = True) -> None:
        """`unpacks`: the sample is a tuple that functions are given as so many arguments. `runs`: whether anything is
        computed at all."""
        self._begin(sample)
        self._unpacks, self._runs, self.is_whole = unpacks, runs, True
        for picture in [] if runs else self.pictures():
            picture.only_shown = True

    def _begin(self, sample: Any) -> None:
        self.tree: Tree | None = None
        picture = sample if isinstance(sample, Picture) else picture_of(sample)
        if picture is not None:
            self.leaves: list[Any] = [picture]
            return
        self.tree = tree(sample)
        self.leaves = _with_pictures(self.tree.leaves)

    def pictures(self) -> list[Picture]:
        return [leaf for leaf in self.leaves if isinstance(leaf, Picture)]

    def value(self) -> Any:
        values = [leaf.value() if isinstance(leaf, Picture) else leaf for leaf in self.leaves]
        return values[0] if self.tree is None else self.tree.with_leaves(values)

    def take(self, step: Step | Container, drawn_before: tuple[Params | None] | None = None) -> None:
        """`drawn_before`: the parameters of a random step, where there are some."""
        if isinstance(step, Container):
            for one in step.chosen():
                self.take(one)
            return
        pictures = self.pictures()
        if step.ours is None or not pictures or (self.tree is not None and not self._are_all(step)):
            self._as_itself(step)
            return
        for picture in pictures:
            if picture.kind == ARRAY and not isinstance(step.ours, ToTensor):
                picture.becomes(ARRAY if isinstance(step.ours, ToImage) else TENSOR, contiguous=True)
            reason = why_not(step, picture)
            if reason is not None:
                if step.version == OWN:
                    raise not_fused(step.ours, picture, reason)
                self._as_itself(step)
                return
        (params,) = drawn_before or (self._drawn(step, pictures[0]),)
        if params is not None:
            self._apply(step, params)

    def _are_all(self, step: Step) -> bool:
        """Whether the pictures are what v2 takes for images within a sample. v1 takes a sample for one."""
        if step.version != V2:
            return step.version == OWN
        takes_arrays = isinstance(step.ours, (ToImage, ToTensor))
        named = any(_is_named(leaf) for leaf in self.leaves)
        for leaf in self.leaves:
            is_tensor = leaf.kind == TENSOR if isinstance(leaf, Picture) else _is_pure_tensor(leaf)
            is_image = (is_tensor and not named) or _is_named(leaf) or (takes_arrays and is_array(leaf))
            if is_image != isinstance(leaf, Picture):
                return False
            named = named or is_tensor
        return True

    def _drawn(self, step: Step, first: Picture) -> Params | None:
        assert step.ours is not None, "it was read"
        if not step.ours.is_random:
            return NO_PARAMS
        taking_part = [leaf for leaf in self.leaves if _takes_part(step, leaf)]
        stand_ins = [stand_in(leaf.shape) if isinstance(leaf, Picture) else leaf for leaf in taking_part]
        return drawn(step, stand_ins, first.height, first.width)

    def _apply(self, step: Step, params: Params) -> None:
        assert step.ours is not None, "it was read"
        for i, leaf in enumerate(self.leaves):
            if isinstance(leaf, Picture):
                step.ours.apply(leaf, params)
            elif _takes_part(step, leaf):
                self.leaves[i] = step.itself.transform(leaf, params)

    def _as_itself(self, step: Step) -> None:
        self.is_whole = False
        if not self._runs:
            for picture in self.pictures():
                picture.store()
            return
        sample = self.value()
        if step.ours is not None and step.version == OWN:
            raise not_an_image(step.ours, sample)
        if isinstance(step.ours, Warped) and is_pil(sample):
            self._begin(warped_by(step.itself, sample))
        else:
            self._begin(step.itself(*sample) if self._unpacks else step.itself(sample))


def only_picture(walk: Walk) -> Picture:
    """The picture that an image has become, as a tensor."""
    found = as_picture(walk.leaves[0]) if walk.tree is None or walk.tree.form is None else None
    if found is None:
        raise not_an_image("a batch", walk.value())
    if found.is_pixels:
        found.becomes(TENSOR)
    return found


def as_picture(result: Any) -> Picture | None:
    """A picture of what a pipeline ends with; None of what is no image. Tensors that are empty, or of dtypes that
    kernels do not compute, and Pillow's images of any mode are put together by torch."""
    if isinstance(result, Picture):
        return result
    if is_pil(result):
        result = tensor_of_pil(result)
    if not isinstance(result, Tensor) or result.layout != torch.strided:
        return None
    return Picture(TENSOR, of_tensor(result.as_subclass(Tensor)), None, plain=True)


def picture_of(value: Any) -> Picture | None:
    """An image, if that is what it is."""
    image = image_of(value)
    return None if image is None else image.picture()


def image_of(value: Any) -> Image | None:
    kind = type(value)
    if kind is Tensor:
        return _of_tensor(value, TENSOR, value)
    if is_pil(value):
        return Image(PIL, of_pil(value), value) if value.mode in PIL_CHANNELS and 0 not in value.size else None
    if is_array(value):
        fits = value.ndim in (2, 3) and 0 not in value.shape and array_dtype(value) in COMPUTED_BY_PIPELINES
        return Image(ARRAY, of_array(value), value) if fits else None
    if _is_tv(kind, "Image"):
        return _of_tensor(value.as_subclass(Tensor), IMAGE, value)
    return None


def _of_tensor(tensor: Tensor, kind: str, original: Any) -> Image | None:
    source = of_tensor(tensor)
    dtype, shape, _, _ = source.facts
    if tensor.layout != torch.strided or len(shape) < 3 or 0 in shape or dtype not in COMPUTED_BY_PIPELINES:
        return None
    return Image(kind, source, original, not can_be_read(tensor))


class Sample(NamedTuple):
    """Like a `Walk` at its end, of a sample with one image."""

    tree: Tree | None
    leaves: list[Any]


def lone_image(sample: Any) -> tuple[Sample, int, Image] | None:
    """Tells which leaf is the image of a sample with one image, and nothing else that torchvision's transforms would
    touch. None of others."""
    image = image_of(sample)
    if image is not None:
        return Sample(None, [sample]), 0, image
    found = tree(sample)
    images = _images_among(found.leaves)
    places = [place for place, one in enumerate(images) if one is not None]
    others = [leaf for leaf, one in zip(found.leaves, images, strict=True) if one is None]
    if len(places) != 1 or any(is_pil(leaf) or is_array(leaf) or _is_tv_tensor(leaf) for leaf in others):
        return None
    image = images[places[0]]
    assert image is not None, "this is its place"
    return Sample(found, found.leaves), places[0], image


def sample_of_v1(sample: Any) -> tuple[Sample, int] | None:
    """Tells which leaf is the one image of a sample, as v1's transforms take images. Pillow's images are images; if
    there are none, the first tensor is one, else the first array of pixels. None where that tells no one image."""
    found = tree(sample)
    for takes in (is_pil, lambda leaf: isinstance(leaf, Tensor), lambda leaf: is_array(leaf) and leaf.ndim > 1):
        places = [place for place, leaf in enumerate(found.leaves) if takes(leaf)]
        if places:
            return (Sample(found, found.leaves), places[0]) if takes is not is_pil or len(places) == 1 else None
    return None


def _images_among(leaves: Sequence[Any]) -> list[Image | None]:
    """Images are what torchvision takes for them: its own and Pillow's; if there are none, the first tensor."""
    named = any(_is_named(leaf) for leaf in leaves)
    found = list[Image | None]()
    for leaf in leaves:
        is_tensor = _is_pure_tensor(leaf)
        found.append(image_of(leaf) if _is_named(leaf) or (is_tensor and not named) else None)
        named = named or is_tensor
    return found


def _is_named(leaf: Any) -> bool:
    """Whether its class says that it is an image: of a sample with such, tensors are none."""
    if isinstance(leaf, Picture):
        return leaf.kind in (PIL, IMAGE)
    return is_pil(leaf) or _is_tv(type(leaf), "Image", "Video")


def _is_pure_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and not _is_tv_tensor(leaf)


def _with_pictures(leaves: Sequence[Any]) -> list[Any]:
    found = zip(leaves, _images_among(leaves), strict=True)
    return [leaf if image is None else image.picture() for leaf, image in found]


def _is_tv(kind: type, *names: str) -> bool:
    return kind.__module__.startswith("torchvision.tv_tensors") and kind.__name__ in names


def _takes_part(step: Step, leaf: Any) -> bool:
    """Whether a transform is given a leaf: boxes, masks and such go the way they would have gone."""
    if isinstance(leaf, Picture):
        return True
    is_given = step.version == V2 and not isinstance(step.ours, _FOR_IMAGES_ALONE)
    return is_given and _is_tv_tensor(leaf)


def _is_tv_tensor(leaf: Any) -> bool:
    module = sys.modules.get("torchvision.tv_tensors")
    return module is not None and isinstance(leaf, module.TVTensor)


@functools.lru_cache(maxsize=256)
def stand_in(shape: Sizes) -> Tensor:
    """Makes what stands for an image where parameters are drawn."""
    return _STAND_IN.expand(shape)
