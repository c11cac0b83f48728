"""What a wheel has for CUDA: the kernels that common calls ask for. Kernels there are made for numbers of taps and for
how rows lie (`launch/device_ways.h`), so that not all can be built before sizes are known; NVRTC builds the others when
they are asked for.

The rule is a table of calls: every resize, move and warp below, of each dtype, each way that pixels lie, and of one
image as well as of many. Nothing runs: calls are prepared, and tell their kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch

from polyphase import arguments
from polyphase.cuda import emit, launch
from polyphase.cuda.gradients import WarpGradients
from polyphase.cuda.maps import PreparedMaps
from polyphase.cuda.warps import PreparedWarp
from polyphase.kernels.plans import purpose
from polyphase.records import checking
from polyphase.records.facts import Facts, Sizes
from polyphase.records.layout import dense_strides
from polyphase.records.operands import slots
from polyphase.records.records import GradientRecord
from polyphase.sampling.pointwise import Channel
from polyphase.sampling.programs import Axes, Program, maps_program, warp_program
from polyphase.sampling.warps import MODES, Warp
from wheels import contents

CUDA = torch.device("cuda", 0)
#: Photographs, and what networks have within: so many channels, of these dtypes.
PHOTOGRAPH, WITHIN = 3, 64
DTYPES = {PHOTOGRAPH: (torch.uint8, torch.float32), WITHIN: (torch.float16, torch.bfloat16, torch.float32)}
BATCHES = (1, 32)
MODES_OF_RESIZES = (("nearest", False), ("bilinear", False), ("bicubic", False), ("bilinear", True), ("bicubic", True))
#: Before and after: to what networks take, by a half, and to twice the size.
RESIZES = {
    PHOTOGRAPH: (
        *(((480, 640), (224, 224)), ((500, 375), (224, 224)), ((256, 256), (224, 224)), ((1080, 1920), (224, 224))),
        *(((1080, 1920), (540, 960)), ((256, 256), (512, 512)), ((540, 960), (1080, 1920))),
    ),
    WITHIN: (((28, 28), (56, 56)), ((112, 112), (224, 224))),
}
FLIPS = ((-1,), (-2,), (-2, -1))
PADS = (((4, 4, 4, 4), "constant"), ((4, 4, 4, 4), "reflect"), ((4, 4, 4, 4), "replicate"), ((-16,) * 4, "constant"))
MOVED_SIZE = (224, 224)
WARPED_SIZES = {PHOTOGRAPH: ((224, 224), (1080, 1920)), WITHIN: ((28, 28), (112, 112))}


class Kernel(NamedTuple):
    source: str
    purpose: str


def kernels() -> list[Kernel]:
    """Their sources do not depend on an architecture."""
    return list(dict.fromkeys(itertools.chain(_kernels_of_calls(), _kernels_of_gradients())))


def _kernels_of_calls() -> Iterator[Kernel]:
    for program, inputs in itertools.chain(_resizes(), _moves(), _warps()):
        vectors = len(slots(Channel, program.prologue, program.epilogue))
        channels = _facts(program.target, (inputs[0].shape[1],), last=False)
        record = checking.record_of(program, [*inputs, *[channels] * vectors])
        yield _kernel(launch.prepared(record, True, "sm_90"))


def _kernel(call: PreparedMaps | PreparedWarp) -> Kernel:
    return Kernel(emit.kernel_source(call.plan, call.way), f"{purpose(call.plan)}, {call.way.template}")


def _images(channels: int, sizes: Iterable[Sizes]) -> Iterator[Facts]:
    for dtype, last, batch, size in itertools.product(DTYPES[channels], (False, True), BATCHES, sizes):
        yield _facts(dtype, (batch, channels, *size), last)


def _facts(dtype: torch.dtype, shape: Sizes, last: bool) -> Facts:
    return Facts(dtype, shape, dense_strides(shape, last), CUDA)


def _resizes() -> Iterator[tuple[Program, list[Facts]]]:
    """And the gradients of floats; of bytes with the commonest arithmetic behind it, too."""
    for channels, (before, after) in [(channels, one) for channels, some in RESIZES.items() for one in some]:
        for image, (mode, antialias) in itertools.product(_images(channels, [before]), MODES_OF_RESIZES):
            maps = arguments.resize_maps(image.shape, image.dtype, after, None, mode, None, None, antialias)
            yield maps_program(image.dtype, maps), [image]
            if image.dtype == torch.uint8:
                yield Program(image.dtype, Axes(maps), epilogue=contents.epilogues()[0]), [image]
            elif image.dtype.is_floating_point:
                gradient = _facts(image.dtype, (*image.shape[:2], *after), image.strides[1] == 1)
                yield maps_program(image.dtype, maps, before), [gradient]


def _moves() -> Iterator[tuple[Program, list[Facts]]]:
    for image in [*_images(PHOTOGRAPH, [MOVED_SIZE]), *_images(WITHIN, [MOVED_SIZE])]:
        every = [arguments.flip_maps(4, dims) for dims in FLIPS]
        every += [arguments.pad_maps(image.shape, amounts, mode) for amounts, mode in PADS]
        for maps in every:
            yield maps_program(image.dtype, maps), [image]


def _warps() -> Iterator[tuple[Program, list[Facts]]]:
    for image, mode in itertools.product(_warped_images(), MODES):
        for sampler, coordinates in _warped(image, mode):
            yield warp_program(image.dtype, sampler), [image, coordinates]


def _warped_images() -> Iterator[Facts]:
    for channels, sizes in WARPED_SIZES.items():
        yield from _images(channels, sizes)


def _warped(image: Facts, mode: str) -> Iterator[tuple[Warp, Facts]]:
    batch, _, *size = image.shape
    dtype = torch.float32 if image.dtype == torch.uint8 else image.dtype
    yield Warp("grid", mode, "zeros", False), _facts(dtype, (batch, *size, 2), last=False)
    yield Warp("affine", mode, "zeros", False, tuple(size)), _facts(dtype, (batch, 2, 3), last=False)


def _kernels_of_gradients() -> Iterator[Kernel]:
    images = [one for one in _warped_images() if one.dtype == torch.float32]
    for image, mode in itertools.product(images, MODES):
        for sampler, coordinates in _warped(image, mode):
            gradient = image._replace(strides=dense_strides(image.shape, False))
            for needed in ((True, False), (False, True), (True, True)):
                record = GradientRecord(sampler, gradient, image, coordinates, needed)
                yield from map(_kernel, WarpGradients(record, "sm_90").kernels(deterministic=False))
