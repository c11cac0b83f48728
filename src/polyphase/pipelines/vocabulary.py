"""The transforms a pipeline knows: what they are, and those of values, kinds of images, and other transforms.

By torchvision's names and with its arguments and meaning (that of v2). Each is data: what `fuse` reads torchvision's
objects into, and what people without torchvision write. It says what it draws (`draws`), which is torchvision's numbers
in its order, and three questions are asked of it for every image: `why_not`, a reason where it cannot be part of a
program; `params`, of what was drawn, None where nothing is to be done; and `apply`.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase.errors import WrongArgumentError, warn
from polyphase.pipelines.doing import COMPUTED_BY_PIPELINES, SMALL
from polyphase.pipelines.drawing import Drawer, drawer_of, numbers
from polyphase.pipelines.draws import Chance, Choice, Draws, Order
from polyphase.pipelines.given import check_probability, for_kind
from polyphase.pipelines.picture import ARRAY, IMAGE, PIL, TENSOR, Picture
from polyphase.sampling.pointwise import Binary, Cast, Number

Params: TypeAlias = Mapping[str, Any]
NO_PARAMS: Params = {}


@dataclass(frozen=True)
class Transform:
    """What all have in common."""

    def why_not(self, picture: Picture) -> str | None:
        """None where it can be part of a program."""
        return None

    def draws(self) -> Draws:
        return ()

    def params(self, drawn: Iterator[float], height: int, width: int) -> Params | None:
        """Makes the parameters for an image of this size, of numbers of which its own come next."""
        return NO_PARAMS

    def apply(self, picture: Picture, params: Params) -> None:
        raise NotImplementedError

    @property
    def is_random(self) -> bool:
        return type(self).draws is not Transform.draws


# ---- from other kinds of images to tensors


@dataclass(frozen=True)
class ToImage(Transform):
    """Makes a tensor image of the same values: one of torchvision's where the transform is torchvision's."""

    to: str = field(default=TENSOR, repr=False)

    def apply(self, picture: Picture, params: Params) -> None:
        if picture.kind != IMAGE:
            picture.becomes(self.to, contiguous=picture.kind == ARRAY)


@dataclass(frozen=True)
class PILToTensor(Transform):
    """A Pillow image to a tensor of its bytes."""

    def apply(self, picture: Picture, params: Params) -> None:
        if picture.kind == PIL:
            picture.becomes(TENSOR)


@dataclass(frozen=True)
class ToTensor(Transform):
    """Makes a tensor of the default dtype, from 0 to 1, where the image is a Pillow image or an array of bytes."""

    def apply(self, picture: Picture, params: Params) -> None:
        if picture.kind not in (PIL, ARRAY):
            return
        picture.becomes(TENSOR, contiguous=True)
        if picture.dtype == torch.uint8:
            dtype = torch.get_default_dtype()
            picture.compute(lambda of: Binary("div", Cast(of, dtype), Number(255)), dtype)


@dataclass(frozen=True)
class ToPureTensor(Transform):
    """torchvision's kind of tensor to a plain one."""

    def apply(self, picture: Picture, params: Params) -> None:
        if picture.kind == IMAGE:
            picture.becomes(TENSOR)


# ---- arithmetic


@dataclass(frozen=True)
class ToDtype(Transform):
    """Converts to another dtype; with `scale`, from the range of one to that of the other, as 0 to 255 to 0 to 1."""

    dtype: Any
    scale: bool = False
    divides: bool = field(default=False, repr=False)  # how v1 scales integers to floats; v2 by the reciprocal

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, (torch.dtype, Mapping)):
            raise WrongArgumentError(f"ToDtype({self.dtype!r}); give a torch.dtype, such as torch.float32")

    def why_not(self, picture: Picture) -> str | None:
        target = self._target(picture)
        if picture.kind == PIL or target is None or target == picture.dtype:
            return None
        if not isinstance(target, torch.dtype):
            return "there is no dtype for this kind of image"
        if picture.dtype not in COMPUTED_BY_PIPELINES or target not in COMPUTED_BY_PIPELINES:
            return f"kernels do not compute {picture.dtype} to {target}"
        if self.scale and not target.is_floating_point and target not in SMALL:
            return f"{target} holds more than floats do"
        if self.scale and not target.is_floating_point and not picture.dtype.is_floating_point:
            return "integers are scaled to integers by shifts"
        return None

    def _target(self, picture: Picture) -> Any:
        if isinstance(self.dtype, torch.dtype):
            return self.dtype
        return for_kind(self.dtype, picture.kind, "missing")

    def scales_nothing(self, picture: Picture) -> bool:
        """Whether it is to scale images of a kind that it leaves as they are, which torchvision warns of."""
        return self.scale and picture.kind != PIL and self._target(picture) is None

    def apply(self, picture: Picture, params: Params) -> None:
        if self.scales_nothing(picture):
            warn("ToDtype with scale=True and no dtype for this kind of image: no scaling will be done. Give a dtype")
        source, target = picture.dtype, self._target(picture)
        if picture.kind == PIL or target is None or target == source:
            return
        if not self.scale or source.is_floating_point == target.is_floating_point:
            picture.compute(lambda of: Cast(of, target), target)
        elif source.is_floating_point:
            most = float(torch.iinfo(target).max)
            picture.compute(lambda of: Cast(Binary("mul", of, Number(most + 1.0 - 1e-3)), target), target)
        else:
            most = torch.iinfo(source).max if source != torch.bool else 1
            scaled = ("div", Number(float(most))) if self.divides else ("mul", Number(1.0 / most))
            picture.compute(lambda of: Binary(scaled[0], Cast(of, target), scaled[1]), target)


@dataclass(frozen=True)
class ConvertImageDtype(ToDtype):
    """`ToDtype` with `scale=True`."""

    dtype: Any = torch.float32
    scale: bool = field(default=True, init=False, repr=False)


@dataclass(frozen=True)
class Normalize(Transform):
    """(image - mean) / std, channel by channel, of an image of floats."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    inplace: bool = False

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            object.__setattr__(self, name, tuple(map(float, getattr(self, name))))

    def why_not(self, picture: Picture) -> str | None:
        if picture.kind == PIL:
            return "it is a Pillow image: put ToImage() and ToDtype(torch.float32, scale=True) before"
        if not picture.dtype.is_floating_point:
            return f"its values are {picture.dtype}: put ToDtype(torch.float32, scale=True) before"
        if 0.0 in self.std:
            return "a standard deviation is 0"
        counts = {len(self.mean), len(self.std)}
        if counts != {picture.channels}:
            return (
                f"it has {picture.channels} channels, and there are {len(self.mean)} means and {len(self.std)} "
                "standard deviations: convert the image, as with image.convert('RGB'), or give as many of each"
            )
        return None

    def apply(self, picture: Picture, params: Params) -> None:
        if self.inplace and picture.is_view:
            picture.in_place(self._in_place)
        else:
            picture.normalise(self.mean, self.std)

    def _in_place(self, image: Tensor) -> Tensor:
        mean, std = (torch.tensor(one, dtype=image.dtype, device=image.device) for one in (self.mean, self.std))
        return image.sub_(mean[:, None, None]).div_(std[:, None, None])


@dataclass(frozen=True)
class Patches(Transform):
    """Cuts into patches of `size` times `size` pixels, as models want: (patches, values of one). The last of a chain.

    Patches go along rows, `merge` times `merge` of them at a time. The values of one are (channels, rows, columns), or
    (rows, columns, channels) with `channels_last`; and everything is there `frames` times, after the channel. Vision
    transformers take `Patches(16)`, Qwen2-VL and its kin `Patches(14, merge=2, frames=2)`.
    """

    size: int
    merge: int = 1
    frames: int = 1
    channels_last: bool = False

    def __post_init__(self) -> None:
        for name in ("size", "merge", "frames"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise WrongArgumentError(f"{name}={getattr(self, name)!r}; give a whole number of 1 or more")

    def why_not(self, picture: Picture) -> str | None:
        if picture.is_pixels:
            return "it is no tensor yet: put ToImage() before"
        if len(picture.shape) < 3:
            return f"it has the shape {tuple(picture.shape)}: (..., channels, height, width)"
        step = self.size * self.merge
        if picture.height % step or picture.width % step:
            return f"{(picture.height, picture.width)} pixels are not so many times {step}: resize or pad it before"
        return None

    def apply(self, picture: Picture, params: Params) -> None:
        picture.cut(self.size, self.merge, self.frames, self.channels_last)


# ---- transforms of transforms


@dataclass(frozen=True)
class Container:
    """Transforms, some of which are done: `chosen` draws which, and in what order."""

    transforms: Sequence[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "transforms", tuple(self.transforms))
        if not self.transforms:
            raise WrongArgumentError(f"{type(self).__name__} of no transforms; give one at least")

    def draws(self) -> Draws:
        return ()

    def chosen_by(self, drawn: Iterator[float]) -> Sequence[Any]:
        return self.transforms

    @functools.cached_property
    def drawer(self) -> Drawer | None:
        return drawer_of(self.draws())

    def chosen(self) -> Sequence[Any]:
        return self.chosen_by(numbers(self.drawer, self.draws(), 1, 1))


@dataclass(frozen=True)
class Compose(Container):
    """One after the other; a list is one too."""


@dataclass(frozen=True)
class RandomApply(Container):
    """All of them with probability `p`, else none."""

    p: float = 0.5
    with_p: bool = field(default=False, repr=False)  # as v1 compares

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(self.p)

    def draws(self) -> Draws:
        return (Chance(self.p, with_p=self.with_p),)

    def chosen_by(self, drawn: Iterator[float]) -> Sequence[Any]:
        return self.transforms if next(drawn) else ()


@dataclass(frozen=True)
class RandomChoice(Container):
    """One of them, by their probabilities `p` where given."""

    p: Any = None
    by_python: bool = field(default=False, repr=False)  # as v1 draws, by Python's generator
    are_shares: bool = field(default=False, repr=False)  # of 1, as v2 keeps them

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p is not None and len(self.p) != len(self.transforms):
            raise WrongArgumentError(f"{len(self.p)} probabilities for {len(self.transforms)} transforms; give as many")

    def draws(self) -> Draws:
        if self.by_python:
            return ()
        given = [1] * len(self.transforms) if self.p is None else self.p
        return (Choice(tuple(given if self.are_shares else [one / sum(given) for one in given])),)

    def chosen_by(self, drawn: Iterator[float]) -> Sequence[Any]:
        if self.by_python:
            return random.choices(self.transforms, weights=self.p)
        return (_numbered(next(drawn), self.transforms),)


@dataclass(frozen=True)
class RandomOrder(Container):
    """All of them, in a random order."""

    by_python: bool = field(default=False, repr=False)

    def draws(self) -> Draws:
        return () if self.by_python else (Order(len(self.transforms)),)

    def chosen_by(self, drawn: Iterator[float]) -> Sequence[Any]:
        if not self.by_python:
            return [_numbered(next(drawn), self.transforms) for _ in self.transforms]
        order = list(self.transforms)
        random.shuffle(order)
        return order


def _numbered(number: float, transforms: Sequence[Any]) -> Any:
    """Found by comparing, so that it can be recorded which one it was."""
    return next(one for i, one in enumerate(transforms) if number == i)
