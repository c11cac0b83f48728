"""Transforms whose steps follow from an image's size, as bytes: the `SizeStep` of `launch/ways.h`."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from polyphase.kernels.recipes import NUMBERS, RECORD, Recipe
from polyphase.pipelines.picture import NEAREST
from polyphase.pipelines.sizes import CenterCrop, Resize
from polyphase.pipelines.vocabulary import PILToTensor, ToImage, ToPureTensor, ToTensor, Transform

_RECORD = struct.Struct(f"=3q{RECORD}")
_SHORTER, _LONGER, _TO, _CENTRE = range(4)
_MOST = 32  # as many have marks


def packed(transforms: Sequence[Transform]) -> bytes | None:
    """Of tensors and arrays: Pillow has rules of its own. None where one of them is not known to C++."""
    records = list[bytes]()
    for one in transforms:
        if type(one) is Resize:
            records.append(_RECORD.pack(*_target(one), *_resized(one)))
        elif type(one) is CenterCrop:
            records.append(_RECORD.pack(_CENTRE, *one.size, *[0] * NUMBERS))
        elif not isinstance(one, (ToImage, ToTensor, PILToTensor, ToPureTensor)):
            return None
    return b"".join(records) if len(records) <= _MOST else None


def _target(one: Resize) -> tuple[int, int, int]:
    if one.size is None:
        assert one.max_size is not None, "one of both is there"
        return _LONGER, one.max_size, 0
    return (_TO, *one.size) if len(one.size) == 2 else (_SHORTER, one.size[0], one.max_size or 0)


def _resized(one: Resize) -> Recipe:
    """Its step, but for the size."""
    recipe, mode = Recipe(), one.interpolation
    if mode in NEAREST:
        recipe.nearest(0, mode == "nearest-exact")
    else:
        recipe.resize(0, mode, bool(one.antialias))
    return recipe
