"""While a graph is traced: the operators we take stay whole, on devices that have kernels. Elsewhere everything
is as torch has it.

ATen's own operators reach the functional graph then, their autograd, vmap and autocast rules included. torch would take
them apart in three places: Python kernels attached to the overloads, the same under CompositeImplicitAutograd, and
Inductor's decomposition table. All are for the whole process; this holds while a graph is traced, in its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from polyphase.calls.devices import has_kernels
from polyphase.calls.plain import DTYPES
from polyphase.compile.recognise import ATEN_OPERATORS, is_taken_apart
from polyphase.decompositions.precedence import built_ins_replaced
from polyphase.decompositions.upsample import Family, overloads, vectors_as_default
from polyphase.decompositions.warp import affine_grid_generator
from polyphase.records.layout import has_contiguous_gradient
from polyphase.torch_private import OpOverload, select_decomp_table, suggest_memory_format


@contextmanager
def kept_whole() -> Iterator[None]:
    ours_instead = {**vectors_as_default(), torch.ops.aten.affine_grid_generator.default: affine_grid_generator}
    ours = list(ATEN_OPERATORS)
    shapes: dict[Any, Callable[..., Tensor]] = {}
    for family, forward, backward in overloads():
        shapes |= {forward.default: _image_without_data, backward.default: _gradient_without_data(family)}
    # Inductor's own table, as a table of one's own would keep graphs from being cached.
    kernels = {**dict.fromkeys(ours), **ours_instead}
    with built_ins_replaced(kernels, where=_is_ours, shapes=shapes, tables=[select_decomp_table()]):
        yield


def _image_without_data(image: Tensor, output_size: list[int], *options: Any) -> Tensor:
    """A resized image lies in memory as the image does. torch's own rules are of its decompositions, which give few
    channels on a GPU another order than eager."""
    result = image.new_empty((*image.shape[:2], *output_size))
    return result.contiguous(memory_format=suggest_memory_format(image))


def _gradient_without_data(family: Family) -> Callable[..., Tensor]:
    """A resize's gradient lies in memory as the gradient that came in, or is contiguous."""

    def gradient(grad_output: Tensor, output_size: list[int], input_size: list[int], *options: Any) -> Tensor:
        result = grad_output.new_empty(input_size)
        if has_contiguous_gradient(family.step, family.axes):
            return result
        return result.contiguous(memory_format=suggest_memory_format(grad_output))

    return gradient


def _is_ours(op: OpOverload, *args: Any, **kwargs: Any) -> bool:
    if is_taken_apart(op, args, kwargs):
        return False
    tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
    return bool(tensors) and all(has_kernels(one.device.type) and one.dtype in DTYPES for one in tensors)
