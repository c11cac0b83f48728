"""Kernels compiled by NVRTC for architectures that this machine need not have."""

from __future__ import annotations

import dataclasses
import re
import runpy
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from polyphase import arguments
from polyphase.cuda import attention, build, driver, emit, items, launch, warps, ways
from polyphase.cuda.gradients import WarpGradients
from polyphase.cuda.ways import Way
from polyphase.errors import BuildFailedError, NvrtcMissingError
from polyphase.kernels import store
from polyphase.kernels.plans import MapsPlan, WarpPlan
from polyphase.records.records import GradientRecord
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.formulas import displacement
from polyphase.sampling.programs import Axes, maps_program, warp_program
from polyphase.sampling.steps import Pad
from polyphase.sampling.warps import Warp
from tests.cuda import host
from tests.cuda.test_kernels_on_host import AA, CUBIC, CUBIC_AA, image, resized

try:
    driver.nvrtc_version()
except NvrtcMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

NEAREST: dict[str, Any] = {"mode": "nearest", "antialias": False}
LINEAR: dict[str, Any] = {"mode": "bilinear", "antialias": False}
TRILINEAR: dict[str, Any] = {"mode": "trilinear", "antialias": False}
ALL_LARGE, ALL_SMALL = 0, 1 << 20  # FEW_OUTPUTS of ways.py


class Case(NamedTuple):
    """A resize, or a flip where there is no size. bordered: with a constant border around."""

    header: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    size: tuple[int, ...] = ()
    mode: dict[str, Any] = AA
    few: int = ALL_LARGE
    last: bool = False
    bordered: bool = False
    adjoint_of: tuple[int, ...] = ()

    def way(self, architecture: str, monkeypatch: pytest.MonkeyPatch) -> tuple[MapsPlan | WarpPlan, Way]:
        monkeypatch.setattr(ways, "FEW_OUTPUTS", self.few)
        monkeypatch.setattr(ways, "FEW_TO_WALK", 1 << 24 if self.header == "byte_stage" else 0)
        monkeypatch.setattr(ways, "MANY_THREADS", 0 if self.few == ALL_LARGE else 1 << 15)
        x = image(self.dtype, *self.shape, last=self.last)
        maps = arguments.flip_maps(len(self.shape), (-1,))
        if self.size:
            axes = resized(x, self.size, **self.mode, adjoint_of=self.adjoint_of).sampler
            assert isinstance(axes, Axes)
            maps = axes.maps
        if self.bordered:
            maps = tuple(AxisMap((*one.steps, Pad(1, 2, "constant", 1))) for one in maps)
        program = maps_program(self.dtype, maps, self.adjoint_of, border=1.0)
        call = launch.prepared(host.record_for(program, [x]), True, architecture)
        assert call.way.header == self.header
        return call.plan, call.way


#: Every kernel, with the types of its sums and each of what its rows can be like. Of the first, CI tries each.
CASES = {
    "direct": Case("direct", torch.float32, (1, 3, 40, 60), (20, 30), AA, ALL_SMALL),
    "ring": Case("ring", torch.float16, (1, 3, 40, 60), (20, 30)),
    "shrink": Case("shrink", torch.float32, (1, 3, 40, 60), (4, 5), CUBIC_AA),
    "byte ring": Case("byte_ring", torch.uint8, (1, 3, 40, 60), (10, 15), CUBIC_AA),
    "byte walk": Case("byte_walk", torch.uint8, (1, 3, 40, 60), (20, 30)),
    "byte stage": Case("byte_stage", torch.uint8, (1, 3, 40, 60), (20, 30)),
    "moved": Case("moved", torch.uint8, (1, 3, 40, 60), (50, 64), NEAREST),
    "general": Case("general", torch.bfloat16, (1, 3, 9, 10, 11), (4, 5, 6), TRILINEAR),
    "ring, rows ahead": Case("ring", torch.bfloat16, (1, 3, 16, 16), (32, 32), LINEAR),
    "ring, pixels": Case("ring", torch.float32, (1, 16, 9, 11), (17, 20), CUBIC, last=True),
    "ring, borders": Case("ring", torch.float32, (1, 3, 40, 60), (20, 30), bordered=True),
    "byte walk, pixels": Case("byte_walk", torch.uint8, (1, 3, 40, 60), (20, 30), last=True),
    "byte stage, pixels": Case("byte_stage", torch.uint8, (1, 3, 40, 60), (20, 30), last=True),
    "moved, odd rows": Case("moved", torch.float32, (1, 3, 40, 61)),
    "moved, borders": Case("moved", torch.int16, (1, 3, 40, 61), bordered=True),
    "direct, doubles": Case("direct", torch.float64, (1, 3, 40, 60), (20, 30), AA, ALL_SMALL, last=True),
    "direct, borders": Case("direct", torch.float32, (1, 3, 40, 60), (20, 30), AA, ALL_SMALL, bordered=True),
    "direct, bytes": Case("direct", torch.uint8, (1, 3, 40, 60), (20, 30), AA, ALL_SMALL, last=True),
    "direct, halves": Case("direct", torch.bfloat16, (1, 3, 40, 60), (20, 30), AA, ALL_SMALL),
    "ring, doubles": Case("ring", torch.float64, (1, 3, 40, 60), (20, 30)),
    "ring, wide pixels of halves": Case("ring", torch.bfloat16, (1, 16, 16, 16), (32, 32), LINEAR, last=True),
    "ring, gradients": Case("ring", torch.float32, (1, 2, 32, 32), (32, 32), CUBIC, adjoint_of=(16, 16)),
    "ring, gradients of pixels": Case(
        "ring", torch.float32, (1, 8, 32, 32), (32, 32), CUBIC, last=True, adjoint_of=(16, 16)
    ),
    "shrink, doubles": Case("shrink", torch.float64, (1, 3, 40, 60), (4, 5), CUBIC_AA),
    "shrink, halves, not aligned": Case("shrink", torch.float16, (1, 3, 40, 61), (4, 5), CUBIC_AA),
    "shrink, borders": Case("shrink", torch.float32, (1, 3, 40, 60), (4, 5), CUBIC_AA, bordered=True),
    "byte ring, pixels": Case("byte_ring", torch.uint8, (1, 4, 40, 60), (10, 15), CUBIC_AA, last=True),
    "byte ring, borders": Case("byte_ring", torch.uint8, (1, 3, 40, 60), (10, 15), CUBIC_AA, bordered=True),
    "byte walk, borders, not aligned": Case("byte_walk", torch.uint8, (1, 1, 40, 61), (20, 30), bordered=True),
    "moved, bytes turned round": Case("moved", torch.uint8, (1, 3, 40, 64)),
    "moved, bytes with borders": Case("moved", torch.uint8, (1, 3, 40, 61), bordered=True),
    "moved, small": Case("moved", torch.float32, (1, 3, 40, 64), few=ALL_SMALL),
    "moved, eight bytes": Case("moved", torch.int64, (1, 3, 40, 60), (50, 64), NEAREST),
    "moved, sixteen bytes": Case("moved", torch.complex128, (1, 3, 40, 60)),
    "direct, int32": Case("direct", torch.int32, (1, 3, 40, 60), (20, 30), AA, ALL_SMALL),
    "ring, uint16": Case("ring", torch.uint16, (1, 3, 40, 60), (20, 30)),
    "shrink, int16": Case("shrink", torch.int16, (1, 3, 40, 60), (4, 5), CUBIC_AA),
    "general, bytes": Case("general", torch.uint8, (1, 3, 9, 10, 11), (4, 5, 6), TRILINEAR),
    "general, doubles with borders": Case(
        "general", torch.float64, (1, 3, 9, 10, 11), (4, 5, 6), TRILINEAR, bordered=True
    ),
}
IN_CI = 14
SWEEP = Path(__file__).parents[2] / "benchmarks" / "sweep_cuda.py"
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")
#: In CI each of the first cases for one architecture, each of which has some; all for all with `make test-full`.
COMBINATIONS = [
    pytest.param(name, architecture, marks=() if i < IN_CI and i % len(ARCHITECTURES) == a else pytest.mark.full)
    for i, name in enumerate(CASES)
    for a, architecture in enumerate(ARCHITECTURES)
]


@pytest.mark.parametrize(("case", "architecture"), COMBINATIONS)
def test_kernels_compile(case: str, architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, way = CASES[case].way(architecture, monkeypatch)
    options = (f"--gpu-architecture={architecture}", *build.OPTIONS)
    machine_code = driver.compile_source(emit.kernel_source(plan, way), build.headers(), options)
    assert machine_code[:4] == b"\x7fELF"


WARPS = [
    ("bicubic", "affine"),
    ("bilinear", "grid"),
    ("nearest", "grid"),
    ("bilinear", "formula"),
    ("bilinear", "affine"),
]


def warp_sources(mode: str, source: str, architecture: str) -> list[str]:
    """With a fill too, and their gradients."""
    x, out = image(torch.float32, 2, 3, 40, 60), (20, 30)
    given = {
        "grid": [torch.zeros(2, *out, 2)],
        "affine": [torch.zeros(2, 2, 3)],
        "formula": [torch.zeros(2, 0), *[torch.zeros(2, 1, *out)] * 2],
    }[source]
    formula = displacement((40, 60), False) if source == "formula" else None
    sampler = Warp(source, mode, size=() if source == "grid" else out, formula=formula)
    record = host.record_for(warp_program(x.dtype, sampler), [x, *given])
    assert record.coordinates is not None
    of_gradients = GradientRecord(sampler, record.out, record.image, record.coordinates, (True, True), record.operands)
    kernels = [launch.prepared(record, True, architecture)]
    rule = {"bilinear": "blend", "nearest": "constant", "bicubic": "edge"}[mode]
    filled = dataclasses.replace(sampler, fill=(1.0, 2.0, 3.0), fill_rule=rule)
    kernels += [launch.prepared(host.record_for(warp_program(x.dtype, filled), [x, *given]), True, architecture)]
    if mode != "nearest":
        kernels += WarpGradients(of_gradients, architecture).kernels(deterministic=mode == "bilinear")
    return [emit.kernel_source(call.plan, call.way) for call in kernels]


@pytest.mark.parametrize(
    ("mode", "source", "architecture"),
    [
        pytest.param(mode, source, architecture, marks=() if a == i else pytest.mark.full)
        for i, (mode, source) in enumerate(WARPS)
        for a, architecture in enumerate(ARCHITECTURES)
    ],
)
def test_warps_compile(mode: str, source: str, architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of large images: by a matrix, a warp's pixels lie aslant."""
    monkeypatch.setattr(warps, "FEW_PIXELS", 0)
    for source_code in warp_sources(mode, source, architecture):
        options = (f"--gpu-architecture={architecture}", *build.OPTIONS)
        assert driver.compile_source(source_code, build.headers(), options)[:4] == b"\x7fELF"


def batch_sources() -> list[str]:
    """Of bytes as planes and as pixels, of tiles and of windows, and the tables they read."""
    sources = [emit.tap_maker_source()]
    planes, pixels = image(torch.uint8, 3, 60, 70), image(torch.uint8, 60, 70, 3).permute(2, 0, 1)
    for x, mode in ((planes, AA), (pixels, AA), (planes, CUBIC_AA)):
        item = items.Item(host.record_for(resized(x[None], (40, 50), **mode), [x]))
        known = item.of(True)
        chosen = items.chosen_for(known.kind, frozenset([known.need]))
        sources.append(emit.kernel_source(known.kind.plan, chosen.way))
    for template, source in zip(("ByteTiles<", "ByteTiles<", "ByteStages<"), sources[1:], strict=True):
        assert template in source
    return sources


@pytest.mark.parametrize(
    "architecture", [pytest.param(one, marks=() if one == "sm_90" else pytest.mark.full) for one in ARCHITECTURES]
)
def test_batches_compile(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYPHASE_CUDA_ARCH", architecture)
    for source in batch_sources():
        options = (f"--gpu-architecture={architecture}", *build.OPTIONS)
        assert driver.compile_source(source, build.headers(), options)[:4] == b"\x7fELF"


def attention_sources() -> list[str]:
    """Of the usual dtypes, by as many channels as a thread can read; and the others."""
    kernels = [
        attention.Kernel(dtype, adding, together)
        for dtype, together in ((torch.float32, 4), (torch.float16, 8), (torch.float64, 1), (torch.bfloat16, 2))
        for adding in (None, attention.FLOATS, attention.INTEGERS, attention.NOTHING)
    ]
    return [attention.source(one) for one in kernels]


@pytest.mark.parametrize(
    "architecture", [pytest.param(one, marks=() if one == "sm_75" else pytest.mark.full) for one in ARCHITECTURES]
)
def test_attention_compiles(architecture: str) -> None:
    for source in attention_sources():
        options = (f"--gpu-architecture={architecture}", *build.OPTIONS)
        assert driver.compile_source(source, build.headers(), options)[:4] == b"\x7fELF"


#: Of PTX: what touches memory that other kernels may.
ACCESS = re.compile(r"^\s*(@\S+ )?(ld|st|red|atom|cp)\.(?!param|shared|const)", re.MULTILINE)


@pytest.mark.parametrize(
    "case",
    [
        *[pytest.param(one, marks=() if one == "direct" else pytest.mark.full) for one in CASES],
        *[pytest.param(one, marks=() if one == WARPS[-1] else pytest.mark.full, id=" ".join(one)) for one in WARPS],
        pytest.param("batches", marks=pytest.mark.full),
        "attention",
    ],
)
def test_kernels_wait_before_they_touch_memory(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """For those launched before them, which need not have ended: `launcher.cpp` says so to devices that can."""
    monkeypatch.setenv("POLYPHASE_CUDA_ARCH", "sm_90")
    if case == "batches":
        sources = batch_sources()
    elif case == "attention":
        sources = attention_sources()[:3]
    elif case in WARPS:
        sources = warp_sources(case[0], case[1], "sm_90")
    else:
        sources = [emit.kernel_source(*CASES[case].way("sm_90", monkeypatch))]
    for source in sources:
        options = ("--gpu-architecture=compute_90", *build.OPTIONS)
        text = driver.compile_source(source, build.headers(), options).decode()
        kernel = text[text.index(f".entry {emit.KERNEL_SYMBOL}") :]
        touches = ACCESS.search(kernel)
        assert touches
        waits, lets_begin = (kernel.find(f"griddepcontrol.{one};") for one in ("wait", "launch_dependents"))
        assert 0 <= waits < touches.start()
        assert lets_begin < 0 or waits < lets_begin < touches.start()


def test_older_devices_know_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `driver.waits` says no, by the architecture that a kernel was compiled for."""
    plan, way = CASES["moved"].way("sm_80", monkeypatch)
    text = driver.compile_source(
        emit.kernel_source(plan, way), build.headers(), ("--gpu-architecture=compute_80", *build.OPTIONS)
    )
    assert b"griddepcontrol" not in text


def test_there_is_a_case_for_every_kernel() -> None:
    headers = {one.header for one in CASES.values()}
    templates = ways.KERNELS.keys() - {"ByteStages", ways.TILES}  # which batches have
    assert headers == {re.sub(r"(?<!^)(?=[A-Z])", "_", template).lower() for template in templates}


def test_an_architecture_of_the_future_gets_ptx() -> None:
    newest = max(driver.known_architectures())
    assert build._target("sm_75") == "sm_75"
    assert build._target(f"sm_{newest + 9}") == f"compute_{newest}"
    ptx = driver.compile_source(
        'extern "C" __global__ void f() {}', {}, (f"--gpu-architecture=compute_{newest}", *build.OPTIONS)
    )
    assert b".visible .entry f" in ptx


def test_what_nvrtc_says_is_passed_on() -> None:
    with pytest.raises(BuildFailedError, match="nonsense"):
        driver.compile_source("nonsense;", {}, ("--gpu-architecture=sm_75",))


def test_what_a_built_kernel_is_for_says_its_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `polyphase cache list` has it."""
    monkeypatch.setenv("POLYPHASE_CACHE_DIR", str(tmp_path))
    image_of = build.image('extern "C" __global__ void f() {}', "sm_75", "moves values, Moved")
    (entry,) = store.entries()
    assert store.purpose(entry.path) == "moves values, Moved, sm_75"
    assert image_of == entry.path.read_bytes()
    assert driver.nvrtc_found().rpartition("/")[2].startswith("libnvrtc.so")


@pytest.mark.parametrize("case", list(CASES)[:8])
def test_the_sweep_knows_the_numbers_of_every_kernel(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names_of = runpy.run_path(str(SWEEP))["names_of"]
    _, way = CASES[case].way("sm_90", monkeypatch)
    names = names_of(way)
    assert len(names) == len(way.constants)
    assert way.constants[names.index("kThreads")] == way.threads
