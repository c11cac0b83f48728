"""Where an output's elements lie: torch's rules for memory formats, on sizes and strides alone.

torch's own Python twin of them imports SymPy, half a second at a user's first call.
"""

from __future__ import annotations

import torch

from polyphase.records.facts import Facts, Sizes
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Step

#: Of the last axis but one, in the place of a stride: an address is that of a list of where rows begin, as those of a
#: picture that lies in several blocks of memory. Of one image of bytes, and of what is read, never of an output.
BY_ROWS = -1

#: By rank: the dimensions of a channels-last image, from the innermost on.
CHANNELS_LAST = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}

#: Pads whose results, and whose gradients, eager's kernels for CUDA make contiguous, whatever the image is.
CONTIGUOUS_ON_CUDA = ("reflect",)
CONTIGUOUS_GRADIENTS_ON_CUDA = ("reflect", "replicate")


def output_strides(program: Program, image: Facts, out_shape: Sizes) -> Sizes:
    """Flips and crops keep any dense strides, as eager's do; other programs keep channels last, or what their order
    says."""
    preserve = program.order == "preserve"
    last = is_channels_last(image.shape, image.strides) if preserve else program.order == "channels_last"
    strides = dense_strides(out_shape, last and len(out_shape) in CHANNELS_LAST)
    axes = program.sampler
    keeps = isinstance(axes, Axes) and not axes.transposed and keeps_strides(axes.maps)
    if preserve and strides != image.strides and keeps:
        return strides_like(out_shape, image.strides)
    return strides


def strides_like(shape: Sizes, strides: Sizes) -> Sizes:
    """Gives strides as torch makes a tensor like another. Not on a meta tensor, which does not quite tell."""
    return torch.empty_like(torch.empty_strided(shape, strides, dtype=torch.uint8, device="cpu")).stride()


def keeps_strides(maps: tuple[AxisMap, ...]) -> bool:
    """Whether maps are flips, and constant pads that only crop, and nothing else: eager makes them as clones are made,
    the latter of a view."""
    steps = [step for one in maps for step in one.steps]
    return bool(steps) and all(isinstance(step, Flip) or _only_crops(step) for step in steps)


def _only_crops(step: Step) -> bool:
    return isinstance(step, Pad) and step.mode == "constant" and step.before <= 0 and step.after <= 0


def gradient_order(maps: tuple[AxisMap, ...], channels_last: bool) -> str:
    """How eager lays out the gradient of an image, `channels_last` or not, that went through maps: mostly as the one
    that comes in; after some as the image; and after some always contiguous."""
    steps = [step for one in maps for step in one.steps]
    if any(has_contiguous_gradient(step, len(maps)) for step in steps):
        return "contiguous"
    if any(
        isinstance(step, Area) or (isinstance(step, Pad) and step.mode in ("reflect", "replicate")) for step in steps
    ):
        one_pixel = all(isinstance(step, Area) and step.size == 1 for step in steps)  # eager takes the mean
        return "channels_last" if channels_last and not one_pixel else "contiguous"
    return "preserve"


def order_on(device: torch.device, maps: tuple[AxisMap, ...], *, transposed: bool) -> str | None:
    """How eager's kernels for a device lay out the result of maps, or the gradient, where it is not as the CPU's do;
    else None. Our functions are alike on all devices; what stands for eager's kernels is as these are."""
    modes = CONTIGUOUS_GRADIENTS_ON_CUDA if transposed else CONTIGUOUS_ON_CUDA
    pads = any(isinstance(step, Pad) and step.mode in modes for one in maps for step in one.steps)
    return "contiguous" if device.type == "cuda" and pads else None


def has_contiguous_gradient(step: object, axes: int) -> bool:
    if isinstance(step, Resize):
        return step.filter == "bicubic" or (step.filter == "lanczos" and axes == 2)
    return axes == 3 and isinstance(step, (Nearest, Area))


def dense_strides(shape: Sizes, channels_last: bool) -> Sizes:
    order = CHANNELS_LAST[len(shape)] if channels_last else range(len(shape) - 1, -1, -1)
    strides, next_stride = [0] * len(shape), 1
    for dim in order:
        strides[dim] = next_stride
        next_stride *= shape[dim] if channels_last else max(shape[dim], 1)  # of an empty image torch has it so
    return tuple(strides)


def is_channels_last(shape: Sizes, strides: Sizes) -> bool:
    """Whether torch suggests channels last for an image of these strides; what is both is contiguous."""
    if len(shape) not in CHANNELS_LAST or strides[1] == 0 or 0 in shape:
        return False
    least = 0
    for dim in CHANNELS_LAST[len(shape)]:
        if strides[dim] < least or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * shape[dim]
    return True
