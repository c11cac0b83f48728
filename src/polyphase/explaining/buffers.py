"""What lies in memory around and between the kernels of a graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from polyphase.explaining.model import Buffer
from polyphase.torch_private import GraphLowering, Layout, NoneLayout, NonOwningLayout, TensorBox


def buffers_of(graph: GraphLowering) -> Iterator[Buffer]:
    outputs = set(graph.get_output_names())
    for name, value in graph.graph_inputs.items():
        if isinstance(value, TensorBox):
            yield _buffer(graph, name, "input", value)
    for buffer in graph.buffers:
        name = buffer.get_name()
        if name in graph.removed_buffers or name in graph.inplaced_to_remove or not _is_tensor(buffer):
            continue
        yield _buffer(graph, name, "output" if name in outputs else "between", buffer, _remark(buffer))


def _is_tensor(buffer: Any) -> bool:
    """Whether a buffer has memory of its own, and is not a part of another one."""
    layout = buffer.maybe_get_layout()
    return isinstance(layout, Layout) and not isinstance(layout, (NoneLayout, NonOwningLayout))


def _buffer(graph: GraphLowering, name: str, role: str, value: Any, remark: str = "") -> Buffer:
    shape, strides, dtype = value.get_size(), value.get_stride(), value.get_dtype()
    numbers = [number(graph, n) for n in shape]
    return Buffer(
        name, role, str(dtype), tuple(map(str, shape)), tuple(map(str, strides)),
        format_of(numbers, [number(graph, n) for n in strides]), math.prod(numbers) * dtype.itemsize, remark,
    )  # fmt: skip


def number(graph: GraphLowering, size: Any) -> int:
    """A size as an integer: a symbolic one as it was in the example."""
    return (
        int(graph.sizevars.shape_env.replace(size).xreplace(_hints(graph))) if hasattr(size, "xreplace") else int(size)
    )


def _hints(graph: GraphLowering) -> dict[Any, Any]:
    environment = graph.sizevars.shape_env
    name = "backed_var_to_val" if hasattr(environment, "backed_var_to_val") else "var_to_val"
    return dict(getattr(environment, name))


def format_of(shape: Sequence[int], strides: Sequence[int]) -> str:
    """The memory format's name, by the order in which dimensions of more than one element lie."""
    wide = [(stride, dim) for dim, (n, stride) in enumerate(zip(shape, strides, strict=True)) if n > 1]
    order = [dim for _, dim in sorted(wide, reverse=True)]
    if order == sorted(order):
        return "contiguous" if _dense(shape, strides, order) else "contiguous rows with gaps"
    last = [dim for dim in (0, *range(2, len(shape)), 1) if shape[dim] > 1]
    if len(shape) in (4, 5) and order == last:
        return "channels last"
    return f"dimensions in the order {order}"


def _dense(shape: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    expected = 1
    for dim in reversed(order):
        if strides[dim] != expected:
            return False
        expected *= shape[dim]
    return True


def _remark(buffer: Any) -> str:
    """A remark on a copy into another memory order, which is work that nobody asked for; else nothing."""
    origins = {str(one.target) for one in buffer.get_origins() if one.op == "call_function"}
    if origins == {"aten.clone.default"}:
        return "a layout copy: the same values in another memory order"
    return ""
