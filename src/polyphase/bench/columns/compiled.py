"""torch.compile: with Inductor, with Inductor over our decompositions, and with our backend."""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from polyphase.bench.checks import OFF_BY_ONE
from polyphase.bench.columns.base import Column, Options
from polyphase.bench.columns.uncompiled import without_kernels
from polyphase.bench.operations import PYTORCH, Function
from polyphase.bench.work import Call, Work, call_of
from polyphase.bench.workloads import Case
from polyphase.decompositions import preferred, table
from polyphase.torch_private import dynamo_counters, lookup_backend
from polyphase.version import __version__

_REGION = "Torch-Compiled Region"


class Compiled(Column):
    """torch.compile as a user calls it. Proves that it ran compiled: one graph, no frame given up, no eager call.

    Cases of one batch order share a compiled function, which is never reset. Every function has code of its own, so
    that no column and no other case takes up its recompilations.
    """

    heading = "Compiled"
    backend: Any = "inductor"
    extra: dict[str, Any] = {}  # noqa: RUF012 keywords of torch.compile, never written to

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._functions: dict[object, Function] = {}
        self._before = _Counts.now()

    def make(self, work: Work) -> Call:
        self._before = _Counts.now()
        return call_of(work, self._function(work.case))

    def disproof(self, work: Work, call: Call) -> str | None:
        return _Counts.now().since(self._before) or _regions_missing(work, call)

    def _function(self, case: Case) -> Function:
        key = case.compiled_together
        if key not in self._functions:
            function = with_own_code(case.operation.function(PYTORCH), f"case_{len(self._functions)}_{id(self)}")
            self._functions[key] = torch.compile(
                function, backend=self.backend, dynamic=self.options.dynamic, **self.extra
            )
        return self._functions[key]


class Inductor(Compiled):
    tolerance = OFF_BY_ONE  # its uint8 results are, and it is to be seen what they cost


class Decomposition(Compiled):
    """Inductor with our decomposition table, for whoever cannot use our kernels."""

    heading = "Decomposition"

    @property
    def backend(self) -> Callable[..., Any]:
        return decomposed

    def disproof(self, work: Work, call: Call) -> str | None:
        problem = super().disproof(work, call)
        whole = {str(operator.overloadpacket).replace(".", "::") for operator in table()}
        if problem is None and (kept := whole.intersection(_events(call))):
            return f"not decomposed: {min(kept)} ran"
        return problem


class PolyphaseCompiled(Compiled):
    heading = "Polyphase compiled"
    backend = "polyphase"

    @property
    def version(self) -> str:
        return __version__

    def can_run(self, case: Case) -> str | None:
        return backend_missing()

    def disproof(self, work: Work, call: Call) -> str | None:
        return super().disproof(work, call) or without_kernels(work, call)


class PolyphaseUnfused(PolyphaseCompiled):
    heading = "Polyphase unfused"
    extra = {"options": {"polyphase.fusion": False}}  # noqa: RUF012 never written to


@functools.cache
def backend_missing() -> str | None:
    """Why torch.compile has no backend of ours, if so."""
    if "polyphase" not in torch.compiler.list_backends(exclude_tags=()):
        return "backend not registered"
    try:
        lookup_backend("polyphase")
    except Exception as error:  # an entry point to what is not there
        return f"backend not registered: {error}"
    return None


def decomposed(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A torch.compile backend: Inductor, with our decompositions asked first.

    AOTAutograd's cache does not know of them: it would hand out what Inductor made of the same graph.
    """
    from polyphase.torch_private import compile_fx, functorch_config, select_decomp_table

    with preferred(), functorch_config.patch(enable_autograd_cache=False):
        return compile_fx(graph, list(inputs), decompositions={**select_decomp_table(), **table()})  # type: ignore[no-any-return]


def with_own_code(function: Function, name: str) -> Function:
    """Dynamo keeps what it compiled, and counts it, by code object."""
    assert isinstance(function, types.FunctionType)
    code = function.__code__.replace(co_name=name)
    return types.FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)


@dataclass(frozen=True)
class _Counts:
    """What Dynamo did up to now."""

    total: int
    ok: int
    breaks: dict[str, int]

    @classmethod
    def now(cls) -> _Counts:
        frames = dynamo_counters["frames"]
        return cls(total=frames["total"], ok=frames["ok"], breaks=dict(dynamo_counters["graph_break"]))

    def since(self, before: _Counts) -> str | None:
        """What went wrong between two counts."""
        new = [reason for reason, number in self.breaks.items() if number > before.breaks.get(reason, 0)]
        if new:
            return f"not one graph: {new[0].splitlines()[0]}"
        failed = (self.total - before.total) - (self.ok - before.ok)
        return f"not compiled: Dynamo gave up {failed} frames" if failed else None


def _regions_missing(work: Work, call: Call) -> str | None:
    """Asks the profiler, which sees each entry into compiled code."""
    regions = sum(name.startswith(_REGION) for name in _events(call))
    if regions == work.calls:
        return None
    return f"not compiled: {regions} compiled regions ran in {work.calls} calls"


def _events(call: Call) -> list[str]:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it says on stderr that it starts
    with torch.autograd.profiler.profile() as profile:
        call()
    assert profile.function_events is not None
    return [event.name for event in profile.function_events]
