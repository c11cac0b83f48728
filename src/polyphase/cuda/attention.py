"""Attention at sampled places on CUDA: kernels, and how their work is cut.

The value's gradient is added up by atomic operations: of floats, which is fastest; or, where torch is to be
deterministic, of integers, for which no order matters. All others are sums in a fixed order.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import NamedTuple

import torch
from torch import Tensor

from polyphase import torch_private
from polyphase.calls.attention import Gradients, Tensors
from polyphase.cuda import build, driver, emit, launcher
from polyphase.cuda.launch import architecture
from polyphase.cuda.launcher import LaunchPlan
from polyphase.records.facts import HALF
from polyphase.sampling.attention import Attention

#: What is added to the value's gradient: `AttentionAdding` of attention.h; None is the forward.
NOTHING, FLOATS, INTEGERS = range(3)
THREADS = 128
MOST_BLOCKS = 2**20
#: Bytes that a thread reads at once; points that a block finds together; and their bytes, by bytes of a position.
TOGETHER_BYTES, POINTS_AT_ONCE, GRADIENT_CHUNK = 16, 256, 4


class Kernel(NamedTuple):
    """adding: of gradients. together: channels that a thread reads at once."""

    dtype: torch.dtype
    adding: int | None
    together: int

    @property
    def work(self) -> torch.dtype:
        return torch.float32 if self.dtype in HALF else self.dtype


class Prepared(NamedTuple):
    """A launch: its kernel, blocks, shared memory, and the call's bytes."""

    kernel: Kernel
    blocks: int
    shared_bytes: int
    call: bytes


class Rounding(NamedTuple):
    """Sums of integers in place of floats: what gradients are multiplied by, of each image and head; the sums, of
    doubles two; and what the second ones count in."""

    scales: Tensor
    sums: Tensor
    rest: float


def prepared(
    tensors: Tensors,
    attention: Attention,
    gradients: Gradients | None = None,
    rounding: Rounding | None = None,
) -> Prepared:
    kernel = Kernel(tensors.value.dtype, None, _together(tensors))
    if gradients is not None:
        adding = NOTHING if gradients.value is None else FLOATS if rounding is None else INTEGERS
        kernel = kernel._replace(adding=adding)
    batch, queries, heads, channels = tensors.other.shape
    points = tensors.weights.shape[-1]
    lanes = min(THREADS, math.ceil(channels / kernel.together))
    at_once = THREADS // lanes
    chunk = min(points, GRADIENT_CHUNK if gradients else max(1, POINTS_AT_ONCE // at_once))
    point_bytes = 4 * 4 + (4 + 2 + 2 + 1) * kernel.work.itemsize  # an `AttentionPoint`
    shared = at_once * chunk * (point_bytes + point_bytes % 8)
    if gradients is not None:
        shared += chunk * 3 * THREADS * kernel.work.itemsize
    blocks = min(math.ceil(batch * queries * heads / at_once), MOST_BLOCKS)
    addresses = (0, 0) if rounding is None else (rounding.scales.data_ptr(), rounding.sums.data_ptr())
    own = struct.pack("=3q2Qd", lanes, at_once, chunk, *addresses, 1.0 if rounding is None else rounding.rest)
    return Prepared(kernel, blocks, shared, tensors.packed(attention, gradients) + own)


def _together(tensors: Tensors) -> int:
    """Counts the channels of a vector, all of which lie at multiples of its size."""
    item = tensors.value.itemsize
    strides = [n for one in (tensors.value, tensors.other) for n in one.stride()[:3]]
    both = math.gcd(tensors.value.data_ptr(), tensors.other.data_ptr()) // item
    return math.gcd(TOGETHER_BYTES // item, tensors.value.shape[-1], both, *strides)


def source(kernel: Kernel) -> str:
    return emit.attention_source(kernel.dtype, kernel.work, kernel.together, THREADS, kernel.adding)


# ---- launches


def attend(out: Tensor, value: Tensor, places: Tensor, weights: Tensor, attention: Attention) -> None:
    with torch.cuda.device(out.device):
        tensors = Tensors.of(out, value, places, weights)
        _launch(prepared(tensors, attention), out.device.index)


def gradients(
    gradient: Tensor, value: Tensor, places: Tensor, weights: Tensor, attention: Attention, of_value: bool
) -> Gradients:
    with torch.cuda.device(value.device):
        tensors, found = empty_gradients(Tensors.of(gradient, value, places, weights), of_value)
        rounding = None
        if of_value and torch.are_deterministic_algorithms_enabled():
            rounding = rounding_for(tensors)
        _launch(prepared(tensors, attention, found, rounding), value.device.index)
        return finished(found, rounding, value.dtype)


def empty_gradients(tensors: Tensors, of_value: bool) -> tuple[Tensors, Gradients]:
    work = torch.float32 if tensors.value.dtype in HALF else tensors.value.dtype
    of = torch.zeros(tensors.value.shape, dtype=work, device=tensors.value.device) if of_value else None
    return tensors, Gradients(of, torch.empty_like(tensors.places), torch.empty_like(tensors.weights))


def rounding_for(tensors: Tensors) -> Rounding:
    """No sum is beyond 2^61: a gradient times a weight is less than 2^exponent, and there are less than 2^bits."""
    most_gradient, most_weight = (_largest(one) for one in (tensors.other, tensors.weights))
    _, exponents = torch.frexp(most_gradient * most_weight)
    bits = (tensors.weights.shape[1] * tensors.weights.shape[3]).bit_length()
    shifts = (61 - bits - exponents).clamp(max=1000)
    scales = torch.ldexp(torch.ones_like(most_weight), shifts)
    count = 2 if tensors.value.dtype == torch.float64 else 1
    sums = torch.zeros((count, *tensors.value.shape), dtype=torch.int64, device=tensors.value.device)
    return Rounding(scales, sums, 2.0 ** (61 - bits))


def _largest(tensor: Tensor) -> Tensor:
    """Finds the largest of each image and head, among those that are finite."""
    wide = tensor.double().abs()
    return torch.where(wide.isfinite(), wide, 0).amax((1, 3))


def finished(found: Gradients, rounding: Rounding | None, dtype: torch.dtype) -> Gradients:
    """Adds sums of integers, and converts to the value's dtype."""
    of_value = found.value
    if of_value is None:
        return found
    if rounding is not None:
        total = rounding.sums[0].double()
        for rest in rounding.sums[1:]:
            total += rest.double() / rounding.rest
        of_value = of_value + (total / rounding.scales[:, None, :, None]).to(of_value.dtype)
    return found._replace(value=of_value.to(dtype))


def _launch(call: Prepared, device: int) -> None:
    plan = LaunchPlan(
        device, _function(call.kernel, device), (call.blocks, 1, 1), THREADS, call.shared_bytes, 0, 0, 16, 16
    )
    output, value = struct.unpack_from("=2Q", call.call)
    launcher.bind(plan, call.call).run(torch_private.current_raw_stream(device), output, value)


@functools.cache
def _function(kernel: Kernel, device: int) -> int:
    what = "attention at sampled places" if kernel.adding is None else "gradients of attention at sampled places"
    image = build.image(source(kernel), architecture(device), what)
    return driver.load(device, image, emit.KERNEL_SYMBOL, driver.most_shared_bytes(device))
