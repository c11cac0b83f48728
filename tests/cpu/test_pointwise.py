"""Generated C++ against torch to the bit: every operation on every dtype, trees of them, and conversions of rows."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import multiprocessing
import platform
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple
from unittest.mock import patch

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from polyphase.cpu import build, isa
from polyphase.errors import InvalidProgramError, PolyphaseError
from polyphase.kernels.expressions import CPP_TYPES, Fragment, cpp_expression
from polyphase.sampling.pointwise import (
    BINARY,
    UNARY,
    VALUE,
    Binary,
    Cast,
    Channel,
    Expression,
    Number,
    Operand,
    Scalar,
    Unary,
    clamp,
    evaluate,
    normalise,
    operands_of,
)
from tests.sampling.strategies import computable, expressions, quick

CHANNELS, WIDTH = 3, 512  # whole vectors of every dtype: torch's rows have no scalar rest, see `minimum` in scalar.h
DRAWN = 50
ON_X86 = platform.machine() == "x86_64"
SANITISED = ("-O1", "-fsanitize=undefined,float-cast-overflow", "-fsanitize-undefined-trap-on-error")
LIBRARIES = (*isa.available(), "sanitised")

EXPORT = 'extern "C" __attribute__((visibility("default")))'
ROWS = f"""
#include "polyphase/core/convert.h"

namespace polyphase {{

// Rows of n, until `total` elements are converted.
template <class From, class To>
void convert_rows(const From* from, To* to, int64_t total, int64_t n) {{
  for (int64_t i = 0; i < total; i += n) convert(from + i, to + i, n < total - i ? n : total - i);
}}

template <class Storage>
void round_each(const float* from, float* to, int64_t n) {{
  for (int64_t i = 0; i < n; ++i) to[i] = rounded<Storage>(from[i]);
}}

{EXPORT} void widen_half(const half* from, float* to, int64_t total, int64_t n) {{
  convert_rows(from, to, total, n);
}}
{EXPORT} void widen_bfloat16(const bfloat16* from, float* to, int64_t total, int64_t n) {{
  convert_rows(from, to, total, n);
}}
{EXPORT} void narrow_half(const float* from, half* to, int64_t total, int64_t n) {{
  convert_rows(from, to, total, n);
}}
{EXPORT} void narrow_bfloat16(const float* from, bfloat16* to, int64_t total, int64_t n) {{
  convert_rows(from, to, total, n);
}}
{EXPORT} void round_half(const float* from, float* to, int64_t n) {{ round_each<half>(from, to, n); }}
{EXPORT} void round_bfloat16(const float* from, float* to, int64_t n) {{ round_each<bfloat16>(from, to, n); }}
"""


class Case(NamedTuple):
    expression: Expression
    value: torch.dtype


# ---- the expressions


@cache
def drawn_cases() -> list[Case]:
    """The same in every run, as building them takes seconds."""
    found: dict[Case, None] = {}

    @settings(quick, max_examples=4 * DRAWN, derandomize=True, database=None)
    @given(st.builds(Case, expressions() | computable(), st.sampled_from(list(CPP_TYPES))))
    def collect(case: Case) -> None:
        if case.expression != VALUE:
            found[case] = None

    collect()
    return list(itertools.islice(filter(torch_computes, found), DRAWN))


def single_operations() -> Iterator[Case]:
    for dtype in CPP_TYPES:
        same = Operand(0, dtype)
        yield from (Case(Cast(VALUE, to), dtype) for to in CPP_TYPES)
        yield from (Case(Unary(op, VALUE), dtype) for op in UNARY)
        yield from (Case(Binary(op, VALUE, same), dtype) for op in BINARY)
        for op, number in itertools.product(BINARY, numbers_for(dtype)):
            yield Case(Binary(op, VALUE, Number(number)), dtype)
            yield Case(Binary(op, Number(number), VALUE), dtype)


def numbers_for(dtype: torch.dtype) -> list[Scalar]:
    """A fraction no binary dtype has; -300, which wraps as a small integer."""
    return [0.1, -300] if dtype != torch.bool else [0.1, -300, True]


COMMON = [
    Case(normalise(Binary("div", VALUE, Number(255))), torch.uint8),
    Case(normalise(VALUE), torch.float16),
    Case(Cast(clamp(Unary("round", VALUE), 0, 255), torch.uint8), torch.float32),
    Case(Cast(clamp(Unary("round", Binary("mul", VALUE, Number(255.0))), 0, 255), torch.uint8), torch.bfloat16),
    Case(Binary("add", VALUE, Number(-(2**63))), torch.int64),
    Case(Binary("sub", Channel(0, torch.bfloat16), VALUE), torch.float16),
]


@cache
def cases(library: str) -> list[Case]:
    """Vectorised code takes the compiler long, which is why every operation is only in the library without."""
    single = list(filter(torch_computes, single_operations()))
    return [*COMMON, *drawn_cases(), *(single if library == "sanitised" else single[::11])]


def torch_computes(case: Case) -> bool:
    """An image, that is. torch has no abs of a bool, a tree may read one operand as two dtypes or only vectors."""
    try:
        is_image = cpp_expression(*case).dtype in CPP_TYPES and eager(case).shape == image(case.value).shape
        return is_image and (ON_X86 or not depends_on_the_cpu(case.expression, case.value))
    except (PolyphaseError, RuntimeError, TypeError, NotImplementedError):
        return False


def depends_on_the_cpu(expression: Expression, value: torch.dtype) -> bool:
    """What torch gives is what its CPU does, and ours what x86 does: for floats out of an integer's range, and for
    float64 to float16, which goes by way of float32 there."""
    match expression:
        case Cast(of, dtype) if dtype != torch.bool and cpp_expression(of, value).dtype.is_floating_point:
            wide = dtype == torch.float16 and cpp_expression(of, value).dtype == torch.float64
            return wide or not dtype.is_floating_point or depends_on_the_cpu(of, value)
        case Cast(of, _) | Unary(_, of):
            return depends_on_the_cpu(of, value)
        case Binary(_, left, right):
            return depends_on_the_cpu(left, value) or depends_on_the_cpu(right, value)
    return False


# ---- what they are evaluated on


@cache
def notable(dtype: torch.dtype) -> Tensor:
    """32 values at the edges of formats and of casts."""
    if dtype == torch.bool:
        return torch.tensor([False, True]).repeat(16)
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        near = [*range(-6, 7), 127, 128, 255, 256, 2**24 + 1, 2**31 - 1, 2**53 + 1, 2**62 + 2**38 + 1, 100, 99]
        edges = [limits.min, limits.min + 1, limits.max, limits.max - 1, 2**63 - 1, -(2**63), 200, -200]
        return torch.tensor([*edges, *near, 77]).to(dtype)
    info = torch.finfo(dtype)
    own = [info.max, info.tiny, -info.smallest_normal * 1.5, info.smallest_normal * info.eps, info.eps, 1 + info.eps]
    special = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, 1 / 3]
    ties = [0.5, -0.5, 1.5, 2.5, -2.5, 254.5, 65519.99, 65520, 2.0**-25, 1 + 2.0**-11 + 2.0**-30]
    bounds = [-0.9, 255.9, -129.0, 2.0**31, -(2.0**31), 2.0**31 + 5, 2.0**63, -3e9]
    return torch.tensor([*own, *special, *ties, *bounds], dtype=torch.float64).to(dtype)


def ordinary(dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = CHANNELS * WIDTH - 32 * 32
    if not dtype.is_floating_point:
        return torch.randint(-(2**63), 2**63 - 1, [size], generator=generator).to(dtype)
    magnitude = torch.rand(size, generator=generator, dtype=torch.float64) * 40 - 20
    return (torch.randn(size, generator=generator, dtype=torch.float64) * magnitude.exp2()).to(dtype)


@cache
def image(dtype: torch.dtype) -> Tensor:
    return torch.cat([notable(dtype).repeat_interleave(32), ordinary(dtype, 0)]).view(1, CHANNELS, WIDTH)


@cache
def operand(dtype: torch.dtype) -> Tensor:
    """Each notable value of it meets each of the image."""
    return torch.cat([notable(dtype).repeat(32), ordinary(dtype, 1)]).view(1, CHANNELS, WIDTH)


@cache
def vector(dtype: torch.dtype) -> Tensor:
    return torch.tensor([0.229, -3.0, 100.7], dtype=torch.float64).to(dtype)


def eager(case: Case) -> Tensor:
    leaves = operands_of(case.expression)
    vectors = {leaf.slot: vector(leaf.dtype) for leaf in leaves if isinstance(leaf, Channel)}
    tensors = {leaf.slot: operand(leaf.dtype) for leaf in leaves if isinstance(leaf, Operand)}
    with patch.dict(UNARY, sqrt=nearest_root):
        return evaluate(case.expression, image(case.value), vectors, tensors)


def nearest_root(of: Tensor) -> Tensor:
    """What IEEE 754 has a square root be, and so have kernels. Torch's is that of a library which on some processors
    (AVX-512 without VBMI) is off by the last bit for one number of 200."""
    wide = of if of.dtype in (torch.float32, torch.float64) else of.to(torch.float32)
    with numpy.errstate(invalid="ignore"):
        root = torch.from_numpy(numpy.sqrt(wide.numpy()))
    return root.to(of.dtype) if of.is_floating_point() else root


# ---- building and calling


def function_source(number: int, case: Case) -> str:
    fragment = cpp_expression(*case)
    rows, row_values = [declared_row("value", 0, case.value)], ["const auto value = values[i];"]
    # Plain division; the fast one is held against it in test_division.py.
    rows += ["[[maybe_unused]] constexpr bool kFast = false;", "[[maybe_unused]] int32_t unsafe = 0;"]
    for place, leaf in enumerate(distinct_operands(case), start=1):
        if isinstance(leaf, Channel):
            pointer = f"static_cast<const {CPP_TYPES[leaf.dtype]}*>(inputs[{place}])"
            rows.append(f"const auto channel{leaf.slot} = {pointer}[c];")
            rows.append(f"[[maybe_unused]] const float reciprocal{leaf.slot} = 0;")
        else:
            rows.append(declared_row(f"operand{leaf.slot}", place, leaf.dtype))
            row_values.append(f"const auto operand{leaf.slot} = operand{leaf.slot}s[i];")
    return f"""
{EXPORT} void case{number}(const void* const* inputs, void* output, int64_t channels, int64_t n) {{
  for (int64_t c = 0; c < channels; ++c) {{
    {" ".join(rows)}
    {CPP_TYPES[fragment.dtype]}* __restrict out = static_cast<{CPP_TYPES[fragment.dtype]}*>(output) + c * n;
    for (int64_t i = 0; i < n; ++i) {{
      {" ".join(row_values)}
      out[i] = {fragment.text};
    }}
  }}
}}"""


def declared_row(name: str, place: int, dtype: torch.dtype) -> str:
    return f"const auto* {name}s = static_cast<const {CPP_TYPES[dtype]}*>(inputs[{place}]) + c * n;"


def distinct_operands(case: Case) -> list[Channel | Operand]:
    return list(dict.fromkeys(operands_of(case.expression)))


@pytest.fixture(scope="module")
def libraries() -> dict[str, ctypes.CDLL]:
    paths = build.libraries(map(request, LIBRARIES))
    return {name: ctypes.CDLL(str(path)) for name, path in zip(LIBRARIES, paths, strict=True)}


def request(name: str) -> build.Request:
    functions = "\n".join(function_source(number, case) for number, case in enumerate(cases(name)))
    source = f"{ROWS}\n{functions}\n}}  // namespace polyphase\n"
    if name == "sanitised":
        return build.Request(source, "portable", "test_pointwise", SANITISED)
    return build.Request(source, name, "test_pointwise")


def call(function: Callable[..., object], *arguments: Tensor | int) -> None:
    plain = (arg.data_ptr() if isinstance(arg, Tensor) else arg for arg in arguments)
    function(*(ctypes.c_int64(arg) for arg in plain))


def computed(library: ctypes.CDLL, number: int, case: Case) -> Tensor:
    leaves = distinct_operands(case)
    inputs = [
        image(case.value),
        *(vector(leaf.dtype) if isinstance(leaf, Channel) else operand(leaf.dtype) for leaf in leaves),
    ]
    addresses = torch.tensor([tensor.data_ptr() for tensor in inputs])
    out = torch.empty_like(image(cpp_expression(*case).dtype))
    call(library[f"case{number}"], addresses, out, CHANNELS, WIDTH)
    return out


def unlike(ours: Tensor, theirs: Tensor) -> Tensor:
    """Where they differ in any bit, but for the sign and the payload of NaN, which torch leaves open.

    And but for the sign of 0 where the greatest of -0 and 0 is another than on x86.
    """
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[ours.dtype.itemsize]
    alike = ours.isnan() & theirs.isnan()
    if not ON_X86:
        alike |= (ours == 0) & (theirs == 0)
    return (ours.view(integers) != theirs.view(integers)) & ~alike


def survives(function: Callable[[], object]) -> bool:
    """In a process of its own, as a trap or a fault ends it."""
    child = multiprocessing.get_context("fork").Process(target=function)
    child.start()
    child.join()
    return child.exitcode == 0


# ---- expressions


@pytest.mark.parametrize("name", LIBRARIES)
def test_equals_torch_bit_for_bit(name: str, libraries: dict[str, ctypes.CDLL]) -> None:
    """Also where torch calls a cast undefined: see `cast` in scalar.h."""
    if name == "sanitised" and not survives(lambda: compute_all(libraries[name], cases(name))):
        pytest.fail("undefined behaviour")
    for case, ours in zip(cases(name), compute_all(libraries[name], cases(name)), strict=True):
        theirs = eager(case)
        if (wrong := unlike(ours, theirs)).any():
            x, text = image(case.value)[wrong], cpp_expression(*case).text
            pytest.fail(f"{case}\n{text}\nfrom {x[:8]}\nours {ours[wrong][:8]}\ntorch {theirs[wrong][:8]}")


def compute_all(library: ctypes.CDLL, cases: list[Case]) -> list[Tensor]:
    return [computed(library, number, case) for number, case in enumerate(cases)]


def test_cases_are_many() -> None:
    assert len(drawn_cases()) == DRAWN
    assert len(cases("sanitised")) > 400 + DRAWN


TEXTS = [
    (
        normalise(Binary("div", VALUE, Number(255))),
        "quotient<kFast>((quotient_of_byte(value, 255.0f, reciprocal_of(255.0f)) - channel0), channel1, "
        "reciprocal1, unsafe)",
    ),
    (Cast(clamp(VALUE, 0, 300), torch.int8), "cast<int8_t>(minimum(maximum(value, uint8_t(0)), uint8_t(44)))"),
    (Unary("round", Cast(VALUE, torch.float16)), "round_half_even(rounded<half>(cast<float>(value)))"),
    (
        Binary("mul", Operand(2, torch.float16), Number(float("-inf"))),
        "rounded<half>(float(operand2) * (-__builtin_inff()))",
    ),
]


@pytest.mark.parametrize(("expression", "text"), TEXTS)
def test_text(expression: Expression, text: str) -> None:
    assert cpp_expression(expression, torch.uint8).text == text


def test_fragment_has_the_dtype() -> None:
    assert cpp_expression(Cast(VALUE, torch.bfloat16), torch.uint8) == Fragment(
        "rounded<bfloat16>(cast<float>(value))", torch.bfloat16
    )


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (Cast(VALUE, torch.complex64), "is torch.complex64, kernels compute torch.uint8, .*: cast it beforehand"),
        (Number(1.0), "computes no image"),
    ],
)
def test_what_kernels_do_not_compute(expression: Expression, message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        cpp_expression(expression, torch.float32)


# ---- rows

EVERY_16_BITS = torch.arange(-(2**15), 2**15, dtype=torch.int16)
SIXTEEN_BITS = {"half": torch.float16, "bfloat16": torch.bfloat16}


def rows_of(values: Tensor) -> Iterator[tuple[int, Tensor]]:
    """All values as one row and as rows shorter than a vector; others of them as rows of each length."""
    yield from ((n, values) for n in (len(values), 7))
    yield from ((n, values[n::67].contiguous()) for n in range(1, 71))


@cache
def floats_to_narrow(kind: str) -> Tensor:
    """Every value of the 16 bit type, the ties above and what lies next to them; floats of any bits."""
    values = EVERY_16_BITS.view(SIXTEEN_BITS[kind]).float().view(torch.int32)
    tie = 1 << {"half": 12, "bfloat16": 15}[kind]
    subnormal_ties = (torch.arange(2**12) * 2.0**-26).view(torch.int32)
    anything = torch.randint(-(2**31), 2**31, [2**16], generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    around = [values, values + tie - 1, values + tie, values + tie + 1]
    return torch.cat([*around, subnormal_ties, subnormal_ties + 1, subnormal_ties - 1, anything]).view(torch.float32)


@pytest.mark.parametrize("kind", SIXTEEN_BITS)
@pytest.mark.parametrize("name", LIBRARIES)
def test_rows_are_widened(name: str, kind: str, libraries: dict[str, ctypes.CDLL]) -> None:
    for n, values in rows_of(EVERY_16_BITS.view(SIXTEEN_BITS[kind])):
        ours = torch.full([len(values)], 7.0)
        call(libraries[name][f"widen_{kind}"], values, ours, len(values), n)
        assert not unlike(ours, values.float()).any(), n


@pytest.mark.parametrize("kind", SIXTEEN_BITS)
@pytest.mark.parametrize("name", LIBRARIES)
def test_rows_are_narrowed(name: str, kind: str, libraries: dict[str, ctypes.CDLL]) -> None:
    for n, values in rows_of(floats_to_narrow(kind)):
        ours = torch.full([len(values)], 7.0, dtype=SIXTEEN_BITS[kind])
        call(libraries[name][f"narrow_{kind}"], values, ours, len(values), n)
        assert not unlike(ours, values.to(SIXTEEN_BITS[kind])).any(), n


@pytest.mark.parametrize("kind", SIXTEEN_BITS)
@pytest.mark.parametrize("name", LIBRARIES)
def test_rounding_in_float(name: str, kind: str, libraries: dict[str, ctypes.CDLL]) -> None:
    values = floats_to_narrow(kind)
    ours = torch.empty_like(values)
    call(libraries[name][f"round_{kind}"], values, ours, len(values))
    assert not unlike(ours, values.to(SIXTEEN_BITS[kind]).float()).any()


def before_a_gap(size: int) -> tuple[mmap.mmap, int]:
    """Memory, and the address in it `size` bytes before a page that can be neither read nor written."""
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    end = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + mmap.PAGESIZE
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, 0) == 0
    return memory, end - size


@pytest.mark.parametrize("function", ["widen_half", "widen_bfloat16", "narrow_half", "narrow_bfloat16"])
@pytest.mark.parametrize("name", isa.available())
def test_rows_end_where_they_end(name: str, function: str, libraries: dict[str, ctypes.CDLL]) -> None:
    sizes = (2, 4) if function.startswith("widen") else (4, 2)

    def convert_up_to_the_gap() -> None:
        for n in range(71):
            memories = [before_a_gap(n * size) for size in sizes]
            call(libraries[name][function], *(address for _, address in memories), n, max(n, 1))

    assert survives(convert_up_to_the_gap)
