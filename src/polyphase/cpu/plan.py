"""How a program runs on the CPU: everything its kernel's source depends on. Sizes and recipes are not among it, so that
one kernel serves bilinear and bicubic, every size, and the adjoints of both."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from polyphase.sampling.pointwise import VALUE, Expression
from polyphase.sampling.programs import Axes, Program


@dataclass(frozen=True)
class Plan:
    """source: None where values are only moved: then they are bytes, and elements of so many bytes a run-time matter.
    weighted: outputs may be sums, else each is one input. isa: the instruction set the kernel is built for."""

    source: torch.dtype | None
    sampled: torch.dtype
    target: torch.dtype
    weighted: bool
    isa: str
    prologue: Expression = VALUE
    epilogue: Expression = VALUE

    @property
    def work(self) -> torch.dtype:
        """The dtype sums are made in: half precision is summed in float32."""
        return torch.float32 if self.sampled in (torch.float16, torch.bfloat16) else self.sampled


def plan_program(program: Program, isa: str) -> Plan:
    assert isinstance(program.sampler, Axes), "warps have kernels of their own"
    weighted = any(axis_map.weighted for axis_map in program.sampler.maps)
    if not weighted and program.prologue == program.epilogue == VALUE:
        return plan_move(program.source, isa)
    return Plan(program.source, program.sampled, program.target, weighted, isa, program.prologue, program.epilogue)


def plan_move(dtype: torch.dtype, isa: str) -> Plan:
    """The dtype decides one thing alone: the nearest pixel of a float64 image is found by a double ratio."""
    finds = torch.float64 if dtype == torch.float64 else torch.uint8
    return Plan(None, finds, finds, weighted=False, isa=isa)


def plan_sums(dtype: torch.dtype, isa: str) -> Plan:
    """Weighted maps without arithmetic around them."""
    return Plan(dtype, dtype, dtype, weighted=True, isa=isa)
