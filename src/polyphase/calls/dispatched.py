"""Whether and how a launcher can put kernels of its own into torch's dispatcher (`launch/dispatched.h`).

It takes functions of torch's stable C interface, the one that makes a Python tensor, and an exception that torch's
bindings turn into Python's. All of it is tried once, on an operator made for it. Where it does not work, kernels in the
dispatcher are Python's.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from polyphase import torch_private
from polyphase.calls import handles
from polyphase.torch_private import OpOverload, library_of_torch

#: In the order of `TorchFunctions` of `launch/torch_values.h`.
NAMES = (
    *(f"aoti_torch_get_{one}" for one in ("dtype", "device_type", "device_index")),
    *("aoti_torch_empty_strided", "aoti_torch_new_tensor_handle", "aoti_torch_delete_tensor_object"),
    *("torch_list_size", "torch_list_get_item", "torch_delete_list", "torch_get_num_threads"),
    *("aoti_torch_library_init_impl", "aoti_torch_delete_library_object", "aoti_torch_library_impl"),
    torch_private.PYTHON_TENSOR,
)
#: Null where there is none: the first is newer than the oldest torch we support, the second needs CUDA.
NAMES_OF_SOME = ("torch_delete_stable_ivalue", "aoti_torch_get_current_cuda_stream")

#: How types of a schema are written for the launcher: the form of an argument, and what it is of.
TYPES = {
    "Tensor": "-t",
    "int": "-i",
    "bool": "-b",
    "float": "-f",
    "List[int]": "[i",
    "Optional[float]": "?f",
}
MOST_ARGUMENTS = 8


class Kernels(Protocol):
    """Functions of a launcher; `launch/dispatched.h` says how each is called."""

    @property
    def dispatch_by(self) -> Callable[[bytes], None]: ...
    @property
    def operator(self) -> Callable[..., int]: ...
    @property
    def put(self) -> Callable[[int], None]: ...
    @property
    def take_away(self) -> Callable[[int], None]: ...
    @property
    def direct(self) -> Callable[[bool], None]: ...


class DirectCall(NamedTuple):
    """What makes a call without Python. bound: as the wing's launcher knows it. shape, strides: of the output, whose
    dtype is the first tensor's. reads: how many of the tensors it is given, from the first on."""

    bound: object
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    reads: int


def signature_of(op: OpOverload) -> str | None:
    """Spells the types of an operator with one result, a tensor; None where a type is not known."""
    schema = torch_private.schema_of(op)
    types = [TYPES.get(str(one.type)) for one in schema.arguments]
    one_result = [str(one.type) for one in schema.returns] == ["Tensor"]
    known = one_result and len(types) <= MOST_ARGUMENTS and types[:1] == ["-t"]
    return "".join(map(str, types)) if known and None not in types else None


def usable(kernels: Kernels) -> Kernels | None:
    """The functions of a launcher, told how to reach torch; None where they cannot."""
    functions = _packed()
    if functions is None or handles.packed() is None:
        return None
    kernels.dispatch_by(functions)
    try:
        with ThreadPoolExecutor(1) as thread:  # a new one has no mode or transform on, whatever this one has
            return kernels if thread.submit(_work, kernels).result() else None
    except RuntimeError:  # as of an operator that does not work, or where there can be no threads any more
        return None


def _packed() -> bytes | None:
    if library_of_torch is None:
        return None
    library = ctypes.CDLL(library_of_torch)
    try:
        functions = [getattr(library, name) for name in NAMES]
    except AttributeError:
        return None
    functions += [getattr(library, name, None) for name in NAMES_OF_SOME]
    addresses = [ctypes.cast(one, ctypes.c_void_p).value or 0 if one else 0 for one in functions]
    return struct.pack(f"={len(addresses)}q", *addresses)


class _Tried(Exception):  # noqa: N818 nothing went wrong
    pass


_numbers = itertools.count()


def _work(kernels: Kernels) -> bool:
    """Whether arguments arrive as they were given, and results and errors come back."""
    arrived: list[tuple[Any, ...]] = []

    def call(image: Tensor, *given: Any) -> Tensor:
        arrived.append((image.tolist(), *given))
        if given[1]:
            raise _Tried
        return image + 1

    library, name = torch.library.Library("polyphase", "FRAGMENT"), f"_tried_{next(_numbers)}"
    library.define(f"{name}(Tensor image, int[] sizes, bool fails, int number, float? scale=None) -> Tensor")
    op = getattr(torch.ops.polyphase, name).default
    signature = signature_of(op)
    if signature is None:
        return False
    place = kernels.operator("polyphase", name, "CPU", signature, call, lambda *arguments: None)
    kernels.put(place)
    image, error = torch.arange(2, device="cpu"), None
    try:
        result = op(image, [4, -5], False, 3)
        op(image, [], True, -1, 0.1)
    except _Tried as raised:
        error = raised
    kernels.take_away(place)
    expected = [([0, 1], [4, -5], False, 3), ([0, 1], [], True, -1, 0.1)]
    return error is not None and arrived == expected and result.tolist() == [1, 2]
