"""Transforms whose steps follow from an image's size, as bytes: the `SizeStep` of `launch/ways.h`."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from polyphase.kernels.recipes import NUMBERS, RECORD, Recipe
from polyphase.pipelines.picture import NEAREST, PIL
from polyphase.pipelines.pillow import COLUMNS_FIRST, order_of_sums
from polyphase.pipelines.sizes import CenterCrop, Resize
from polyphase.pipelines.vocabulary import PILToTensor, ToImage, ToPureTensor, ToTensor, Transform

_RECORD = struct.Struct(f"=7q{RECORD}")
_SHORTER, _LONGER, _TO, _CENTRE = range(4)
_MOST = 32  # as many have marks


def packed(transforms: Sequence[Transform], kind: str) -> bytes | None:
    """For images that are of a kind at first. None where one of the transforms is not known to C++."""
    records, of_pillow = list[bytes](), kind == PIL
    for one in transforms:
        if type(one) is Resize:
            order = order_of_sums() if of_pillow else COLUMNS_FIRST
            if order is None or (of_pillow and one.interpolation in NEAREST):
                return None  # Pillow does that
            records.append(_RECORD.pack(*_target(one), *order, *_resized(one, of_pillow)))
        elif type(one) is CenterCrop:
            records.append(_RECORD.pack(_CENTRE, *one.size, *COLUMNS_FIRST, *[0] * NUMBERS))
        elif isinstance(one, (ToImage, ToTensor, PILToTensor)):
            of_pillow = False
        elif not isinstance(one, ToPureTensor):
            return None
    return b"".join(records) if len(records) <= _MOST else None


def _target(one: Resize) -> tuple[int, int, int]:
    if one.size is None:
        assert one.max_size is not None, "one of both is there"
        return _LONGER, one.max_size, 0
    return (_TO, *one.size) if len(one.size) == 2 else (_SHORTER, one.size[0], one.max_size or 0)


def _resized(one: Resize, of_pillow: bool) -> Recipe:
    """Its step, but for the size. Pillow always smooths."""
    recipe, mode = Recipe(), one.interpolation
    if mode in NEAREST:
        recipe.nearest(0, mode == "nearest-exact")
    else:
        recipe.resize(0, mode, of_pillow or bool(one.antialias))
    return recipe
