"""Every private name of torch that the package uses, where it is, and what happens without it.

A name is tried once, when it is first asked for (`from polyphase.torch_private import V`). What plain calls need is
asked for where `polyphase` is imported; Inductor and Dynamo, which take a second to import, only by what compiles.
Where a version of torch has a name no longer, what is used instead is slower or can do less, which one warning says;
where nothing can be, it is an error. No result is wrong for it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from polyphase.errors import MissingTorchInternalsError, MissingTorchInternalsWarning, warn

if TYPE_CHECKING:
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket

    class SingleLevelFunction(torch.autograd.Function):
        @classmethod
        def apply(cls, *args: Any, **kwargs: Any) -> Any: ...

else:
    OpOverload, OpOverloadPacket = type(torch.ops.aten.flip.default), type(torch.ops.aten.flip)

#: The oldest and the newest version of torch that all tests pass with.
TESTED_TORCH = ("2.11", "2.15")

Result = TypeVar("Result")

_NOTHING: Any = object()


def _as_it_is(found: Any) -> Any:
    return found


@dataclass(frozen=True)
class Private:
    """A private name of torch.

    place: its module, a colon, and its name there. needs: attributes it must have. without: what happens where there is
    none; empty where nothing is lost. instead: what is used then; an error, if nothing can be. take: what we use of it.
    """

    place: str
    without: str
    instead: Any = _NOTHING
    needs: tuple[str, ...] = ()
    take: Callable[[Any], Any] = _as_it_is

    @property
    def name(self) -> str:
        return self.place.replace(":", ".")

    @property
    def is_required(self) -> bool:
        return self.instead is _NOTHING


# ---- used instead


def _suggest_memory_format(image: Tensor) -> torch.memory_format:
    """torch's rule, by sizes and strides: dimensions from the innermost on, each around the one before."""
    order = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}.get(image.dim(), ())
    if image.layout is not torch.strided or not order or image.stride(1) == 0:
        return torch.contiguous_format
    least: int | torch.SymInt = 0
    for dim in order:
        size, stride = image.shape[dim], image.stride(dim)
        if size == 0 or stride < least or (dim == 0 and least == image.stride(1)):
            return torch.contiguous_format
        least = stride * size
    return torch.channels_last if len(order) == 4 else torch.channels_last_3d


def _order_of_strides(image: Tensor) -> list[int]:
    return sorted(range(image.dim()), key=lambda dim: image.stride(dim), reverse=True)


def _empty_strided_cpu(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")


def _empty_strided_cuda(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


def _new_shared(count: int, dtype: torch.dtype) -> Tensor:
    made: Tensor = torch.empty(count, dtype=dtype).share_memory_()
    return made


def _new_shared_by(make: Callable[[int], Any]) -> Callable[[int, torch.dtype], Tensor]:
    def new_shared(count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(0, dtype=dtype).set_(make(count * dtype.itemsize))

    return new_shared


def _current_raw_stream(device: int) -> int:
    stream: int = torch.cuda.current_stream(device).cuda_stream
    return stream


def _forward_level_by_unpacking() -> int:
    """Where there is no level, nothing is unpacked."""
    probe = _probe()
    return -1 if forward_ad.unpack_dual(probe).primal is probe else 0


def _finds_jvp(get_stack: Callable[[], Any]) -> Callable[[], bool]:
    def is_within_jvp() -> bool:
        levels = get_stack()  # None nearly always
        return levels is not None and any(level.key().name == "Jvp" for level in levels)

    return is_within_jvp


@functools.cache
def _probe() -> Tensor:
    return torch.zeros(1, device="cpu")


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (tuple, list, dict)):
        for one in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(one)
    else:
        yield tree


def _is_not_in_its_graph(node: torch.fx.Node) -> bool:
    return all(node is not other for other in node.graph.nodes)


def _no_options(mode: str | None, options: dict[str, Any] | None, dynamic: bool | None) -> Any:
    if options or mode not in (None, "default"):
        private = COMPILING["InductorOptions"]
        raise MissingTorchInternalsError(_said(private.name, private.without))
    return _NoOptions


class _NoOptions:
    config: dict[str, Any] = {}  # noqa: RUF012 never written to


def _not_registered(operator: OpOverload) -> Callable[[Result], Result]:
    return lambda function: function


class _NeverRaised(Exception):  # noqa: N818 nothing went wrong
    pass


# ---- the tables, by what needs them

_DISPATCHER = "every call goes through torch's dispatcher, which takes longer than a small resize"
_NO_LEVELS = (
    "torch.func cannot differentiate our functions, tensors with tangents are resampled by slower torch operations, "
    "and gradients are recorded by torch.library"
)
_NEW_THREAD = "a gradient of a warp that goes through torch's dispatcher takes a new thread"

_BY_METHODS = "a call takes half a microsecond longer"

FUNCTIONS = {
    # Whether a tensor can go past the dispatcher.
    "TensorGuards": Private("torch._C._dynamo.guards:TensorGuards", _DISPATCHER, None),
    "len_torch_dispatch_stack": Private("torch._C:_len_torch_dispatch_stack", _DISPATCHER, lambda: 1),
    "forward_level": Private(
        "torch.autograd.forward_ad:_current_level",
        "a call takes a microsecond longer",
        _forward_level_by_unpacking,
        take=lambda _: functools.partial(getattr, forward_ad, "_current_level"),  # asked at every call
    ),
    "is_within_jvp": Private(
        "torch._C._functorch:get_interpreter_stack",
        "torch.func.jvp of our functions cannot be compiled",
        lambda: False,
        take=_finds_jvp,
    ),
    # Outputs.
    "empty_strided_cpu": Private(
        "torch._C._dynamo.guards:_empty_strided_cpu", "a call takes a microsecond longer", _empty_strided_cpu
    ),
    "cdata_of": Private("torch:Tensor._cdata", _BY_METHODS, None, take=lambda _: attrgetter("_cdata")),
    "library_of_torch": Private("torch._C:__file__", _BY_METHODS, None),
    "suggest_memory_format": Private(
        "torch._prims_common:suggest_memory_format",
        "a graph of symbolic sizes may be compiled once more for each memory format",
        _suggest_memory_format,
    ),
    # Derivatives, one level at a time. Where one of these is missing, none is used.
    "SingleLevelFunction": Private("torch.autograd.function:_SingleLevelFunction", _NO_LEVELS, torch.autograd.Function),
    "enable_single_level_autograd_function": Private(
        "torch._functorch.utils:enable_single_level_autograd_function", _NO_LEVELS, None
    ),
    "are_functorch_transforms_active": Private("torch._C:_are_functorch_transforms_active", _NO_LEVELS, None),
    "set_fwd_grad_enabled": Private("torch.autograd.forward_ad:_set_fwd_grad_enabled", _NO_LEVELS, None),
    "AutoDispatchBelowAutograd": Private("torch._C:_AutoDispatchBelowAutograd", _NO_LEVELS, None),
    # Whether a gradient is many at once (`is_grads_batched`), which operators of lists of tensors do not take.
    "is_batched_gradient": Private(
        "torch._C._functorch:is_legacy_batchedtensor",
        "gradients of perspective_sample and displacement_sample cannot be asked for many at a time (is_grads_batched)",
        lambda tensor: False,
    ),
    # Autograd switched on again, below autograd. Likewise.
    "included_keys": Private("torch._C:_dispatch_tls_local_include_set", _NEW_THREAD, None),
    "excluded_keys": Private("torch._C:_dispatch_tls_local_exclude_set", _NEW_THREAD, None),
    "ForceDispatchKeyGuard": Private("torch._C:_ForceDispatchKeyGuard", _NEW_THREAD, None),
}

_NO_TABLES = (
    "calls of ATen cannot be read: our decompositions, polyphase.accelerate() and the compile backend are not available"
)
_NOT_PREFERRED = (
    "torch's own decompositions cannot be taken away: polyphase.decompositions.preferred() and the compile backend are "
    "not available"
)
_NOT_MATERIALISED = "code that Inductor makes of our decompositions is slower"

TRACING = {
    "schema_of": Private("torch:ops.aten.flip.default._schema", _NO_TABLES, take=lambda _: attrgetter("_schema")),
    "python_kernels_of": Private(
        "torch:ops.aten.flip.default.py_kernels", _NOT_PREFERRED, take=lambda _: attrgetter("py_kernels")
    ),
    "dispatch_cache_of": Private(
        "torch:ops.aten.flip.default._dispatch_cache", _NOT_PREFERRED, take=lambda _: attrgetter("_dispatch_cache")
    ),
    "call_under_key": Private(
        "torch:ops.aten.flip.default._op_dk", _NOT_PREFERRED, take=lambda _: attrgetter("_op_dk")
    ),
    "DispatchKey": Private("torch._C:DispatchKey", _NOT_PREFERRED),
    "DispatchKeySet": Private("torch._C:DispatchKeySet", _NO_TABLES),
    "decomposition_table": Private(
        "torch._decomp:decomposition_table",
        "compiled for a GPU, a resized image of few channels, channels last, may lie in memory otherwise than eager's",
        {},
    ),
    "is_fake": Private("torch._subclasses.fake_tensor:is_fake", _NOT_MATERIALISED, lambda tensor: False),
    "is_functorch_wrapped_tensor": Private(
        "torch._C._functorch:is_functorch_wrapped_tensor", _NOT_MATERIALISED, lambda tensor: True
    ),
    "logical_to_physical": Private(
        "torch._prims_common:compute_elementwise_output_logical_to_physical_perm",
        "a decomposed flip of an image of unusual strides may lie in memory otherwise than eager's",
        _order_of_strides,
    ),
}

_NO_BACKEND = 'torch.compile(backend="polyphase") is not available: compile with backend="inductor"'


def _inductor(place: str, *needs: str) -> Private:
    return Private(f"torch._inductor.{place}", _NO_BACKEND, needs=needs)


COMPILING = {
    "register_backend": Private(
        "torch._dynamo.backends.registry:register_backend",
        'torch.compile does not know the name "polyphase" where the package is used from a source tree: '
        "pass it polyphase.compile.backend.polyphase",
        lambda backend, name: backend,
    ),
    "builtin_pad": Private("torch._C._nn:pad", "compiled circular pads are Inductor's slices and copies", None),
    "compile_fx": _inductor("compile_fx:compile_fx"),
    "inductor_config": _inductor("config", "patch", "cpp_wrapper", "post_grad_custom_pre_pass"),
    "InductorOptions": Private(
        "torch:_TorchCompileInductorWrapper",
        'torch.compile(backend="polyphase") takes none of Inductor\'s modes and options',
        _no_options,
    ),
    "CustomGraphPass": _inductor("custom_graph_pass:CustomGraphPass"),
    # Passes that are told whether a graph is for inference. Newer than the oldest torch we support.
    "InferenceAwareGraphPass": Private(
        "torch._inductor.custom_graph_pass:CustomInferenceAwareGraphPass", without="", instead=None
    ),
    "select_decomp_table": _inductor("decomposition:select_decomp_table"),
    "register_lowering": _inductor("lowering:register_lowering"),
    "lowerings": _inductor("lowering:lowerings"),
    "make_fallback": _inductor("lowering:make_fallback"),
    "constrain_to_fx_strides": _inductor("lowering:constrain_to_fx_strides"),
    "V": _inductor("virtualized:V"),
    "ExternKernel": _inductor("ir:ExternKernel", "realize_input"),
    "ExternKernelOut": _inductor("ir:ExternKernelOut", "codegen"),
    "FixedLayout": _inductor("ir:FixedLayout"),
    "Layout": _inductor("ir:Layout"),
    "TensorBox": _inductor("ir:TensorBox", "create"),
    "is_erased": Private(
        "torch.fx:Node._erased",
        "large graphs take longer to compile",
        _is_not_in_its_graph,
        take=lambda _: attrgetter("_erased"),
    ),
    # What a function calls, recorded.
    "TorchDispatchMode": Private("torch.utils._python_dispatch:TorchDispatchMode", _NO_BACKEND),
    "register_fast_op_impl": Private(
        "torch._subclasses.fake_impls:register_fast_op_impl",
        "a graph with affine_grid is compiled anew for every size",
        _not_registered,
    ),
}

_NO_EXPLAIN = "polyphase.explain is not available"


def _explained(place: str, *needs: str) -> Private:
    return Private(place, _NO_EXPLAIN, needs=needs)


EXPLAINING = {
    "dynamo_counters": Private(
        "torch._dynamo.utils:counters", "polyphase.explain and compiled columns of `polyphase bench` are not available"
    ),
    "get_compilation_metrics": _explained("torch._dynamo.utils:get_compilation_metrics"),
    "functorch_config": _explained("torch._functorch.config", "patch", "enable_autograd_cache"),
    "GraphLowering": _explained("torch._inductor.graph:GraphLowering", "codegen"),
    "WhyNoFuse": _explained("torch._inductor.scheduler:WhyNoFuse"),
    "CppScheduling": _explained("torch._inductor.codegen.cpp:CppScheduling", "define_kernel", "codegen_node"),
    "TritonScheduling": _explained("torch._inductor.codegen.triton:TritonScheduling", "define_kernel"),
    "Scheduler": _explained("torch._inductor.scheduler:Scheduler", "codegen_extern_call"),
    # What a node of a loop reads and writes, all over its own variables: i0, i1, ...
    "accesses_of": Private(
        "torch._inductor.dependencies:extract_read_writes",
        _NO_EXPLAIN,
        take=lambda extract: lambda node: extract(node._body, *node._sizes, prefix="i"),
    ),
    "NoneLayout": _explained("torch._inductor.ir:NoneLayout"),
    "NonOwningLayout": _explained("torch._inductor.ir:NonOwningLayout"),
    "tree_leaves": Private(
        "torch.utils._pytree:tree_leaves",
        "polyphase.explain looks for results that need a gradient in tuples, lists and dicts alone",
        _leaves,
    ),
}

MEASURING = {
    "dynamo_config": Private("torch._dynamo.config", "`polyphase bench` is not available", needs=("patch",)),
    "lookup_backend": Private(
        "torch._dynamo.backends.registry:lookup_backend", "`polyphase bench` and `polyphase env` are not available"
    ),
    "FailOnRecompileLimitHit": Private(
        "torch._dynamo.exc:FailOnRecompileLimitHit",
        "`polyphase bench` says it in torch's words where the recompile limit was reached",
        _NeverRaised,
    ),
}

_DRAWN_BY_TORCH = "pipelines draw random parameters by torch's functions, which takes as long as a small resize"

LOADING = {
    "new_shared": Private(
        "torch:UntypedStorage._new_shared",
        "a batch that a DataLoader's worker makes is copied once more",
        _new_shared,
        take=_new_shared_by,
    ),
    # Random numbers of pipelines.
    "len_torch_function_stack": Private("torch._C:_len_torch_function_stack", _DRAWN_BY_TORCH, lambda: 1),
    "default_device": Private("torch._C:_get_default_device", _DRAWN_BY_TORCH, lambda: ""),
    # Arithmetic's dtypes.
    "disable_current_modes": Private(
        "torch.utils._python_dispatch:_disable_current_modes",
        "dispatch modes see how dtypes are found, and graphs that are traced may have nodes that nobody reads",
        contextlib.nullcontext,
    ),
}

ON_CUDA = {
    "empty_strided_cuda": Private(
        "torch._C._dynamo.guards:_empty_strided_cuda", "a call takes a few microseconds longer", _empty_strided_cuda
    ),
    "current_raw_stream": Private(
        "torch._C:_cuda_getCurrentRawStream", "a call takes a microsecond longer", _current_raw_stream
    ),
}

#: THPVariable_Wrap(const at::TensorBase&), looked up in `library_of_torch`: a tensor as a Python object. Without it, a
#: call under `polyphase.accelerate()` takes a few microseconds longer.
PYTHON_TENSOR = "_Z16THPVariable_WrapRKN2at10TensorBaseE"

#: MKL's exp of many floats, looked up likewise. Without it, boxes of random areas are drawn by torchvision's functions.
MANY_EXP = "vmsExp"

ALL = FUNCTIONS | LOADING | ON_CUDA | TRACING | COMPILING | EXPLAINING | MEASURING


# For those who check types; all others are Any.
len_torch_dispatch_stack: Callable[[], int]
len_torch_function_stack: Callable[[], int]
default_device: Callable[[], str]
forward_level: Callable[[], int]
is_within_jvp: Callable[[], bool]
empty_strided_cpu: Callable[[Sequence[int], Sequence[int], torch.dtype], Tensor]
empty_strided_cuda: Callable[[Sequence[int], Sequence[int], torch.dtype], Tensor]
current_raw_stream: Callable[[int], int]
suggest_memory_format: Callable[[Tensor], torch.memory_format]
new_shared: Callable[[int, torch.dtype], Tensor]


# ---- trying them


def __getattr__(name: str) -> Any:
    """A name of the tables. It is then one of this module's own, and not looked up again."""
    if name not in ALL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = _found(ALL[name])
    return found


def _found(private: Private) -> Any:
    looked_for = private.name
    try:
        found = _looked_up(private.place)
        for need in private.needs:
            looked_for = f"{private.name}.{need}"
            getattr(found, need)
        return private.take(found)
    except (ImportError, AttributeError) as error:
        said = _said(looked_for, private.without)
        if private.is_required:
            raise MissingTorchInternalsError(said) from error
    if private.without:
        warn(said, MissingTorchInternalsWarning)
    return private.instead


def _looked_up(place: str) -> Any:
    module, _, path = place.partition(":")
    found: Any = importlib.import_module(module)
    return attrgetter(path)(found) if path else found


@functools.cache
def warn_that_it_changed(name: str) -> None:
    """Warns of a name that is there, but cannot be used as it was."""
    warn(_said(ALL[name].name, ALL[name].without), MissingTorchInternalsWarning)


def _said(missing: str, without: str) -> str:
    oldest, newest = TESTED_TORCH
    return (
        f"torch {torch.__version__} has no {missing} that Polyphase knows: {without}. "
        f"Tested with torch {oldest} to {newest}."
    )
