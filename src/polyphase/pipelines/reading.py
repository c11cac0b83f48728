"""From torchvision's transforms, or ours, to the steps of a pipeline. torchvision is not imported: whoever has its
objects has done that. Classes are known by exact type; a subclass may do anything."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from polyphase.errors import PolyphaseError, WrongArgumentTypeError
from polyphase.pipelines import sizes, vocabulary, warps
from polyphase.pipelines.drawing import Drawer, Known, drawer_of, numbers
from polyphase.pipelines.given import amounts_of
from polyphase.pipelines.grids import perspective_coefficients
from polyphase.pipelines.picture import IMAGE, NEAREST
from polyphase.pipelines.vocabulary import NO_PARAMS, Compose, Container, Params, ToDtype, Transform

OWN, V1, V2 = "polyphase.transforms", "torchvision.transforms", "torchvision.transforms.v2"

#: By name, which is torchvision's too.
_KNOWN: dict[str, Any] = {
    name: one
    for module in (vocabulary, sizes, warps)
    for name, one in vars(module).items()
    if isinstance(one, type) and issubclass(one, (Transform, Container)) and not name.startswith("_")
}

#: How v1 differs, by our names.
_AS_V1: dict[str, dict[str, Any]] = {
    "Resize": {"in_floats": True},
    "RandomResizedCrop": {"in_floats": True},
    "CenterCrop": {"as_batch": True},
    "RandomCrop": {"as_v1": True},
    "ConvertImageDtype": {"divides": True},
    "RandomRotation": {"as_v1": True},
    "RandomAffine": {"as_v1": True},
    "RandomPerspective": {"as_v1": True},
    "RandomApply": {"with_p": True},
    "RandomChoice": {"by_python": True},
    "RandomOrder": {"by_python": True},
}
_LEFT_TO_PILLOW = (
    sizes.CenterCrop,
    sizes.RandomCrop,
    sizes.Pad,
    sizes.RandomZoomOut,
    sizes.RandomHorizontalFlip,
    sizes.RandomVerticalFlip,
)
RESIZES = (sizes.Resize, sizes.RandomResize, sizes.RandomShortestSize, sizes.ScaleJitter, sizes.RandomResizedCrop)
#: Of several images, whose dimensions v2 takes for one, and v1 as they are.
_RESHAPED_BY_V2 = ("Resize", "RandomResizedCrop", "Pad", "RandomCrop", "CenterCrop")
_AS_V2: dict[str, dict[str, Any]] = {"ToImage": {"to": IMAGE}, "RandomChoice": {"are_shares": True}}


@dataclass(frozen=True)
class Step:
    """ours: None where a transform is not known. itself: the object it was read from, for what is no image."""

    ours: Transform | None
    itself: Any
    version: str = OWN

    @functools.cached_property
    def drawer(self) -> Drawer | None:
        return None if self.ours is None else drawer_of(self.ours.draws())

    @functools.cached_property
    def known(self) -> Known | None:
        """What is known of torchvision's own transform; None of one that was made under another default dtype."""
        logarithms = getattr(self.itself, "_log_ratio", None)
        return Known(self.ours, self.itself) if logarithms is None or logarithms.dtype == torch.float32 else None

    def __repr__(self) -> str:
        return repr(self.itself) if self.ours is None else repr(self.ours)


def read(transform: Any) -> Step | Container:
    if type(transform) in (list, tuple) or type(transform) is torch.nn.Sequential:
        return Compose(tuple(map(read, transform)))
    if isinstance(transform, Container):
        return replace(transform, transforms=tuple(map(read, transform.transforms)))
    if isinstance(transform, Transform):
        return Step(transform, transform)
    if not callable(transform):
        raise WrongArgumentTypeError(
            f"fuse of a {type(transform).__name__}; give transforms of torchvision or of polyphase.transforms, a list "
            "of them, or any function of an image"
        )
    version, name = _version(transform), type(transform).__name__
    if version is None or name not in _KNOWN:
        return Step(None, transform, version or OWN)
    try:
        return _known(transform, version, _KNOWN[name])
    except (PolyphaseError, TypeError):  # with arguments that torchvision does not look at before it runs
        return Step(None, transform, version)


def _known(transform: Any, version: str, ours: Callable[..., Any]) -> Step | Container:
    name = type(transform).__name__
    given: dict[str, Any] = {
        one.name: getattr(transform, one.name)
        for one in fields(ours)  # type: ignore[arg-type]
        if one.init and hasattr(transform, one.name)
    }
    given |= (_AS_V1 if version == V1 else _AS_V2).get(name, {})
    if "transforms" in given:
        return ours(**(given | {"transforms": tuple(map(read, given["transforms"]))}))  # type: ignore[no-any-return]
    if name == "RandomCrop" and version == V2 and given["padding"] is not None:
        left, right, top, bottom = given["padding"]
        given["padding"] = (left, top, right, bottom)
    return Step(ours(**given), transform, version)


def is_random(step: Step | Container) -> bool:
    """Whether one image may become another at the next call; nobody knows of what is not known."""
    if isinstance(step, Step):
        return step.ours is None or step.ours.is_random
    return type(step) is not Compose or any(map(is_random, step.transforms))


def is_left_to_pillow(transform: Any, step: Step | Container, *, in_turn: bool = True) -> bool:
    """Whether torchvision's own transforms do to a Pillow image all that this does, as quickly as programs would: its
    pixels are only moved, or changed by transforms that are not known; and what Pillow warps slowly is one of steps
    that are taken in turn. `step`: what the transform was read into."""
    if isinstance(step, Container):
        inner, in_turn = parts_of(transform), in_turn and type(step) is Compose
        is_torchvisions = (
            inner is transform or type(transform) is torch.nn.Sequential or _version(transform) is not None
        )
        parts = zip(inner, step.transforms, strict=True)
        return is_torchvisions and all(is_left_to_pillow(*part, in_turn=in_turn) for part in parts)
    is_nearest = getattr(step.ours, "interpolation", None) in NEAREST
    kinds = (*_LEFT_TO_PILLOW, *(RESIZES if is_nearest else ()), *((warps.Warped,) if is_nearest or in_turn else ()))
    return step.version != OWN and (step.ours is None or isinstance(step.ours, kinds))


def parts_of(transform: Any) -> Any:
    """The transforms that one of several was read from."""
    lists = type(transform) in (list, tuple) or type(transform) is torch.nn.Sequential
    return transform if lists else transform.transforms


def takes_images_alone(transform: Any) -> bool:
    """Whether there is one of v1's transforms, or a subclass of one: such do not look for the image within a sample."""
    parts = transform if isinstance(transform, (list, tuple)) else getattr(transform, "transforms", ())
    parts = transform if type(transform) is torch.nn.Sequential else parts
    is_v1 = any(_version_of(kind) == V1 for kind in type(transform).__mro__)
    return is_v1 or (isinstance(parts, Iterable) and any(map(takes_images_alone, parts)))


def is_a_transform(step: Step | Container) -> bool:
    """Whether there is one of torchvision's or of ours, or a subclass of one."""
    if isinstance(step, Container):
        return any(map(is_a_transform, step.transforms))
    return step.ours is not None or any(map(_version_of, type(step.itself).__mro__))


def _version(transform: object) -> str | None:
    return _version_of(type(transform))


def _version_of(kind: type) -> str | None:
    module = kind.__module__ + "."
    return V2 if module.startswith(V2 + ".") else V1 if module.startswith(V1 + ".") else None


# ---- random parameters


def drawn(step: Step, flat_inputs: list[Any], height: int, width: int) -> Params | None:
    """Draws the parameters of a transform that is random. `flat_inputs`: what v2's function is given, with a stand-in
    for each image."""
    ours = step.ours
    assert ours is not None, "what is not known draws for itself"
    if step.version == OWN:
        return ours.params(numbers(step.drawer, ours.draws(), height, width), height, width)
    plainly = functools.partial(_by_torchvision, step, flat_inputs, height, width)
    known = step.known if len(flat_inputs) == 1 else None  # of several, torchvision compares the sizes
    return plainly() if known is None else known.params(plainly, height, width)


def _by_torchvision(step: Step, flat_inputs: list[Any], height: int, width: int) -> Params | None:
    if step.version == V2:
        if hasattr(step.itself, "p") and torch.rand(1) >= step.itself.p:
            return None
        return step.itself.make_params(flat_inputs)  # type: ignore[no-any-return]
    return _V1_DRAWS[type(step.ours).__name__](step.itself, flat_inputs[0], height, width)


def _v1_flip(own: Any, image: Any, height: int, width: int) -> Params | None:
    return NO_PARAMS if torch.rand(1) < own.p else None


def _v1_perspective(own: Any, image: Any, height: int, width: int) -> Params | None:
    if torch.rand(1) >= own.p:
        return None
    return {"coefficients": perspective_coefficients(*own.get_params(width, height, own.distortion_scale))}


def _v1_affine(own: Any, image: Any, height: int, width: int) -> Params:
    found = own.get_params(own.degrees, own.translate, own.scale, own.shear, [width, height])
    return dict(zip(("angle", "translate", "scale", "shear"), found, strict=True))


def _v1_resized_crop(own: Any, image: Any, height: int, width: int) -> Params:
    return dict(zip(("top", "left", "height", "width"), own.get_params(image, own.scale, own.ratio), strict=True))


def _v1_crop(own: Any, image: Any, height: int, width: int) -> Params:
    given = (own.padding,) if isinstance(own.padding, int) else tuple(own.padding or (0,))
    left, top, right, bottom = {1: given * 4, 2: given * 2}.get(len(given), given)
    rows, columns = height + top + bottom, width + left + right
    if own.pad_if_needed:
        down, across = max(own.size[0] - rows, 0), max(own.size[1] - columns, 0)
        left, right, top, bottom = left + across, right + across, top + down, bottom + down
        rows, columns = rows + 2 * down, columns + 2 * across
    found = own.get_params(image[..., :1, :1].expand(*image.shape[:-2], rows, columns), own.size)
    return dict(zip(("top", "left", "height", "width"), found, strict=True)) | {"padding": [left, top, right, bottom]}


_V1_DRAWS: dict[str, Callable[[Any, Any, int, int], Params | None]] = {
    "RandomHorizontalFlip": _v1_flip,
    "RandomVerticalFlip": _v1_flip,
    "RandomPerspective": _v1_perspective,
    "RandomRotation": lambda own, image, height, width: {"angle": own.get_params(own.degrees)},
    "RandomAffine": _v1_affine,
    "RandomResizedCrop": _v1_resized_crop,
    "RandomCrop": _v1_crop,
}


def why_not(step: Step, picture: Any) -> str | None:
    """As `Transform.why_not`, and what v1 is not asked for."""
    ours = step.ours
    assert ours is not None, "what is not known is never part of a program"
    if picture.patches is not None:
        return "its patches are no image any more: put Patches at the end"
    if step.version == OWN:
        return ours.why_not(picture)
    if picture.plain:
        return "something is to be recorded"
    if isinstance(ours, ToDtype) and ours.scales_nothing(picture):
        return "torchvision warns that no scaling will be done"
    return (_why_not_in_v1(step, picture) if step.version == V1 else None) or ours.why_not(picture)


def _why_not_in_v1(step: Step, picture: Any) -> str | None:
    name = type(step.ours).__name__
    to_tensor = name in ("ToTensor", "PILToTensor")
    if picture.kind == IMAGE or (to_tensor and not picture.is_pixels):
        return "v1 knows no such images"
    if name == "ConvertImageDtype" and picture.is_pixels:
        return "v1 converts tensors only"
    if name in ("Pad", "RandomCrop") and not picture.is_pixels and isinstance(step.itself.fill, (tuple, list)):
        return "v1 has no colours around a tensor"
    if name in _RESHAPED_BY_V2 and (len(picture.shape) > 4 or (len(picture.shape) == 4 and 1 in picture.shape)):
        return "v1 does not take such images for one batch"
    if name == "RandomCrop" and step.itself.padding and step.itself.pad_if_needed:
        return "v1 pads twice"
    if name == "RandomCrop" and step.itself.padding and min(amounts_of(step.itself.padding)) < 0:
        return "v1 pads before it draws, which may crop too much"
    return None
