"""PyTorch's samples (OpInfo) and our own through `torch.compile(backend="polyphase")` and `polyphase.accelerate()`.

Many samples are compiled as one function, which costs a compilation each group and not each sample: no sample has a
neighbour to be fused with, as each has its own tensors.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase
from polyphase.ops.program import program
from polyphase.torch_versions import SAMPLES_VOLUMES_BY_BICUBIC
from tests.compile.running import check, check_gradients, compiled, launches
from tests.conformance.checks import HALF, Case, _incoming, same_bits
from tests.conformance.functional_checks import (
    Pair,
    gradient_failures,
    gradient_strides_failure,
    gradients,
    outputs,
    strides_failure,
    values_failures,
)
from tests.conformance.test_functional_opinfo import OPERATORS, cases, variants
from tests.conformance.test_functional_samples import QUICK, SMALL
from tests.conformance.test_opinfo import every_sample
from tests.conformance.test_samples import case_of
from tests.support.samples import Sample, image

FLOATS = (torch.float32, torch.float64)


def wrong(pair: Pair) -> list[str]:
    """What is not eager's and not one of the differences that `expected_functional_differences.py` lists."""
    if same_bits(pair.ours, pair.eager) is None and pair.ours.stride() == pair.eager.stride():
        return []
    found = [strides_failure(pair), *values_failures(pair)]
    return [f"{pair.case.label}: {failure}" for failure in found if failure]


def wrong_gradients(pair: Pair) -> list[str]:
    if same_bits(pair.ours, pair.eager) is None and pair.ours.stride() == pair.eager.stride():
        return []
    found = [gradient_strides_failure(pair), *gradient_failures(pair)]
    return [f"{pair.case.label} backward: {failure}" for failure in found if failure]


# ---- accelerate()


def is_judged_elsewhere(got: Tensor, pair: Pair) -> bool:
    """What the functions give, bit by bit: `tests/conformance/` holds that against eager, of these very samples."""
    return same_bits(got, pair.ours) is None and got.stride() == pair.ours.stride()


def accelerated_failures(found: Iterable[Case], backward: bool) -> list[str]:
    """With the check of every call, which must not object either."""
    failures = []
    for case in found:
        if backward:
            pairs = gradients(case)
            with polyphase.accelerate(check=True):
                ours = case.gradients()
            for pair, got in zip(pairs, ours, strict=True):
                failures += [] if is_judged_elsewhere(got, pair) else wrong_gradients(replace(pair, ours=got))
        else:
            pair = outputs(case)
            with polyphase.accelerate(check=True):
                got = case.run()
            failures += [] if is_judged_elsewhere(got, pair) else wrong(replace(pair, ours=got))
    return failures


def some(found: Iterable[Case], all_of_them: bool) -> Iterable[Case]:
    """Every third, but for the full run: the others differ in what the functions tell apart, and not the switch."""
    return itertools.islice(found, 0, None, 1 if all_of_them else 3)


def by_kind(backward: bool) -> list[Any]:
    """The switch reads operators, which come in all these dtypes; of every dtype, the functions run these samples."""
    kinds = (torch.bool, torch.uint8, torch.bfloat16, torch.float32, torch.complex64)
    return [
        pytest.param(*one.values, id=one.id, marks=() if one.values[1] in kinds else pytest.mark.full)
        for one in variants(backward)
    ]


@every_sample
@pytest.mark.parametrize(("name", "dtype"), by_kind(backward=False))
def test_accelerated_forward(name: str, dtype: torch.dtype, all_of_them: bool) -> None:
    assert accelerated_failures(some(cases(name, dtype), all_of_them), backward=False) == []


@every_sample
@pytest.mark.parametrize(("name", "dtype"), by_kind(backward=True))
def test_accelerated_backward(name: str, dtype: torch.dtype, all_of_them: bool) -> None:
    assert accelerated_failures(some(cases(name, dtype), all_of_them), backward=True) == []


@pytest.mark.parametrize("group", SMALL)
def test_our_samples_accelerated(group: str) -> None:
    found = [case_of(sample) for sample in SMALL[group]]
    assert accelerated_failures(found, backward=False) == []
    if SMALL[group][0].dtype.is_floating_point:
        assert accelerated_failures(found, backward=True) == []


def test_accelerated_samples_run_on_our_kernels() -> None:
    """Otherwise the tests above would hold of a switch that does nothing."""
    for name in ("nn.functional.interpolate.bicubic", "flip", "nn.functional.pad.reflect", "nn.functional.grid_sample"):
        case = next(iter(cases(name, torch.float32)))
        assert launches(case.run)[1] == 0
        with polyphase.accelerate():
            assert launches(case.run)[1] == 1, name


PIXELS, BYTES = torch.rand(2, 3, 5, 6), torch.zeros(2, 3, 5, 6, dtype=torch.uint8)
ERRORS: dict[str, Callable[[], Tensor]] = {
    "a size of 0": lambda: F.interpolate(PIXELS, size=(0, 4), mode="bilinear"),
    "a rank that the mode has not": lambda: F.interpolate(PIXELS[0], size=(3, 4), mode="bilinear"),
    "too many sizes": lambda: F.interpolate(PIXELS, size=(3, 4, 5), mode="nearest"),
    "antialiased nearest": lambda: F.interpolate(PIXELS, size=(3, 4), mode="nearest", antialias=True),
    "bilinear integers": lambda: F.interpolate(BYTES.int(), size=(3, 4), mode="bilinear"),
    "area of bytes": lambda: F.interpolate(BYTES, size=(3, 4), mode="area"),
    "antialiased half": lambda: F.interpolate(PIXELS.half(), size=(3, 4), mode="bilinear", antialias=True),
    "an empty image": lambda: F.interpolate(PIXELS[:, :, :0], size=(3, 4), mode="bicubic"),
    "no channels": lambda: F.interpolate(PIXELS[:, :0], size=(3, 4), mode="bilinear"),
    "flip twice": lambda: torch.flip(PIXELS, (1, -3)),
    "flip beyond": lambda: torch.flip(PIXELS, (4,)),
    "reflect too far": lambda: F.pad(PIXELS, (6, 0, 0, 0), mode="reflect"),
    "reflect of bool": lambda: F.pad(BYTES.bool(), (1, 0, 0, 0), mode="reflect"),
    "constant to less than nothing": lambda: F.pad(PIXELS, (-3, -4)),
    "a grid of another batch": lambda: F.grid_sample(PIXELS, torch.zeros(3, 4, 4, 2), align_corners=False),
    "a grid of three": lambda: F.grid_sample(PIXELS, torch.zeros(2, 4, 4, 3), align_corners=False),
    "a grid of another dtype": lambda: F.grid_sample(PIXELS, torch.zeros(2, 4, 4, 2).double(), align_corners=False),
    "warped bytes": lambda: F.grid_sample(BYTES, torch.zeros(2, 4, 4, 2), align_corners=False),
}
if not SAMPLES_VOLUMES_BY_BICUBIC:
    ERRORS["bicubic volumes"] = lambda: F.grid_sample(
        PIXELS[None], torch.zeros(1, 2, 2, 2, 3), mode="bicubic", align_corners=False
    )


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_eagers_where_accelerated(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as eager:  # noqa: PT011 it is what the other one is compared with
            ERRORS[name]()
        with polyphase.accelerate(), pytest.raises(type(eager.value)) as ours:
            ERRORS[name]()
    assert type(ours.value) is type(eager.value)
    assert str(ours.value) == str(eager.value)


@pytest.mark.parametrize("name", [name for name, op in OPERATORS.items() if op.error_inputs_func is not None])
def test_error_inputs_where_accelerated(name: str) -> None:
    found = list(OPERATORS[name].error_inputs("cpu"))
    assert found
    for error in found:
        sample = error.sample_input
        with polyphase.accelerate(), pytest.raises(error.error_type, match=error.error_regex):
            OPERATORS[name](sample.input, *sample.args, **sample.kwargs)


# ---- torch.compile


def lying_so(result: Tensor, eager: Tensor, anyhow: bool = False) -> Tensor:
    """With eager's strides where Inductor has its own: without elements, along axes of one, and `anyhow`."""
    if result.shape != eager.shape:
        return result
    if anyhow:
        return torch.empty_strided(eager.shape, eager.stride(), dtype=result.dtype).copy_(result)
    strides = zip(result.shape, result.stride(), eager.stride(), strict=True)
    lying = [theirs if size == 1 or not result.numel() else own for size, own, theirs in strides]
    return result.as_strided(result.shape, lying)


def compiled_failures(found: Sequence[Case], dynamic: bool, backward: bool) -> list[str]:
    """Forward, and backward where asked."""
    counts = [len(case.tensors) for case in found]

    def together(*tensors: Tensor) -> list[Tensor]:
        results, first = [], 0
        for case, count in zip(found, counts, strict=True):
            results.append(case.function(*tensors[first : first + count]))
            first += count
        return results

    tensors = [one.detach().requires_grad_(backward) for case in found for one in case.tensors]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*affine_grid behavior has changed")
        results = compiled(together, dynamic=dynamic, fullgraph=True)(*tensors)
    failures = []
    for case, result in zip(found, results, strict=True):
        pair = outputs(case)
        failures += wrong(replace(pair, ours=lying_so(result.detach(), pair.eager)))
    if backward:
        incoming = [torch.empty_like(one.detach()).copy_(_incoming(one.shape, one.dtype)) for one in results]
        of_tensors = list(torch.autograd.grad(results, tensors, incoming))
        for case, count in zip(found, counts, strict=True):
            own, of_tensors = of_tensors[:count], of_tensors[count:]
            anyhow = dynamic or case.label.startswith("pad")
            failures += [
                one
                for pair, got in zip(gradients(case), own, strict=True)
                for one in wrong_gradients(replace(pair, ours=lying_so(got, pair.eager, anyhow)))
            ]
    return failures


def few(dtype: torch.dtype, of_each: int) -> list[Case]:
    """The largest samples of every operator variant."""
    found = []
    for name, op in OPERATORS.items():
        if dtype in op.supported_dtypes("cpu"):
            every = [case for case in cases(name, dtype) if "as it is" in case.label and case.tensors[0].numel()]
            found += sorted(every, key=lambda case: -case.tensors[0].numel())[:of_each]
    return found


@pytest.mark.inductor
@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.full)])
def test_floats_compiled(dynamic: bool) -> None:
    found = few(torch.float32, 2 if dynamic else 1)
    assert len(found) >= len(OPERATORS), "of every operator"
    assert compiled_failures(found, dynamic, backward=True) == []


@pytest.mark.inductor
def test_bytes_compiled() -> None:
    assert compiled_failures(few(torch.uint8, 1), dynamic=False, backward=False) == []


@pytest.mark.inductor
@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.full)])
def test_resized_batches_of_nothing_compiled(dynamic: bool) -> None:
    modes = ("nearest", "nearest-exact", "bilinear", "bicubic", "area")

    def resized(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(F.interpolate(x, size=(4, 9), mode=mode) for mode in modes)

    nothing = torch.empty(0, 3, 5, 6, requires_grad=True)
    got, want = compiled(resized, dynamic=dynamic)(nothing), resized(nothing)
    assert [one.shape for one in got] == [one.shape for one in want]
    (gradient,) = torch.autograd.grad(got, nothing, want)
    assert gradient.shape == nothing.shape


@pytest.mark.inductor
def test_a_few_nearest_bytes_by_a_factor_compiled() -> None:
    """Given back to Inductor, they would be floats."""

    def larger(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=1.7, mode="nearest")

    line = torch.arange(24, dtype=torch.uint8).view(2, 3, 4)
    assert torch.equal(compiled(larger)(line), larger(line))
    assert compiled(larger)(line).dtype == torch.uint8


@pytest.mark.inductor
def test_pads_of_nothing_compiled() -> None:
    """Inductor does not know these operators whole, and no kernel of ours is needed."""

    def padded(x: Tensor) -> tuple[Tensor, ...]:
        given = ((x, 1), (x[None], 2), (x[None, None], 3))
        return tuple(
            F.pad(one, (0, 0) * axes, mode=mode) * 2 for one, axes in given for mode in ("reflect", "replicate")
        )

    image = torch.randn(3, 9, 11, requires_grad=True)
    got, want = compiled(padded)(image), padded(image)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    (gradient,) = torch.autograd.grad(got, image, want)
    assert torch.equal(gradient, torch.autograd.grad(want, image, want)[0])


@pytest.mark.inductor
def test_circular_pads_are_kernels() -> None:
    """Contiguous ones, whose results lie as eager's do; gradients, too."""

    def padded(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.pad(x, (2, -1, 3, 2), mode="circular"), F.pad(x[:, :1], pad=(0, 1, 1, 0), mode="circular")

    for given in (image((2, 3, 9, 11)), image((2, 3, 9, 11)).to(memory_format=torch.channels_last)):
        check(padded, given)
    check_gradients(padded, image((2, 3, 9, 11)))
    _, launched = launches(compiled(lambda x: F.pad(x, (2, 1, 3, 2), mode="circular")), image((2, 3, 9, 11)))
    assert launched == 1


@pytest.mark.inductor
def test_masks_of_logits_are_one_kernel() -> None:
    def masks(x: Tensor) -> tuple[Tensor, ...]:
        resized = F.interpolate(x, size=(13, 17), mode="bilinear")
        return (resized > 0), resized.mul(2) <= 0.3

    logits = image((2, 3, 9, 11)) - 0.5
    logits[0, 0, 4:7] = float("nan")
    check(masks, logits, exact=True)
    check(masks, logits.double().to(memory_format=torch.channels_last), exact=True)
    one = compiled(lambda x: F.interpolate(x, size=(13, 17), mode="bilinear") > 0)
    assert launches(one, logits)[1] == 1


@pytest.mark.inductor
def test_padded_volumes_lie_as_the_volume_does() -> None:
    """And where Inductor has them contiguous (2.11), as its own do."""

    def padded(x: Tensor) -> tuple[Tensor, ...]:
        return F.pad(x, (1, 2, 0, 1, 2, 1), mode="reflect"), F.pad(x, (1, 2, 0, 1, 2, 1), mode="replicate")

    volume = torch.randn(2, 3, 4, 5, 6)
    for given in (volume, volume.contiguous(memory_format=torch.channels_last_3d)):
        ours, eager, inductor = compiled(padded)(given), padded(given), torch.compile(padded)(given)
        for got, want, theirs in zip(ours, eager, inductor, strict=True):
            assert torch.equal(got, want)
            assert got.stride() == theirs.stride()


@pytest.mark.inductor
@pytest.mark.parametrize("inside", [False, True])
def test_conjugated_views_compiled(inside: bool) -> None:
    """They lie in memory as what they are views of does."""

    def moved(x: Tensor) -> tuple[Tensor, ...]:
        x = x.conj() if inside else x
        return x.flip(-1), F.pad(x, (3, 4)), x[..., 5:70].flip(-2)

    image = torch.randn(2, 3, 90, 80, dtype=torch.complex64)
    given = image if inside else image.conj()
    for got, want in zip(compiled(moved)(given), moved(given), strict=True):
        assert torch.equal(got, want)


@pytest.mark.full
@pytest.mark.inductor
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("name", "dtype"), variants(backward=False))
def test_every_sample_compiled(name: str, dtype: torch.dtype, dynamic: bool) -> None:
    found = list(cases(name, dtype))
    for first in range(0, len(found), 40):
        torch._dynamo.reset()
        backward = dtype in FLOATS and dtype in OPERATORS[name].supported_backward_dtypes("cpu")
        assert compiled_failures(found[first : first + 40], dynamic, backward) == []


@pytest.mark.full
@pytest.mark.inductor
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("group", SMALL)
def test_our_samples_compiled(group: str, dynamic: bool) -> None:
    found = [case_of(sample) for sample in SMALL[group]]
    for first in range(0, len(found), 40):
        torch._dynamo.reset()
        assert compiled_failures(found[first : first + 40], dynamic, found[0].dtype in FLOATS) == []


@pytest.mark.full
@pytest.mark.inductor
def test_our_samples_of_every_layout_compiled() -> None:
    """One antialiased resize, flip and pad for each layout."""
    chosen: dict[object, Sample] = {}
    for sample in QUICK:
        if sample.dtype not in (*HALF, torch.float64) and 0 not in sample.shape:
            chosen.setdefault((sample.operator, sample.layout, sample.dtype is torch.uint8), sample)
    found = [case_of(sample) for sample in chosen.values()]
    assert len(found) > 20
    assert compiled_failures(found, dynamic=False, backward=False) == []


# ---- the operators themselves


PROGRAM = (
    "program(uint8, axes([axismap([resize(size0, bilinear, antialias=True)]), "
    "axismap([resize(size1, bilinear, antialias=True), slice(size2, size3)])]), "
    "epilogue=sub(div(cast(x, float32), 255), channel(0)))"
)


def test_opcheck_of_programs() -> None:
    x, vector = image((2, 3, 9, 8), torch.uint8), torch.rand(3, 1, 1)
    given = ([x, vector], PROGRAM, [5, 7, 1, 6], [2, 3, 5, 5], [75, 25, 5, 1])
    torch.library.opcheck(program, given)
    channels_last = ([x, vector], PROGRAM, [5, 7, 1, 6], [2, 3, 5, 5], [75, 1, 15, 3])
    torch.library.opcheck(program, channels_last)


def test_programs_of_symbolic_sizes() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def halved(x: Tensor, vector: Tensor) -> Tensor:
        height, width = x.shape[2] // 2, x.shape[3] // 2
        size = [x.shape[0], 3, height, width - 1]
        strides = [3 * height * (width - 1), height * (width - 1), width - 1, 1]
        result: Tensor = program([x, vector], PROGRAM, [height, width, 1, width], size, strides)
        return result

    vector = torch.rand(3, 1, 1)
    graph = make_fx(halved, tracing_mode="symbolic")(image((2, 3, 22, 18), torch.uint8), vector)
    for shape in ((2, 3, 22, 18), (5, 3, 14, 40)):
        x = image(shape, torch.uint8)
        want = F.interpolate(x, size=(shape[2] // 2, shape[3] // 2), mode="bilinear", antialias=True)[..., 1:] / 255
        torch.testing.assert_close(graph(x, vector), want - vector)


ops = torch.ops.polyphase
WHOLE_CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "interpolate": (ops.interpolate.default, (PIXELS, [4, 9], None, "bilinear", False, None, True)),
    "interpolate by factors": (ops.interpolate.default, (PIXELS, None, [1.5, 0.7], "bicubic", None, None, False)),
    "flip": (ops.flip.default, (PIXELS, [-1, 1])),
    "pad": (ops.pad.default, (PIXELS, [1, 2, 0, 3], "reflect", None)),
    "constant pad": (ops.pad.default, (PIXELS, [1, -2, 0, 3], "constant", 2.0)),
    "grid_sample": (ops.grid_sample.default, (PIXELS, torch.rand(2, 4, 3, 2) - 0.5, "bilinear", "zeros", False)),
    "affine_grid": (ops.affine_grid.default, (torch.rand(2, 2, 3), [2, 3, 5, 4], False)),
    "affine_sample": (
        ops.affine_sample.default,
        (PIXELS, torch.rand(2, 2, 3) + 0.1, [2, 3, 7, 5], "bilinear", "border", False),
    ),
}


@pytest.mark.parametrize("name", WHOLE_CALLS)
@pytest.mark.parametrize("needs_gradient", [False, True])
def test_opcheck_of_whole_calls(name: str, needs_gradient: bool) -> None:
    op, args = WHOLE_CALLS[name]
    given = [one.clone().requires_grad_(needs_gradient) if isinstance(one, Tensor) else one for one in args]
    torch.library.opcheck(op, tuple(given))
