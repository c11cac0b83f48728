"""Which numbers of `launch/device_ways.h` are best on this GPU: calls by the way that is chosen, and by others near it.

    python benchmarks/sweep_cuda.py                  every case, each way's own numbers varied: minutes
    python benchmarks/sweep_cuda.py uint8 --vary kThreads=64,128 strip=8,16,32
    python benchmarks/sweep_cuda.py --build sm_90    without a GPU: whether all that would be tried can be built

Numbers are those of a kernel's template, by their names in its header, and the fields of `Way`: tile, strip, resident.
A line for each call: the share of the memory floor that the chosen way reaches, then the best others and the worst.
What gives another result is not timed. `docs/tuning-cuda.md` has what was learned from it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from polyphase import arguments, torch_private
from polyphase.bench import gpu
from polyphase.cuda import build, driver, emit, launch
from polyphase.cuda.ways import Way
from polyphase.errors import PolyphaseError
from polyphase.records import checking
from polyphase.records.facts import Facts
from polyphase.records.records import CallRecord
from polyphase.sampling.programs import maps_program

BLOCK_SECONDS = 0.01
#: Of the ways tried, so many of the best are told.
TOLD = 4
FIELDS = ("tile", "strip", "resident")

AA: dict[str, Any] = {"mode": "bilinear", "antialias": True}
CUBIC: dict[str, Any] = {"mode": "bicubic"}
LINEAR: dict[str, Any] = {"mode": "bilinear"}
LARGER, SMALLER = ((8, 3, 1234, 1345), (2345, 2456)), ((8, 3, 2345, 2456), (1234, 1345))
THUMBNAILS, FEATURES = ((32, 3, 1080, 1920), (224, 224)), ((8, 64, 128, 128), (256, 256))

#: By template: the numbers that are varied where nothing else is said.
VARIED: dict[str, dict[str, tuple[int, ...]]] = {
    "Direct": {"kThreads": (64, 128, 256), "kRows": (1, 2, 4), "resident": (2, 4, 8)},
    "Ring": {"kColumns": (1, 2, 4), "kAhead": (1, 2, 3, 4, 5), "kStrip": (32, 64), "kThreads": (64, 128)},
    "Shrink": {"tile": (32, 56, 112, 224), "strip": (8, 32, 64), "kThreads": (128, 256)},
    "ByteWalk": {"kAhead": (1, 2, 4), "kStrip": (16, 32, 64), "kThreads": (64, 128, 256), "resident": (2, 5, 8)},
    "ByteRing": {"kRows": (4, 8, 16), "kStrip": (8, 16, 32), "resident": (4, 6, 8)},
    "Moved": {"kRows": (1, 2, 4), "strip": (4, 8, 16, 32), "resident": (1, 4, 6)},
    "General": {"kThreads": (64, 128, 256), "resident": (1, 4, 8)},
}


@dataclass(frozen=True)
class Call:
    """A resize, or a flip where there is no size."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    size: tuple[int, int] | None
    options: dict[str, Any]

    @property
    def name(self) -> str:
        what = f"{self.options} -> {self.size}" if self.size else "flip"
        return f"{str(self.dtype).removeprefix('torch.')} {self.shape} {what}"

    def record(self, layout: torch.memory_format) -> CallRecord:
        empty = torch.empty(self.shape, dtype=self.dtype, device="meta", memory_format=layout)
        if self.size is None:
            maps = arguments.flip_maps(len(self.shape), (-1,))
        else:
            mode, align = self.options["mode"], self.options.get("align_corners")
            antialias = self.options.get("antialias", False)
            maps = arguments.resize_maps(self.shape, self.dtype, self.size, None, mode, align, None, antialias)
        facts = Facts(self.dtype, empty.shape, empty.stride(), torch.device("cuda", 0))
        return checking.record_of(maps_program(self.dtype, maps), [facts])


CALLS = {
    "small": [Call((1, 3, 345, 456), torch.float32, (270, 270), AA)],
    "resize": [
        Call(SMALLER[0], torch.float32, SMALLER[1], AA),
        Call(THUMBNAILS[0], torch.float32, THUMBNAILS[1], AA),
        Call(LARGER[0], torch.float32, LARGER[1], CUBIC),
        Call(LARGER[0], torch.float32, LARGER[1], {"mode": "bicubic", "antialias": True}),
        Call(LARGER[0], torch.float32, LARGER[1], {"mode": "bilinear", "align_corners": True}),
        Call(FEATURES[0], torch.float32, FEATURES[1], LINEAR),
        Call(FEATURES[0], torch.bfloat16, FEATURES[1], LINEAR),
    ],
    "uint8": [
        Call(SMALLER[0], torch.uint8, SMALLER[1], AA),
        Call(THUMBNAILS[0], torch.uint8, THUMBNAILS[1], AA),
        Call(LARGER[0], torch.uint8, LARGER[1], CUBIC),
    ],
    "moved": [
        Call((64, 3, 512, 512), torch.uint8, None, {}),
        Call((64, 3, 512, 512), torch.float32, None, {}),
        Call(LARGER[0], torch.float32, LARGER[1], {"mode": "nearest-exact"}),
        Call(FEATURES[0], torch.float32, FEATURES[1], {"mode": "nearest"}),
        Call(FEATURES[0], torch.bfloat16, FEATURES[1], {"mode": "nearest"}),
    ],
}
LAYOUTS = {"planes": torch.contiguous_format, "pixels": torch.channels_last}


def names_of(way: Way) -> list[str]:
    """Of the numbers of a way's template, in order."""
    text = build.headers()[f"polyphase/cuda/{way.header}.h"]
    found = re.search(rf"template <([^>]*)>\s*struct {way.template} {{", text)
    assert found, f"{way.header}.h has no {way.template}"
    return [words.split()[-1] for words in found[1].split(",") if words.split()[0] != "class"]


def varied(way: Way, call: Any, changes: dict[str, int]) -> Way | None:
    """A way with other numbers; None where it has no such numbers. What follows from a number of columns follows."""
    names = names_of(way)
    numbers = dict(zip(names, way.constants, strict=True))
    if not changes.keys() <= {*names, *FIELDS}:
        return None
    numbers |= {name: value for name, value in changes.items() if name in names}
    if "kColumns" in changes and way.template == "Ring":
        by_columns = call.way_by("Ring", int(numbers["kX"]), int(numbers["kY"]), changes["kColumns"])
        follows = dict(zip(names, by_columns.constants, strict=True))
        numbers |= {name: follows[name] for name in ("kStores", "kPixel", "kFirsts", "kEdge", "kTogether")}
    if way.template == "Ring" and numbers["kY"] % numbers["kAhead"] and numbers["kAhead"] % numbers["kY"]:
        return None
    tile, strip, resident = (changes.get(name, getattr(way, name)) for name in FIELDS)
    constants, threads = tuple(numbers.values()), int(numbers["kThreads"])
    return replace(way, constants=constants, threads=threads, tile=tile, strip=strip, resident=resident)


def ways_near(record: CallRecord, architecture: str, asked: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, Way]]:
    """The chosen one first."""
    calls: list[Any] = []

    def choose(call: Any) -> Way:
        calls.append(call)
        return call.own_way()  # type: ignore[no-any-return]

    chosen = launch.prepared(record, True, architecture, choose).way
    yield "as chosen", chosen
    alternatives = asked or VARIED[chosen.template]
    known = {chosen}
    for values in itertools.product(*alternatives.values()):
        changes = dict(zip(alternatives, values, strict=True))
        way = varied(chosen, calls[0], changes)
        if way is not None and way not in known:
            known.add(way)
            yield " ".join(f"{name}={value}" for name, value in changes.items()), way


def sweep(call: Call, layout: str, asked: dict[str, tuple[int, ...]], bytes_per_second: float) -> str:
    record = call.record(LAYOUTS[layout])
    noise = torch.randint(0, 256, call.shape, dtype=torch.uint8, device="cuda")
    image = noise if call.dtype == torch.uint8 else (noise / 255).to(call.dtype)
    image = image.contiguous(memory_format=LAYOUTS[layout])
    want, times = None, []
    for name, way in ways_near(record, launch.architecture(0), asked):
        output = torch.empty_strided(record.out.shape, record.out.strides, dtype=record.out.dtype, device="cuda")
        try:
            run = launch_of(record, way, image, output)
        except PolyphaseError as error:
            print(f"  {name}: {' '.join(str(error).split())[:200]}", flush=True)
            continue
        run()
        want = output.clone() if want is None else want
        if torch.allclose(output.double(), want.double(), rtol=1e-5, atol=1e-5):
            times.append((gpu.replayed(run, BLOCK_SECONDS)(), name))
        else:
            print(f"  {name}: another result", flush=True)
    assert want is not None, "the chosen way can be built"
    floor = (image.nbytes + want.nbytes) / bytes_per_second
    (chosen, _), (best, *more) = times[0], sorted(times)
    others = "; ".join(f"{name} {floor / seconds:.2f}" for seconds, name in [best, *more][:TOLD])
    return (
        f"{call.name} {layout}: {chosen * 1e6:.1f} us, share {floor / chosen:.2f}, {chosen / best[0]:.2f} times the "
        f"best of {len(times)}: {others}; the worst: {max(times)[1]} {floor / max(times)[0]:.2f}"
    )


def launch_of(record: CallRecord, way: Way, image: Tensor, output: Tensor) -> Callable[[], object]:
    bound = launch._launch_of(record, True, functools.partial(_always, way))  # which its tables go with
    addresses = output.data_ptr(), image.data_ptr()
    return lambda: bound.run(torch_private.current_raw_stream(0), *addresses)


def _always(way: Way, case: object) -> Way:
    return way


def copied_bytes_per_second() -> float:
    """A gigabyte read and one written."""
    source = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / gpu.replayed(lambda: target.copy_(source), BLOCK_SECONDS)()


def build_all(calls: Sequence[tuple[Call, str]], architecture: str, asked: dict[str, tuple[int, ...]]) -> int:
    """How many ways cannot be built."""
    sources: dict[str, str] = {}
    for call, layout in calls:
        record = call.record(LAYOUTS[layout])
        plan = launch.prepared(record, True, architecture).plan
        for name, way in ways_near(record, architecture, asked):
            launch.prepared(record, True, architecture, functools.partial(_always, way))  # its work can be cut
            sources.setdefault(emit.kernel_source(plan, way), f"{call.name} {layout} {way.template} {name}")
    failed = 0
    for source, name in sources.items():
        try:
            driver.compile_source(source, build.headers(), (f"--gpu-architecture={architecture}", *build.OPTIONS))
        except PolyphaseError as error:
            failed += 1
            print(f"{name}: {' '.join(str(error).split())[:300]}", flush=True)
    print(f"{len(sources)} kernels, {failed} cannot be built")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="group", help=f"of calls, all if none is said: {', '.join(CALLS)}")
    parser.add_argument("--vary", nargs="+", default=[], metavar="NAME=NUMBER,NUMBER", help="instead of each way's own")
    parser.add_argument("--layout", choices=LAYOUTS, help="both, if none is said")
    parser.add_argument("--build", metavar="ARCHITECTURE", help="only build, for an architecture such as sm_90")
    asked = parser.parse_args()
    if unknown := set(asked.groups) - set(CALLS):
        parser.error(f"no group {', '.join(unknown)}; choose of: {', '.join(CALLS)}")
    alternatives = {name: tuple(map(int, some.split(","))) for name, some in (one.split("=") for one in asked.vary)}
    layouts = [asked.layout] if asked.layout else list(LAYOUTS)
    calls = [(call, layout) for name in asked.groups or CALLS for call in CALLS[name] for layout in layouts]
    if asked.build:
        return 1 if build_all(calls, asked.build, alternatives) else 0
    if not torch.cuda.is_available():
        parser.error("no GPU here; --build ARCHITECTURE needs none")
    bytes_per_second = copied_bytes_per_second()
    print(f"{torch.cuda.get_device_name()}: {bytes_per_second / 1e12:.2f} TB/s by a copy", flush=True)
    for call, layout in calls:
        print(sweep(call, layout, alternatives, bytes_per_second), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
