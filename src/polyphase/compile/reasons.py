"""Why something was left to Inductor, or a neighbour was not made part of a kernel: one line each, for `explain`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from polyphase.sampling.axis_maps import NotMerged


class Why(Enum):
    ANOTHER_DEVICE = "it is on a device that has no kernels of ours"
    ANOTHER_DTYPE = "a dtype that our kernels do not compute"
    ALREADY_POINTWISE = "it only moves values, beside arithmetic: Inductor's loop does both at once"
    GATHERED = "it only moves values, and large enough ones: Inductor's loop is as quick on this device"
    FEW_ELEMENTS = "it only moves a few elements: a call would cost more than a loop of Inductor's"
    SLOWER = "torch's own kernel takes less time for such sizes and strides"
    NOT_ALONE = "its result is read by others too, and has to be in memory"
    IS_RETURNED = "its result is returned, and has to be in memory"
    NOT_SAMPLING_NOR_POINTWISE = "neither sampling nor arithmetic that a program can hold"
    BROADENS = "it makes the image larger by broadcasting"
    OPERAND_IS_COMPUTED = "its other operand is arithmetic itself: Inductor's kernel does both at once"
    OPERAND_IS_NO_TENSOR = "its other operand is a number that is known only when it runs"
    OPERAND_ELSEWHERE = "its other operand is on another device than the image"
    TOO_MANY_OPERANDS = "it reads more tensors than a kernel is given"
    BORDER_IS_NAN = "its border is NaN"
    OPERAND_BEFORE_MAP = "a tensor of the image's shape was read before it: that tensor would have to be mapped too"
    REGROUPED = "the dimensions it is about were regrouped by a view before"
    TENSOR_IN_PROLOGUE = "a tensor of the image's shape before sampling: a kernel reads one image"
    ARITHMETIC_BEFORE_WEIGHTED = "arithmetic between two weighted steps, or around a border before one"
    ARITHMETIC_AROUND_BORDER = "arithmetic after a border that was put on after arithmetic"
    ANOTHER_RESULT_DTYPE = "torch's result has another dtype than the program would have"
    WARP_AND_MAPS = "a warp and axis maps have kernels of their own"
    ADJOINT_AND_MAPS = "a gradient's maps are transposed, and do not merge with others"
    NOT_A_FILL = "ones are sampled beside the image, and what is made of both is no fill that a warp has"
    FILL_IS_COMPUTED = "what lies outside is filled with numbers that are known only when it runs"
    TOO_LONG = "the program is long enough"
    MUTATION_BETWEEN = "something is written in between"
    NOT_A_FORMULA = "its coordinates are not computed, pixel by pixel, by what a formula holds"
    NOT_ATTENTION = "samples are summed, but not by levels, points and weights as attention at sampled places has them"
    LONG_SIZES = "its symbolic sizes are computed by long formulas, which take torch minutes to compare"
    DIVIDED_BY_ZERO = "its coordinates are divided by 0"
    NOT_SMOOTH = "its coordinates need gradients, and have steps or kinks"
    LONG_FORMULA = "its coordinates are computed by too long a formula"
    TOO_MANY_INPUTS = "its coordinates are computed from too many values or tensors"


@dataclass(frozen=True)
class NotFused:
    """A node that was not made part of the kernel before (or after) it."""

    node: str
    why: Why | NotMerged
    at: str = ""  # where that was found, if it is not the node itself

    def __str__(self) -> str:
        why = self.why.value if isinstance(self.why, Why) else str(self.why)
        return f"{self.node}: {why}" + (f" ({self.at})" if self.at else "")
