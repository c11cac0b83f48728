"""An axis map for a size becomes taps."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.steps import Size, Weighted, output_size
from polyphase.sampling.taps import Taps, identity
from polyphase.sampling.windows import TapArithmetic, index_taps, weighted_taps


def evaluate(axis_map: AxisMap, in_size: Size, arithmetic: TapArithmetic, device: torch.device | None = None) -> Taps:
    """The taps of a whole map. Weights are quantised before any later step selects among them."""
    taps, size = None, in_size
    for step in axis_map.steps:
        size_after = output_size(step, size)  # raises where the step does not fit
        if isinstance(step, Weighted):
            own = weighted_taps(step, size, arithmetic, device)
            taps = own if taps is None else own.reading(taps.index[0], in_size)  # after crops and flips: one tap each
        else:
            own = index_taps(step, size, arithmetic, device)
            taps = own if taps is None else _follow(taps, own)
        size = size_after
    return identity(in_size, device) if taps is None else taps


def _follow(taps: Taps, index_only: Taps) -> Taps:
    if index_only.index.shape[0] == 0:  # a border around an empty axis
        return replace(index_only, in_size=taps.in_size)
    rows = taps.rows(index_only.index[0])
    return replace(rows, border=_outer(rows.border, index_only.border))


def _outer(inner: Tensor | None, outer: Tensor | None) -> Tensor | None:
    """A later border lies around an earlier one and has the greater number."""
    if inner is None or outer is None:
        return inner if outer is None else outer
    return torch.maximum(inner, outer)
