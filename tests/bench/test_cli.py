"""The commands, as they are typed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rich.console
import torch

from polyphase import cli
from polyphase.bench import environment, measure, results
from polyphase.bench.measure import Effort
from polyphase.bench.workloads import ALL, SUITES
from polyphase.cpu import isa
from polyphase.cuda import driver
from polyphase.errors import NvrtcMissingError
from polyphase.kernels import store
from polyphase.version import __version__
from tests.bench.conftest import Invoke, said_in_one_line

Saved = Callable[..., Path]


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUICK", "THOROUGH"):
        monkeypatch.setattr(f"polyphase.bench.session.{name}", Effort(passes=1, rounds=1, block_seconds=0.0))


@pytest.mark.usefixtures("briefly")
def test_bench_ends_with_the_table_and_the_files(invoke: Invoke, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = invoke(
        *("bench", "--suite", "flip", "--quick", "--columns", "eager,polyphase", "--tag", "try", "--out", tmp_path),
        *("--report", page),
    )
    assert result.exit_code == 0, result.output
    assert "horizontal flip 1x3x224x224, u8 CF" in result.stdout
    *_, where, report = result.stdout.splitlines()
    assert report == f"report: {page}"
    run = results.load(Path(where.removeprefix("results: ")))
    assert (run.suite, run.tag, run.complete) == ("flip", "try", True)
    assert run.options == {"suite": "flip", "quick": "True", "columns": "eager,polyphase", "tag": "try"}
    assert run.environment.torch_config
    first, second, done = result.stderr.splitlines()[-3:]
    assert first.startswith("0/2 pass 1 of 1, flip: horizontal flip")
    assert (second[:4], done) == ("1/2 ", "2/2 done")
    assert page.read_text().startswith("<!doctype html>")


def test_all_suites_are_in_the_help(invoke: Invoke) -> None:
    words = set(invoke("bench", "--help").stdout.replace(",", " ").split())
    assert words >= {*SUITES, ALL}


@pytest.mark.parametrize("columns", [80, 60])
def test_counts_are_seen_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    screen = rich.console.Console(file=io.StringIO(), force_terminal=True, width=columns, color_system=None)
    monkeypatch.setattr("rich.console.Console", lambda **_: screen)
    with cli._progress(57) as tell:
        for _ in range(43):
            tell("pass 2 of 3, chain: resize 256, crop 224, flip, normalise 1x3x300x480, 8 sizes in turn, u8 CL")
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    last = [line for line in text.splitlines() if "57" in line][-1]
    assert "42/57" in last
    assert "pass 2" in last


@pytest.mark.usefixtures("briefly")
def test_a_busy_machine_is_said(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyphase.bench.environment.load", lambda: 20.0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    page = tmp_path / "report.html"
    words = ("bench", "--suite", "flip", "--quick", "--columns", "eager", "--out", tmp_path, "--report", page)
    result = invoke(*words)
    assert result.stderr.startswith("the machine is busy (a load of 20.0 on 2 cores)")
    assert "The machine was busy (a load of 20.0 on 2 cores)" in page.read_text()
    monkeypatch.setattr("polyphase.bench.environment.load", lambda: 0.9)
    assert "busy" not in invoke(*words).stderr
    assert "was busy" not in page.read_text()


@pytest.mark.usefixtures("briefly")
def test_bench_of_ones_own_case(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke(
        *("bench", "--input", "1,3,48,64", "--size", "22,24", "--mode", "bicubic", "--antialias", "--dtype", "u8"),
        *("--columns", "eager,polyphase", "--out", tmp_path),
    )
    assert result.exit_code == 0, result.output
    assert "bicubic antialiased 1x3x48x64 -> 22x24, u8 CF" in result.stdout
    (path,) = tmp_path.glob("*-own.json")
    assert len(results.load(path).rows) == 2


@pytest.mark.usefixtures("briefly")
def test_ctrl_c_keeps_what_was_measured(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = measure._measure_case
    calls = iter(range(9))

    def interrupted(*given: Any, **named: Any) -> None:
        if next(calls):
            raise KeyboardInterrupt
        right(*given, **named)

    monkeypatch.setattr(measure, "_measure_case", interrupted)
    result = invoke("bench", "--suite", "flip", "--quick", "--columns", "eager", "--out", tmp_path)
    assert result.exit_code == 130
    assert "1/2 pass" in result.stderr
    assert "2/2" not in result.stderr
    assert result.stderr.endswith("interrupted: this is what was measured\n")
    (path,) = tmp_path.glob("*.json")
    run = results.load(path)
    assert not run.complete
    assert run.rows[0].columns[0].timed


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--suite", "antialias"], "unknown suite 'antialias'; choose one of: aa, all, "),
        (["--suite", "flip", "--mode", "bicubic"], "leave options away"),
        (["--dtype", "int9"], "unknown dtype 'int9'; choose one of: "),
        (["--format", "NHWC"], "unknown format 'NHWC'; choose one of: CF, CL"),
        (["--columns", "halide"], "unknown column 'halide'; choose one of: "),
        (["--device", "tpu"], "unknown device 'tpu'; choose one of: cpu, cuda"),
        (["--threads", "0"], "--threads 0; it must be 1 or more"),
        (["--recompile-limit", "0"], "--recompile-limit 0; it must be 1 or more"),
        (["--size", "4,4"], "give its --input too"),
        (["--input", "1,3,48,64"], "give the size to resize to: --size 224,224"),
        (["--input", "1,3,48", "--size", "4,4"], "--input 1,3,48; it must be positive numbers, such as 1,3,480,640"),
        (["--input", "1,3,48,64", "--size", "4,-4"], "--size 4,-4; it must be positive numbers, such as 224,224"),
        (["--input", "1,3,48,64", "--size", "4,4", "--mode", "cubic"], "unknown mode 'cubic'; choose one of: "),
        (["--input", "1,3,48,64", "--size", "4,4", "--mode", "lanczos"], "without --antialias; add it"),
        (["--input", "1,3,48,64", "--size", "4,4", "--mode", "nearest", "--antialias"], "it goes with bilinear"),
        (["--input", "1,3,48,64", "--size", "4,4", "--mode", "nearest", "--align-corners"], "it goes with bilinear"),
    ],
    ids=" ".join,
)
def test_bench_with_bad_input(invoke: Invoke, words: list[str], says: str) -> None:
    assert says in said_in_one_line(invoke("bench", *words))


def test_bench_with_no_place_for_results(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = said_in_one_line(invoke("bench", "--suite", "flip", "--quick", "--out", tmp_path / "file"))
    assert "name another place with --out" in line


def test_bench_without_a_gpu(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "use --device cpu" in said_in_one_line(invoke("bench", "--device", "cuda"))


def test_compare(invoke: Invoke, saved: Saved, tmp_path: Path) -> None:
    before, after = saved(tag="Nightly"), saved(tag="PR", polyphase=2e-4)
    pair = "Polyphase .+ PR;Polyphase .+ Nightly;speed-up PR vs Nightly"
    result = invoke("compare", before, after, "--compare", pair)
    assert result.exit_code == 0
    assert "0.50x !" in result.stdout
    output = tmp_path / "out" / "table.json"
    assert invoke("compare", before, after, "-f", "json", "-o", output).exit_code == 0
    assert json.loads(output.read_text())["kind"] == "polyphase-comparison"
    failing = invoke("compare", before, after, "--compare", pair, "--fail-below", "0.95")
    assert failing.exit_code == 1
    assert "below 0.95: aa: 1->4: bilinear antialiased 1x3x345x456" in failing.stderr
    assert invoke("compare", before, before, "--fail-below", "0.95").exit_code == 0


def test_compare_with_bad_input(invoke: Invoke, saved: Saved, tmp_path: Path) -> None:
    path = saved()
    assert "cannot read nothing.json" in said_in_one_line(invoke("compare", "nothing.json"))
    assert "matches no column" in said_in_one_line(invoke("compare", path, "--compare", "Halide;Eager;x"))
    assert "unknown format 'xml'" in said_in_one_line(invoke("compare", path, "-f", "xml"))
    assert "cannot write" in said_in_one_line(invoke("compare", path, "-o", tmp_path))
    other = json.loads(path.read_text())
    path.write_text(json.dumps({**other, "version": 2}))
    assert "version 2 of the format" in said_in_one_line(invoke("compare", path))


def test_report_with_bad_input(invoke: Invoke, saved: Saved, tmp_path: Path) -> None:
    assert "cannot read nothing.json" in said_in_one_line(invoke("report", "nothing.json"))
    assert "cannot write" in said_in_one_line(invoke("report", saved(), "-o", tmp_path))


def test_env(invoke: Invoke) -> None:
    result = invoke("env")
    assert result.exit_code == 0
    for name in ("CPU kernels", "C++ compiler", "kernel cache", "GPU", "Triton", "torch.compile backend"):
        assert name in result.stdout
    assert f"{torch.__version__} (tested: 2.11 to " in result.stdout


def test_env_with_a_wrong_setting_says_so(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYPHASE_ISA", "sse9")
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = invoke("env")
    assert result.exit_code == 0
    assert "none: unknown instruction set" in result.stdout
    assert "none: no C++ compiler: looked for CXX=no-such-compiler" in result.stdout


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("processor\t: 0\nmodel name\t: Some Xeon\nflags\t: fpu\n" * 2, "Some Xeon"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n" * 2, "Neoverse-N1"),
        (
            "CPU implementer\t: 0x41\nCPU part\t: 0xd03\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n",
            "Cortex-A53 and Cortex-A72",
        ),
        ("CPU implementer\t: 0x99\nCPU part\t: 0x123\n", "ARM implementer 0x99 part 0x123"),
        ("processor\t: 0\n", ""),
    ],
)
def test_the_processors_name(cpuinfo: str, name: str) -> None:
    assert environment._named_cpu(cpuinfo) == name


def test_env_says_what_portable_means(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "features", frozenset)
    monkeypatch.delenv("POLYPHASE_ISA", raising=False)
    for machine, meaning in (("aarch64", "NEON"), ("arm64", "NEON"), ("x86_64", "SSE2"), ("riscv64", "plain C++")):
        monkeypatch.setattr("platform.machine", lambda found=machine: found)
        assert f"portable ({meaning}), of portable" in invoke("env").stdout


def test_env_says_what_the_processor_lacks(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    lacking = ("avx512vbmi", "avx512_vnni")
    monkeypatch.setattr(isa, "features", lambda: frozenset(isa.NEEDED["avx512vbmi"]) - {*lacking})
    monkeypatch.delenv("POLYPHASE_ISA", raising=False)
    assert "avx512, of portable, avx2, avx512; avx512vbmi needs avx512vbmi, avx512_vnni\n" in invoke("env").stdout


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """One, as far as `polyphase env` asks."""
    facts = {"is_available": True, "device_count": 2, "get_device_name": "A GPU", "get_device_capability": (9, 0)}
    for name, fact in facts.items():
        monkeypatch.setattr(f"torch.cuda.{name}", lambda *device, fact=fact: fact)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr(environment, "_said", lambda *words: "580.1" if words[0] == "nvidia-smi" else "")
    monkeypatch.setattr(driver, "nvrtc_version", lambda: (13, 1))
    monkeypatch.setattr(driver, "nvrtc_found", lambda: "/there/libnvrtc.so.13")
    monkeypatch.delenv("POLYPHASE_CUDA_ARCH", raising=False)


@pytest.mark.usefixtures("gpu")
def test_env_with_a_gpu(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    said = invoke("env").stdout
    assert "A GPU and 1 more, compute capability 9.0, driver 580.1, CUDA 13.0\n" in said
    assert "sm_90, built by NVRTC 13.1 (/there/libnvrtc.so.13)\n" in said
    monkeypatch.setenv("POLYPHASE_CUDA_ARCH", "sm_80")
    assert "sm_80 (forced by POLYPHASE_CUDA_ARCH), built by NVRTC" in invoke("env").stdout
    monkeypatch.setenv("POLYPHASE_DEVICES", "cpu")
    assert "switched off by POLYPHASE_DEVICES=cpu\n" in invoke("env").stdout


@pytest.mark.usefixtures("gpu")
def test_env_without_what_builds_cuda_kernels(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> tuple[int, int]:
        raise NvrtcMissingError("no NVRTC, which builds CUDA kernels")

    monkeypatch.setattr(driver, "nvrtc_version", nowhere)
    assert "none: no NVRTC, which builds CUDA kernels\n" in invoke("env").stdout
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert f"none: torch {torch.__version__} sees no GPU\n" in invoke("env").stdout


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"polyphase {__version__}\n"


def test_cache(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYPHASE_CACHE_DIR", str(tmp_path))
    assert invoke("cache", "path").stdout == f"{tmp_path}\n"
    sound, damaged, other = (*(f"kernel-{digit * 32}.so" for digit in "01"), "mine.txt")
    cubin = f"cuda-{'2' * 32}.cubin"

    def make(scratch: Path, names: list[str]) -> list[str]:
        for name in names:
            (scratch / name).write_bytes(b"x" * 2000)
        return names

    store.obtain({sound: "moves values, avx2", cubin: "uint8 -> sums of uint8 -> uint8, ByteRing, sm_90"}, make)
    (tmp_path / damaged).write_bytes(b"x" * 12000)
    (tmp_path / other).write_text("")
    for name in (sound, damaged, cubin):
        os.utime(tmp_path / name, (time.mktime((2026, 1, 2, 3, 4, 0, 0, 0, -1)),) * 2)
    assert sorted(invoke("cache", "list").stdout.splitlines()) == [
        "2026-01-02 03:04       2 kB  cuda-22222222      uint8 -> sums of uint8 -> uint8, ByteRing, sm_90",
        "2026-01-02 03:04       2 kB  kernel-00000000    moves values, avx2",
        "2026-01-02 03:04      12 kB  kernel-11111111    damaged: to be built again",
        "3 libraries, 0.0 MB",
    ]
    assert invoke("cache", "clear").stdout == "removed 3 libraries\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_cache_with_bad_input(invoke: Invoke) -> None:
    result = invoke("cache", "burn")
    assert result.exit_code == 2
    assert "burn" in result.stderr


def in_a_process(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra(missing: str) -> None:
    done = in_a_process(f"import sys; sys.modules[{missing!r}] = None; import polyphase.__main__")
    assert done.returncode == 2
    assert 'pip install "polyphase[cli]"' in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "polyphase", "cache", "path"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
