"""Kernels compiled by NVRTC for architectures that this machine need not have."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from polyphase.cuda import build, driver, emit, launch, ways
from polyphase.cuda.gradients import WarpGradients
from polyphase.errors import BuildFailedError, NvrtcMissingError
from polyphase.kernels import store
from polyphase.kernels.records import GradientRecord
from polyphase.sampling.programs import warp_program
from polyphase.sampling.warps import Warp
from tests.cuda import host
from tests.cuda.test_kernels_on_host import AA, CUBIC_AA, image, resized

try:
    driver.nvrtc_version()
except NvrtcMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

CASES: dict[str, tuple[torch.dtype, tuple[int, ...], tuple[int, ...], dict[str, Any], int]] = {
    "direct": (torch.float32, (1, 3, 40, 60), (20, 30), AA, 1 << 20),
    "ring": (torch.float16, (1, 3, 40, 60), (20, 30), AA, 0),
    "shrink": (torch.float32, (1, 3, 40, 60), (4, 5), CUBIC_AA, 0),
    "byte ring": (torch.uint8, (1, 3, 40, 60), (10, 15), CUBIC_AA, 0),
    "byte walk": (torch.uint8, (1, 3, 40, 60), (20, 30), AA, 0),
    "moved": (torch.uint8, (1, 3, 40, 60), (50, 64), {"mode": "nearest", "antialias": False}, 0),
    "general": (torch.bfloat16, (1, 3, 9, 10, 11), (4, 5, 6), {"mode": "trilinear", "antialias": False}, 0),
}
SWEEP = Path(__file__).parents[2] / "benchmarks" / "sweep_cuda.py"
ARCHITECTURES = [
    pytest.param("sm_75", id="sm_75"),
    pytest.param("sm_80", marks=pytest.mark.full),
    pytest.param("sm_90", id="sm_90"),
    pytest.param("sm_100", marks=pytest.mark.full),
    pytest.param("sm_120", marks=pytest.mark.full),
]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("case", CASES)
def test_kernels_compile(case: str, architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dtype, shape, size, mode, few = CASES[case]
    monkeypatch.setattr(ways, "FEW_OUTPUTS", few)
    x = image(dtype, *shape)
    call = launch.prepared(host.record_for(resized(x, size, **mode), [x]), True, architecture)
    assert call.way.header == case.replace(" ", "_")
    options = (f"--gpu-architecture={architecture}", *build.OPTIONS)
    machine_code = driver.compile_source(emit.kernel_source(call.plan, call.way), build.headers(), options)
    assert machine_code[:4] == b"\x7fELF"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("mode", "source"), [("bicubic", "affine"), ("bilinear", "grid"), ("nearest", "grid")])
def test_warps_compile(mode: str, source: str, architecture: str) -> None:
    """And their gradients."""
    x, out = image(torch.float32, 2, 3, 40, 60), (20, 30)
    coordinates = torch.zeros(2, 2, 3) if source == "affine" else torch.zeros(2, *out, 2)
    sampler = Warp(source, mode, size=out if source == "affine" else ())
    record = host.record_for(warp_program(x.dtype, sampler), [x, coordinates])
    assert record.coordinates is not None
    of_gradients = GradientRecord(sampler, record.out, record.image, record.coordinates, (True, True))
    kernels = [launch.prepared(record, True, architecture)]
    if mode != "nearest":
        kernels += WarpGradients(of_gradients, architecture).kernels(deterministic=mode == "bilinear")
    for call in kernels:
        options = (f"--gpu-architecture={architecture}", *build.OPTIONS)
        source_code = emit.kernel_source(call.plan, call.way)
        assert driver.compile_source(source_code, build.headers(), options)[:4] == b"\x7fELF"


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


@pytest.mark.parametrize("case", CASES)
def test_the_sweep_knows_the_numbers_of_every_kernel(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names_of = runpy.run_path(str(SWEEP))["names_of"]
    dtype, shape, size, mode, few = CASES[case]
    monkeypatch.setattr(ways, "FEW_OUTPUTS", few)
    x = image(dtype, *shape)
    way = launch.prepared(host.record_for(resized(x, size, **mode), [x]), True, "sm_90").way
    names = names_of(way)
    assert len(names) == len(way.constants)
    assert way.constants[names.index("kThreads")] == way.threads
