"""How a launcher asks a tensor where it lies and how large it is, without a call of Python's.

torch's stable C interface takes the handle of a tensor. Where in a Python tensor that is, no interface says: it is
looked for, in tensors whose handle is known, and what the functions say of them has to be what the tensors say
themselves. Where it is not found, launchers call the tensors' methods.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from polyphase.torch_private import cdata_of, library_of_torch

NAMES = ("aoti_torch_get_dim", "aoti_torch_get_sizes", "aoti_torch_get_strides", "aoti_torch_get_data_ptr")

_POINTER = ctypes.sizeof(ctypes.c_void_p)


def use_handles(read_by_handles: Callable[[type, bytes], None]) -> None:
    """A launcher's function is told, where there is something to tell."""
    try:
        with ThreadPoolExecutor(1) as thread:  # a new one has no mode or transform on, whatever this one has
            found = thread.submit(packed).result()
    except RuntimeError:  # there can be no threads any more, as the process ends
        found = None
    if found is not None:
        read_by_handles(Tensor, found)


@functools.cache
def packed() -> bytes | None:
    """`TensorFunctions` of `launch/tensors.h`; None where handles are not found."""
    dense, bytes_apart = torch.zeros(2, 3, device="cpu"), torch.zeros(5, dtype=torch.uint8, device="cpu")[1::2]
    samples = [dense, bytes_apart, torch.zeros(1, 1, 4, device="cpu", requires_grad=True).mT]
    place = _place_of_handle(samples)
    try:
        library = ctypes.CDLL(library_of_torch)
        functions = [getattr(library, name) for name in NAMES]
    except (OSError, AttributeError):
        return None
    if place is None or not all(_are_right(functions, place, one) for one in samples):
        return None
    return struct.pack("=5q", place, *[ctypes.cast(one, ctypes.c_void_p).value for one in functions])


def _place_of_handle(samples: list[Tensor]) -> int | None:
    """A handle is the address of the pointer that a Python tensor has to torch's own; `cdata_of` says that pointer."""
    if cdata_of is None or library_of_torch is None:
        return None
    for place in range(object.__basicsize__, torch.Tensor.__basicsize__ - _POINTER + 1, _POINTER):
        if all(ctypes.c_void_p.from_address(id(one) + place).value == cdata_of(one) for one in samples):
            return place
    return None


def _are_right(functions: list[Callable[..., int]], place: int, tensor: Tensor) -> bool:
    dim, sizes, strides, data = (
        ctypes.c_int64(),
        *(ctypes.POINTER(ctypes.c_int64)() for _ in range(2)),
        ctypes.c_void_p(),
    )
    handle = ctypes.c_void_p(id(tensor) + place)
    failed = [
        function(handle, ctypes.byref(one))
        for function, one in zip(functions, (dim, sizes, strides, data), strict=True)
    ]
    rank = tensor.dim()
    return (
        not any(failed)
        and dim.value == rank
        and tuple(sizes[:rank]) == tuple(tensor.shape)
        and tuple(strides[:rank]) == tensor.stride()
        and data.value == tensor.data_ptr()
    )
