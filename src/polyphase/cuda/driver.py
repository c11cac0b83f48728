"""The CUDA driver and NVRTC by their C interfaces: libraries that torch's CUDA build brings; no toolkit is needed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import NamedTuple

import torch

from polyphase.errors import BuildFailedError, DriverError, NvrtcMissingError

_STATIC_SHARED_ATTRIBUTE, _LOCAL_BYTES_ATTRIBUTE, _REGISTERS_ATTRIBUTE = 1, 3, 4  # CU_FUNC_ATTRIBUTE_...
_THREADS_ATTRIBUTE = 39  # CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR
_SHARED_BYTES_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MOST_SHARED_ATTRIBUTE = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_MULTIPROCESSORS_ATTRIBUTE = 16
_PTX_ATTRIBUTE = 5  # CU_FUNC_ATTRIBUTE_PTX_VERSION: the architecture a kernel was compiled for
_FIRST_THAT_WAITS = 90  # `Block` of block.h
_FIRST_DRIVER_THAT_WAITS = 12030  # also where a graph is captured
_NON_BLOCKING = 1
_RELAXED_CAPTURE = 2
_PARAMETERS, _PARAMETERS_SIZE, _END = 1, 2, 0  # of cuLaunchKernel's `extra`


@functools.cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DriverError(f"the CUDA driver's library cannot be loaded: {error}") from None


def _call(name: str, *arguments: object) -> None:
    status = getattr(_driver(), name)(*arguments)
    if status:
        text = c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(text))
        raise DriverError(f"{name} of the CUDA driver failed: {(text.value or b'?').decode()} (error {status})")


# ---- contexts


@functools.cache
def _context(device: int) -> c_void_p:
    """torch's own: the device's primary context."""
    context, handle = c_void_p(), c_int()
    _call("cuInit", 0)
    _call("cuDeviceGet", ctypes.byref(handle), device)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
    return context


def context_address(device: int) -> int:
    return _context(device).value or 0


@contextlib.contextmanager
def on_device(device: int) -> Iterator[None]:
    """A thread may have no context, or another device's."""
    _call("cuCtxPushCurrent_v2", _context(device))
    try:
        yield
    finally:
        _call("cuCtxPopCurrent_v2", ctypes.byref(c_void_p()))


@contextlib.contextmanager
def allowed_while_capturing() -> Iterator[None]:
    """Memory may be had and filled although a graph is being captured: what is done here is not part of it."""
    mode = c_int(_RELAXED_CAPTURE)
    _call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        yield
    finally:
        _call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


def most_shared_bytes(device: int) -> int:
    """That a block can have, where it is asked for."""
    return _attribute(_MOST_SHARED_ATTRIBUTE, device)


def multiprocessors(device: int) -> int:
    return _attribute(_MULTIPROCESSORS_ATTRIBUTE, device)


@functools.cache
def _attribute(number: int, device: int) -> int:
    value = c_int()
    _call("cuInit", 0)
    _call("cuDeviceGetAttribute", ctypes.byref(value), number, c_int(device))
    return value.value


# ---- memory


def allocate(device: int, size: int) -> int:
    address = c_void_p()
    with on_device(device), allowed_while_capturing():
        _call("cuMemAlloc_v2", ctypes.byref(address), c_size_t(size))
    return address.value or 0


def free(device: int, address: int) -> None:
    """Waits for kernels that may still read it."""
    with on_device(device), allowed_while_capturing():
        _call("cuMemFree_v2", c_void_p(address))


def upload(device: int, address: int, data: bytes) -> None:
    """It is there on return."""
    with on_device(device), allowed_while_capturing():
        stream = _own_stream(device)
        _call("cuMemcpyHtoDAsync_v2", c_void_p(address), data, c_size_t(len(data)), stream)
        _call("cuStreamSynchronize", stream)


@functools.cache
def _own_stream(device: int) -> c_void_p:
    """Ours alone: no stream of the user's is waited for."""
    stream = c_void_p()
    _call("cuStreamCreate", ctypes.byref(stream), c_uint(_NON_BLOCKING))
    return stream


# ---- kernels


def load(device: int, image: bytes, name: str, shared_bytes: int) -> int:
    """The function of a built kernel, on a device. What is loaded stays."""
    module, function = c_void_p(), c_void_p()
    with on_device(device), allowed_while_capturing():
        _call("cuModuleLoadData", ctypes.byref(module), image)
        _call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        _call("cuFuncSetAttribute", function, c_int(_SHARED_BYTES_ATTRIBUTE), c_int(shared_bytes))
    return function.value or 0


def _of_function(function: int, number: int) -> int:
    value = c_int()
    _call("cuFuncGetAttribute", ctypes.byref(value), c_int(number), c_void_p(function))
    return value.value


@functools.cache
def waits(device: int, function: int) -> bool:
    """Whether a kernel of ours waits itself for those before it on its stream, so that it may be begun meanwhile."""
    with on_device(device):
        return _of_function(function, _PTX_ATTRIBUTE) >= _FIRST_THAT_WAITS and _version() >= _FIRST_DRIVER_THAT_WAITS


@functools.cache
def _version() -> int:
    value = c_int()
    _call("cuDriverGetVersion", ctypes.byref(value))
    return value.value


class Resources(NamedTuple):
    """What a kernel takes of its device, in blocks of so many threads. resident: of the threads that a multiprocessor
    can have, the share that it has at once."""

    registers: int
    spilled_bytes: int
    shared_bytes: int
    resident: float


def resources(device: int, function: int, threads: int, shared_bytes: int) -> Resources:
    blocks = c_int()
    with on_device(device):
        arguments = (c_void_p(function), c_int(threads), c_size_t(shared_bytes))
        _call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(blocks), *arguments)
        registers, spilled = (_of_function(function, one) for one in (_REGISTERS_ATTRIBUTE, _LOCAL_BYTES_ATTRIBUTE))
        shared = _of_function(function, _STATIC_SHARED_ATTRIBUTE) + shared_bytes
    return Resources(registers, spilled, shared, blocks.value * threads / _attribute(_THREADS_ATTRIBUTE, device))


def launch(
    device: int, function: int, blocks: tuple[int, int, int], threads: int, shared: int, stream: int, call: bytearray
) -> None:
    parameters = (ctypes.c_char * len(call)).from_buffer(call)
    size = c_size_t(len(call))
    extra = (c_void_p * 5)(_PARAMETERS, ctypes.addressof(parameters), _PARAMETERS_SIZE, ctypes.addressof(size), _END)
    grid = [c_uint(n) for n in (*blocks, threads, 1, 1, shared)]
    with on_device(device):
        _call("cuLaunchKernel", c_void_p(function), *grid, c_void_p(stream), None, extra)


def run_at_once(
    device: int, function: int, blocks: tuple[int, int, int], threads: int, shared: int, call: bytearray
) -> None:
    """It has run on return, on a stream of ours."""
    with on_device(device), allowed_while_capturing():
        stream = _own_stream(device)
        launch(device, function, blocks, threads, shared, stream.value or 0, call)
        _call("cuStreamSynchronize", stream)


def launching_functions() -> ctypes.Array[ctypes.c_int64]:
    """The addresses of those that `launcher.cpp` calls."""
    contexts = ("cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")
    memory = ("cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoDAsync_v2", "cuEventCreate", "cuEventDestroy_v2")
    order = ("cuEventRecord", "cuStreamWaitEvent", "cuEventSynchronize", "cuStreamCreate")
    streams = (*order, "cuThreadExchangeStreamCaptureMode")
    names = ("cuLaunchKernel", *contexts, "cuStreamIsCapturing", "cuLaunchKernelEx", *memory, *streams)
    functions = [getattr(_driver(), name, None) for name in names]  # cuLaunchKernelEx is none of an old driver's
    found = [ctypes.cast(one, c_void_p).value or 0 if one else 0 for one in functions]
    return (ctypes.c_int64 * len(found))(*found)


# ---- NVRTC


@functools.cache
def _nvrtc() -> ctypes.CDLL:
    return ctypes.CDLL(nvrtc_found())


@functools.cache
def nvrtc_found() -> str:
    """The file of the newest there is beside torch, else the name by which the system finds one. Its built-in functions
    are a library of their own, which it cannot find by itself, and which is loaded here."""
    for folder in _library_folders():
        found = sorted(folder.glob("libnvrtc.so.*[0-9]"))
        if found:
            for built_ins in folder.glob("libnvrtc-builtins.so.*"):
                with contextlib.suppress(OSError):
                    ctypes.CDLL(str(built_ins), ctypes.RTLD_GLOBAL)
            return str(found[-1])
    for name in ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return name
    raise NvrtcMissingError(
        "no NVRTC, which builds CUDA kernels: looked beside torch and where libraries are searched; "
        "install it with `pip install nvidia-cuda-nvrtc`"
    )


def _library_folders() -> list[Path]:
    """Lists folders of NVIDIA's packages, the one of torch's own version of CUDA first, and torch's."""
    spec = importlib.util.find_spec("nvidia")
    packages = [Path(one) for one in spec.submodule_search_locations or ()] if spec else []
    own = f"cu{(torch.version.cuda or '').split('.')[0]}"
    folders = [folder for root in packages for folder in sorted(root.glob("*/lib"), reverse=True)]
    folders.sort(key=lambda folder: folder.parent.name != own)
    return [*folders, Path(torch.__file__).parent / "lib"]


@functools.cache
def nvrtc_version() -> tuple[int, int]:
    major, minor = c_int(), c_int()
    _nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


@functools.cache
def known_architectures() -> tuple[int, ...]:
    """That NVRTC builds for, from the oldest on: 75 is sm_75."""
    count = c_int()
    _nvrtc().nvrtcGetNumSupportedArchs(ctypes.byref(count))
    found = (c_int * count.value)()
    _nvrtc().nvrtcGetSupportedArchs(found)
    return tuple(found)


def compile_source(source: str, headers: Mapping[str, str], options: Sequence[str]) -> bytes:
    """What the driver loads: machine code, or PTX where the options name a virtual architecture."""
    library, program = _nvrtc(), c_void_p()
    texts = (c_char_p * len(headers))(*[text.encode() for text in headers.values()])
    names = (c_char_p * len(headers))(*[name.encode() for name in headers])
    arguments = (c_char_p * len(options))(*[option.encode() for option in options])
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", len(headers), texts, names)
    try:
        if library.nvrtcCompileProgram(program, len(options), arguments):
            log = _text(library, program, "nvrtcGetProgramLog").rstrip(b"\0").decode()
            raise BuildFailedError(f"NVRTC failed with {' '.join(options)}:\n{log[:4000]}")
        virtual = any(option.startswith("--gpu-architecture=compute_") for option in options)
        return _text(library, program, "nvrtcGetPTX" if virtual else "nvrtcGetCUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text(library: ctypes.CDLL, program: c_void_p, getter: str) -> bytes:
    size = c_size_t()
    getattr(library, f"{getter}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library, getter)(program, buffer)
    return buffer.raw
