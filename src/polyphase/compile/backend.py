"""`torch.compile(backend="polyphase")`: Inductor, with our operators kept whole, fused and called directly."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.fx import Graph, GraphModule

from polyphase.compile import lower, symbolic  # noqa: F401 lower registers how programs are lowered
from polyphase.compile.attention.replace import with_attention
from polyphase.compile.circular import replace_circular_pads
from polyphase.compile.fuse import fuse
from polyphase.compile.grids import without_grids
from polyphase.compile.reasons import NotFused
from polyphase.compile.small import simplify_small
from polyphase.compile.whole import kept_whole
from polyphase.errors import WrongOptionError
from polyphase.torch_private import (
    CustomGraphPass,
    InductorOptions,
    InferenceAwareGraphPass,
    compile_fx,
    inductor_config,
    select_decomp_table,
)
from polyphase.version import __version__

log = logging.getLogger(__name__)
symbolic.register()

#: Options of ours, and what they are without being said.
OPTIONS = {"polyphase.fusion": True}
PASS_HOOK = "post_grad_custom_pre_pass"


class Fuse(InferenceAwareGraphPass or CustomGraphPass):  # type: ignore[misc]
    """The user's own passes, then ours.

    The uuid is part of the keys of torch's caches: another version of this package, or another option, has another key.
    """

    def __init__(self, fusion: bool, before: Sequence[Any] = ()) -> None:
        self.fusion, self.before = fusion, tuple(before)

    def __call__(self, graph: Graph, is_inference: bool = False) -> None:
        for one in self.before:
            if InferenceAwareGraphPass is not None and isinstance(one, InferenceAwareGraphPass):
                one(graph, is_inference)
            else:
                one(graph)
        report = fuse(graph, self.fusion)
        if self.fusion:
            simplify_small(graph)
        for kernel in report.kernels:
            log.debug("one kernel of %s: %s", ", ".join(kernel.nodes), kernel.program)
        for left in (*report.left, *(one for kernel in report.kernels for one in kernel.not_fused)):
            log.debug("not fused: %s", left)

    def uuid(self) -> Any:
        others = [one.uuid() if isinstance(one, CustomGraphPass) else None for one in self.before]
        if None in others:
            return None  # torch does not cache what it cannot tell apart
        return f"polyphase {__version__} {_digest_of_sources()} fusion={self.fusion} after {others}"


def polyphase(
    graph: GraphModule, example_inputs: list[Any], *, mode: str | None = None, options: dict[str, Any] | None = None
) -> Any:
    """`torch.compile(function, backend="polyphase")`: Inductor, with kernels of ours for operators that sample and for
    the arithmetic around them; for every size, forward and backward.

    `mode` and `options` are Inductor's. One option is ours: `"polyphase.fusion": False` leaves each operator a kernel
    of its own.
    """
    ours, theirs = _split(options or {})
    patches = InductorOptions(mode, theirs, None).config  # checked as Inductor checks them
    with inductor_config.patch(patches):
        if inductor_config.cpp_wrapper:
            return _without_kernels(graph, example_inputs, patches)
        others = inductor_config.post_grad_custom_pre_pass
    fusion = ours["polyphase.fusion"]
    if fusion:
        replace_circular_pads(graph)
        for one in with_attention(graph):
            log.debug("%s", one if isinstance(one, NotFused) else f"attention of {one}")
        for stays in without_grids(graph):
            log.debug("a grid stays in memory: %s", stays)
    with kept_whole():
        ours_too = {**patches, PASS_HOOK: Fuse(fusion, _as_list(others))}
        return compile_fx(graph, example_inputs, config_patches=ours_too)


def _split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our options, with defaults, and Inductor's."""
    ours = {name: value for name, value in options.items() if name.startswith("polyphase.")}
    for name, value in ours.items():
        if name not in OPTIONS or type(value) is not type(OPTIONS[name]):
            raise WrongOptionError(
                f"option {name!r} with value {value!r}; ours are "
                + ", ".join(f"{known!r} ({type(default).__name__})" for known, default in OPTIONS.items())
            )
    return {**OPTIONS, **ours}, {name: value for name, value in options.items() if name not in ours}


def _without_kernels(graph: GraphModule, example_inputs: list[Any], patches: dict[str, Any]) -> Any:
    """A C++ wrapper cannot call our kernels yet: the operators run as portable decompositions."""
    from polyphase.decompositions import preferred, table

    with preferred():
        return compile_fx(
            graph, example_inputs, config_patches=patches, decompositions={**select_decomp_table(), **table()}
        )


def _as_list(passes: Any) -> list[Any]:
    if passes is None:
        return []
    return list(passes) if isinstance(passes, (list, tuple)) else [passes]


@functools.cache
def _digest_of_sources() -> str:
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
