"""Kernels for machines other than this one: compiled, and where there is an emulator, run."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from polyphase import settings
from polyphase.cpu import build, isa, libraries
from polyphase.cpu.emit import kernel_source, sampler_source
from polyphase.kernels.plans import plan_maps, plan_warp
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.formulas import displacement, homography
from polyphase.sampling.pointwise import VALUE, Binary, Cast, Channel, Operand
from polyphase.sampling.programs import Axes, Program, warp_program
from polyphase.sampling.steps import Flip, Resize
from polyphase.sampling.warps import Warp

ARM_COMPILER = "aarch64-linux-gnu-g++"
ARM_EMULATOR = "qemu-aarch64"
#: Clang for a Mac, with what stands in for its SDK.
MACOS = ("clang++", "-target", "arm64-apple-macos13", "-ffreestanding", "-nostdinc++", "-nostdlibinc",
         "-isystem", str(Path(__file__).parent / "macos"))  # fmt: skip
#: Vectors longer than the registers are handed on within a file only.
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-psabi")

SUMS = Axes((AxisMap((Resize(8, "bicubic"),)),) * 2)
MOVES = Axes((AxisMap(()), AxisMap((Flip(),))))
NORMALISED = Binary("div", Binary("sub", Cast(VALUE, torch.float32), Channel(0)), Channel(1))
PROGRAMS = {
    "float32 sums": Program(torch.float32, SUMS),
    "float64 sums": Program(torch.float64, SUMS),
    "uint8 sums": Program(torch.uint8, SUMS),
    "float16 sums": Program(torch.float16, SUMS),
    "int16 sums": Program(torch.int16, SUMS),
    "int32 sums": Program(torch.int32, SUMS),
    "moved values": Program(torch.uint8, MOVES),
    "arithmetic": Program(torch.uint8, SUMS, epilogue=Binary("add", NORMALISED, Operand(0))),
}
WARPS = [
    Program(torch.float32, Warp("grid", "nearest")),
    Program(torch.float32, Warp("grid", "bilinear")),
    Program(torch.float32, Warp("grid", "bicubic")),
    Program(torch.uint8, Warp("grid", "bilinear"), prologue=Cast(VALUE, torch.float32)),
    Program(torch.bfloat16, Warp("grid", "bilinear")),
    Program(torch.float32, Warp("formula", "bilinear", size=(8, 8), formula=displacement((8, 8), False))),
    Program(torch.float32, Warp("formula", "bicubic", size=(8, 8), formula=homography())),
    Program(torch.uint16, Warp("grid", "bilinear")),
    Program(torch.int32, Warp("grid", "bicubic")),
]


def sources(architecture: str) -> Iterator[tuple[str, str]]:
    """Of kernels and samplers, with a name for each."""
    for name, program in PROGRAMS.items():
        plan = plan_maps(program, architecture)
        yield f"kernel of {name}", kernel_source(plan)
        yield f"sampler of {name}", sampler_source(plan)
    for program in WARPS:
        yield str(program), kernel_source(plan_warp(program, torch.float32, 2, architecture))
    for mode in ("nearest", "bilinear", "bicubic"):
        gradients = plan_warp(warp_program(torch.float32, Warp("grid", mode)), torch.float32, 2, architecture, True)
        yield f"gradients of {mode}", kernel_source(gradients)
    for formula in (homography(), displacement((8, 8), True)):
        warp = warp_program(torch.float32, Warp("formula", size=(8, 8), formula=formula))
        gradients = plan_warp(warp, torch.float32, 2, architecture, gradients=True)
        yield f"gradients of {formula}", kernel_source(gradients)


def compile_all(folder: Path, architecture: str, compiler: tuple[str, ...], options: tuple[str, ...]) -> None:
    done = set()
    for name, text in sources(architecture):
        if text in done:
            continue
        done.add(text)
        source = folder / "kernel.cpp"
        source.write_text(text)
        command = [*compiler, *build.FLAGS, *STRICT, *options, "-I", str(build.INCLUDE), str(source), "-o", "/dev/null"]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, f"{name}, built for {architecture}:\n{result.stderr[:4000]}"


def needs(*programs: str) -> None:
    if missing := [program for program in programs if shutil.which(program) is None]:
        pytest.skip(f"there is no {' and no '.join(missing)}")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="these are instruction sets of x86")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full if name in {*isa.available()} - {"avx2"} else ())
        for name in settings.ISAS
    ],
)
def test_x86(name: str, tmp_path: Path) -> None:
    # What this CPU can run, other tests build. The rest is compiled as a whole: some errors show only then.
    options = ("-fsyntax-only",) if name in isa.available() else ("-O0", "-S")
    compile_all(tmp_path, name, settings.compiler(), (*isa.flags(name), *options))


def test_arm(tmp_path: Path) -> None:
    needs(ARM_COMPILER)
    compile_all(tmp_path, "portable", (ARM_COMPILER,), ("-O0", "-c"))


def test_macos_links_as_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """No instruction set is asked for, and Python's functions are looked up when a library is loaded. Clang's driver
    says what it makes of that, where there is one."""
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(isa, "features", frozenset)
    monkeypatch.setenv("CXX", settings.compiler()[0])
    assert isa.available() == ("portable",)
    _, *flags = build._planned(libraries.launcher_request("portable")).command
    assert not [flag for flag in flags if flag.startswith("-m")]
    needs(MACOS[0])
    driver = subprocess.run([*MACOS[:3], "-###", *flags, "kernel.o", "-o", "kernel.so"], capture_output=True, text=True)
    linker = driver.stderr.splitlines()[-1]
    assert '"-dylib"' in linker
    assert '"-undefined" "dynamic_lookup"' in linker
    assert "unknown" not in driver.stderr


def test_macos_compiles(tmp_path: Path) -> None:
    """There, an int64_t is a long long, and a Py_ssize_t a long."""
    needs(MACOS[0])
    # -shared; empty structs; hints to GCC
    quiet = ("-Wno-unused-command-line-argument", "-Wno-extern-c-compat", "-Wno-unknown-pragmas")
    source = tmp_path / "launcher.cpp"
    source.write_text(libraries.launcher_request("portable").source)
    command = [*MACOS, *build.FLAGS, *STRICT, *quiet, "-fsyntax-only", "-I", str(build.INCLUDE), str(source)]
    subprocess.run(command, check=True)
    compile_all(tmp_path, "portable", MACOS, (*quiet, "-fsyntax-only"))


# Resamples images without Python, by tap tables, samplers and the driver: types and sizes that take different ways
# through them. Prints a line for each, with its name and the values of the result.
HOST = r"""
#include <cstdio>
#include <initializer_list>

#include "polyphase/resample/floats.h"
#include "polyphase/resample/pick.h"
#include "polyphase/resample/quantised.h"
#include "polyphase/resample/resample.h"
#include "polyphase/resample/sampler.h"
#include "polyphase/taps/taps.h"

using namespace polyphase;

uint32_t random_state = 1;
uint32_t random_byte() { return (random_state = random_state * 1664525 + 1013904223) >> 24; }
template <class T>
T random_value() { return static_cast<T>(random_byte()) / (__is_same(T, uint8_t) ? T(1) : T(256)); }
void print(float value) { std::printf(" %.9g", value); }
void print(uint8_t value) { std::printf(" %d", value); }

Step resized(int64_t size, Filter filter, bool antialias) {
  return {Step::kResize, size, filter, antialias, 0, __builtin_nan(""), 0, __builtin_nan("")};
}

Axis axis_of(const Taps& taps, int64_t in_stride, int64_t out_stride) {
  int64_t most = 0;
  for (int64_t i = 0; i < taps.out_size; ++i) most = max<int64_t>(most, taps.begin[i + 1] - taps.begin[i]);
  return {taps.in_size, taps.out_size, in_stride, out_stride, &taps, most, taps.begin[taps.out_size], {}};
}

// Rows: which sampler. An image of (height, width, channels), its axes through a step each.
template <class T, class Rows>
void resample(const char* name, Step vertical, Step horizontal, int64_t height, int64_t width, int64_t channels) {
  static const Sampler kSampler = sampler<Rows>();
  TapTable y, x;
  make_taps({0, 0, 0, height, 0, 1, &vertical}, kSampler, &y);
  make_taps({channels, channels, sizeof(T), width, 0, 1, &horizontal}, kSampler, &x);
  const Taps y_taps = y.view(), x_taps = x.view();
  Buffer<T> in(height * width * channels), out(y.out_size() * x.out_size() * channels);
  for (T& value : in) value = random_value<T>();
  int64_t bytes = 0;
  MapsCall call = {};
  call.source = in.data();
  call.target = out.data();
  call.threads = 1;
  call.parallel = [](int64_t count, int64_t, Body body, void* context) { body(context, 0, count); };
  call.z = {1, 1, 0, 0, nullptr, 1, 1, {}};
  call.y = axis_of(y_taps, width * channels, x.out_size() * channels);
  call.x = axis_of(x_taps, channels, channels);
  call.channels = call.read_channels = channels;
  call.in_channel_stride = call.out_channel_stride = 1;
  call.channel_axis = -1;
  call.sampler = &kSampler;
  call.row_map = kSampler.prepare(x_taps, channels, channels, sizeof(T), &bytes);
  Resample<Unchanged<T>, Unchanged<T>>::run(call);
  kSampler.release(call.row_map);
  std::printf("%s of %d channels, %d to %d columns:", name, int(channels), int(width), int(x.out_size()));
  for (const T value : out) print(value);
  std::printf("\n");
}

template <class T, class Rows>
void resize(const char* name) {
  for (const int64_t channels : {1, 2, 3, 4, 5, 20}) {
    resample<T, Rows>(name, resized(9, kBilinear, true), resized(17, kBilinear, true), 11, 23, channels);   // a little
    resample<T, Rows>(name, resized(4, kBilinear, true), resized(13, kBilinear, true), 19, 160, channels);  // many taps
    resample<T, Rows>(name, resized(7, kBicubic, false), resized(90, kBicubic, false), 5, 40, channels);    // grows
  }
}

int main() {
  resize<float, FloatSampler<float>>("float32");
  resize<uint8_t, QuantisedSampler>("uint8");
  for (const int64_t pixel : {1, 2, 3, 4, 5, 6, 8, 12, 16}) {
    const double none = __builtin_nan("");
    const Step flip = {Step::kFlip, 0, 0, 0, 0, 0, 0, none}, nearest = {Step::kNearest, 33, 0, 0, 0, none, 0, none};
    const Step cut = {Step::kSlice, 1, 5, 1, 0, 0, 0, none};
    using Moved = MovingSampler<TapArithmetic::kFloat32>;
    resample<uint8_t, Moved>("flipped", flip, flip, 3, 70, pixel);
    resample<uint8_t, Moved>("nearest", cut, nearest, 6, 80, pixel);
    resample<uint8_t, Moved>("stretched", cut, nearest, 6, 20, pixel);
  }
}
"""


def test_arm_computes_the_same(tmp_path: Path) -> None:
    needs(ARM_COMPILER, ARM_EMULATOR)
    source = tmp_path / "host.cpp"
    source.write_text(HOST)
    options = [*build.FLAGS, *STRICT, "-I", str(build.INCLUDE), str(source)]
    options.remove("-shared")
    arm, here = str(tmp_path / "arm"), str(tmp_path / "here")
    subprocess.run([ARM_COMPILER, *options, "-static", "-o", arm], check=True)
    subprocess.run([*settings.compiler(), *options, *isa.flags("portable"), "-o", here], check=True)
    emulated, native = printed(ARM_EMULATOR, arm), printed(here)
    assert len(native) == 2 * 18 + 27
    assert emulated.keys() == native.keys()
    for name, values in native.items():
        # ARM rounds once after a multiplication and an addition.
        allowed = 1e-6 if name.startswith("float") else 0.0
        assert torch.allclose(emulated[name], values, rtol=0, atol=allowed), name


def printed(*command: str) -> dict[str, Tensor]:
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    named = (line.partition(":") for line in lines)
    return {name: torch.tensor([float(value) for value in values.split()]) for name, _, values in named}
