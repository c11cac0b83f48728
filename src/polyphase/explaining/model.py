"""An explanation as plain data, which `show` prints and which can become JSON."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Access:
    """A buffer that a loop reads or writes: `index` as Inductor's index expression over the loop's variables."""

    buffer: str
    index: str


@dataclass(frozen=True)
class Step:
    """One of Inductor's nodes within a loop. `ranges`: of its variables; `origins`: the operators that it was made
    from."""

    name: str
    ranges: dict[str, str]
    origins: tuple[str, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]


@dataclass(frozen=True)
class Loop:
    """A loop nest. `elements`: how often its body runs. `why_scalar`: why it is not vectorised, where it is not."""

    steps: tuple[Step, ...]
    elements: int
    vectorised: bool
    why_scalar: str = ""


@dataclass(frozen=True)
class InductorKernel:
    """A function that Inductor generated: one or more loops."""

    name: str
    loops: tuple[Loop, ...]
    source: str = dataclasses.field(repr=False, default="")

    @property
    def elements(self) -> int:
        return max((loop.elements for loop in self.loops), default=0)


@dataclass(frozen=True)
class OurKernel:
    """A program of ours. Bytes are those of one run, in which every element of the inputs is read once at most, and
    every element of the output written once. `ends`: why the program ends where it does; `not_fused`: neighbours that
    are no part of it, and why."""

    program: str
    plan: str
    source_file: str
    nodes: tuple[str, ...]
    lines: tuple[str, ...]
    tables: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    ends: tuple[str, ...]
    not_fused: tuple[str, ...]
    inputs: tuple[dict[str, Any], ...] = ()
    sizes: tuple[int, ...] = ()
    output: dict[str, Any] = dataclasses.field(default_factory=dict)
    coordinates: str = ""  # of a warp: what they are read or computed from

    @property
    def elements(self) -> int:
        return math.prod(self.output.get("shape", ()))


@dataclass(frozen=True)
class Call:
    """A call of code that neither we nor Inductor generated for the graph: an operator of ATen, of a library, or of
    ours. `elements`: of the largest tensor that it reads or writes."""

    name: str
    elements: int

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("polyphase.")


@dataclass(frozen=True)
class Apart:
    """Two of Inductor's nodes that it did not fuse, and why."""

    first: str
    second: str
    why: str


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory: an input, an output, or a result that one kernel leaves for another."""

    name: str
    role: str  # "input", "between" or "output"
    dtype: str
    shape: tuple[str, ...]
    strides: tuple[str, ...]
    format: str
    bytes: int
    remark: str = ""


@dataclass(frozen=True)
class Graph:
    """One compiled graph. `not_taken`: operators that sample but were left to Inductor, with the reason; `grids`: calls
    that sample at a computed grid which has to be in memory all the same, with the reason; `attention`: sums of samples
    that became one kernel, and those that did not, with the reason."""

    kind: str  # "inference", "forward" or "backward"
    kernels: tuple[OurKernel | InductorKernel | Call, ...]
    buffers: tuple[Buffer, ...]
    not_taken: tuple[str, ...]
    not_fused: tuple[Apart, ...]
    code_file: str
    grids: tuple[str, ...] = ()
    attention: tuple[str, ...] = ()

    @property
    def ours(self) -> tuple[OurKernel, ...]:
        return tuple(one for one in self.kernels if isinstance(one, OurKernel))

    @property
    def inductors(self) -> tuple[InductorKernel, ...]:
        return tuple(one for one in self.kernels if isinstance(one, InductorKernel))

    @property
    def traffic(self) -> int:
        """Bytes written and read between kernels, without inputs and outputs."""
        return sum(2 * one.bytes for one in self.buffers if one.role == "between")


@dataclass(frozen=True)
class Break:
    reason: str
    line: str


@dataclass(frozen=True)
class Explained:
    """What became of a function: the data of an `Explanation`."""

    function: str
    backend: str
    calls: int
    graphs: tuple[Graph, ...]
    breaks: tuple[Break, ...]
    recompiles: tuple[str, ...]
    ran_eager: str  # why, or ""
