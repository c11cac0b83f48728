"""From a program, and the facts of the tensors it is given, to the record of a call.

Everything that can be checked is checked here, once: a kernel does not see where a tensor ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from polyphase.errors import WrongInputError
from polyphase.records import operands
from polyphase.records.facts import HALF, Facts, Sizes
from polyphase.records.layout import output_strides
from polyphase.records.records import CallRecord, GradientRecord
from polyphase.sampling.programs import Axes, Program, by_moving
from polyphase.sampling.warps import Warp

WARPED_AXES = (2, 3)


def record_of(program: Program, inputs: Sequence[Facts], out: Facts | None = None) -> CallRecord:
    program = by_moving(program)
    if isinstance(program.sampler, Axes):
        image, *given = inputs
        return _maps_record(program, image, given, out)
    image, coordinates, *given = inputs
    return _warp_record(program, image, coordinates, given, out)


def _maps_record(program: Program, image: Facts, given: Sequence[Facts], out: Facts | None) -> CallRecord:
    axes = program.sampler
    assert isinstance(axes, Axes), "warps have records of their own"
    shape = tuple(image.shape)
    leading = len(shape) - len(axes.maps)
    if leading < 0:
        raise WrongInputError(f"an image of shape {shape} for {len(axes.maps)} maps")
    _check_dtypes(program, image, out)
    _check_devices(image, given, out)
    sampled, adjoint_of = shape[leading:], axes.adjoint_of
    mapped = tuple([one.output_size(n) for one, n in zip(axes.maps, adjoint_of or sampled, strict=True)])  # or raises
    if adjoint_of and mapped != sampled:
        raise WrongInputError(f"maps from {adjoint_of} lead to {mapped}, but their adjoint is given {sampled}")
    out_shape = shape[:leading] + (adjoint_of or mapped)
    out = _output(program, image, out_shape, out)
    return CallRecord(program, image, out, operands=operands.describe(program, out_shape, leading - 1, given))


def _warp_record(
    program: Program, image: Facts, coordinates: Facts, given: Sequence[Facts], out: Facts | None
) -> CallRecord:
    sampler = program.sampler
    assert isinstance(sampler, Warp), "axis maps have records of their own"
    out_shape = _warped_shape(sampler, image, coordinates)
    _check_dtypes(program, image, out)
    _check_devices(image, [coordinates, *given], out)
    _check_coordinates(program.sampled, coordinates.dtype, sampler.mode)
    _check_fields(coordinates, given[len(given) - operands.fields_of(sampler) :])
    if len(sampler.fill) > 1 and len(sampler.fill) != out_shape[1]:
        raise WrongInputError(
            f"a fill of {len(sampler.fill)} numbers for {out_shape[1]} channels; give one, or as many"
        )
    out = _output(program, image, out_shape, out)
    return CallRecord(program, image, out, coordinates, operands.describe(program, out_shape, 1, given))


def gradient_record(
    sampler: Warp,
    gradient: Facts,
    image: Facts,
    coordinates: Facts,
    needed: tuple[bool, bool],
    fields: tuple[Facts, ...],
) -> GradientRecord:
    """Checks a warp's gradients and makes their record; `needed`: the image's gradient, and that of the coordinates."""
    out_shape = _warped_shape(sampler, image, coordinates)
    if (gradient.dtype, gradient.shape) != (image.dtype, out_shape):
        raise WrongInputError(
            f"a gradient of {gradient.dtype} {tuple(gradient.shape)} for an output of {image.dtype} {out_shape}"
        )
    _check_coordinates(image.dtype, coordinates.dtype, sampler.mode)
    _check_fields(coordinates, fields)
    of_fields = operands.describe_fields(out_shape, operands.fields_of(sampler), fields)
    given = operands.Operands(tensors=of_fields) if of_fields else operands.NO_OPERANDS
    return GradientRecord(sampler, gradient, image, coordinates, needed, given)


def _output(program: Program, image: Facts, shape: Sizes, given: Facts | None) -> Facts:
    """Where the output lies; of a given one, the check that it is the one that is written."""
    if given is None:
        return Facts(program.target, shape, output_strides(program, image, shape), image.device)
    if tuple(given.shape) != shape:
        raise WrongInputError(f"an image of {tuple(image.shape)} leads to {shape}; given is {tuple(given.shape)}")
    return given._replace(shape=shape)  # a tuple, which new outputs are allocated by, and no torch.Size


def _warped_shape(sampler: Warp, image: Facts, coordinates: Facts) -> Sizes:
    """Gives the shape of a warp's output. Also the check that keeps kernels inside their buffers."""
    shape = image.shape
    batch, axes = (*shape, 0)[0], len(shape) - 2
    out: Sizes = sampler.size if sampler.source != "grid" else coordinates.shape[1:-1]
    needed: Sizes = (batch, *out, axes)
    if sampler.formula is not None:
        needed = (batch, sampler.formula.entries)
    elif sampler.source == "affine":
        needed = (batch, axes, axes + 1)
    empty = 0 in shape[2:] and 0 not in out
    if coordinates.shape != needed or len(out) != axes or empty or axes not in WARPED_AXES:
        raise WrongInputError(
            f"a {sampler.mode} warp of an image of shape {tuple(shape)} by a {sampler.source} of shape "
            f"{tuple(coordinates.shape)} to size {tuple(out)}; a grid is (batch, out..., axes), a matrix (batch, axes, "
            "axes + 1), a formula's entries (batch, count), for 2 or 3 axes that are not empty"
        )
    return (*shape[:2], *map(int, out))


def _check_dtypes(program: Program, image: Facts, out: Facts | None) -> None:
    target = program.target if out is None else out.dtype
    if image.dtype != program.source or target != program.target:
        raise WrongInputError(
            f"an image of {image.dtype} of shape {tuple(image.shape)} to {target}; the program was made for "
            f"{program.source} to {program.target}"
        )


def _check_devices(image: Facts, given: Sequence[Facts], out: Facts | None) -> None:
    for one in given if out is None else (*given, out):
        if one.device != image.device:
            raise WrongInputError(
                f"a tensor on {one.device} with an image on {image.device}; all must be on one device: move it with .to"
            )


def _check_coordinates(sampled: torch.dtype, coordinates: torch.dtype, mode: str) -> None:
    """Positions are found in the dtype values are summed in, float32 for halves; bytes and moved values take any."""
    floats = (torch.float32, torch.float64)
    if sampled in HALF:
        allowed: tuple[torch.dtype, ...] = (sampled, torch.float32)
    elif sampled.is_floating_point:
        allowed = (sampled,)
    else:
        allowed = floats
    if coordinates not in allowed and not (mode == "nearest" and coordinates in floats):
        raise WrongInputError(
            f"a {mode} warp of {sampled} pixels by {coordinates} coordinates; they can be "
            f"{' or '.join(map(str, allowed))}: convert them"
        )


def _check_fields(coordinates: Facts, fields: Sequence[Facts]) -> None:
    for one in fields:
        if one.dtype != coordinates.dtype:
            raise WrongInputError(
                f"a field of {one.dtype} with entries of {coordinates.dtype}; a formula has one dtype: convert it"
            )
