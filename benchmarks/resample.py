"""`polyphase.functional` on one CPU thread, against eager and, where they are installed, Pillow(-SIMD) and OpenCV.

Columns are interleaved in one process; every result is checked before it is timed; medians. Prints the Markdown that
`resample.md` holds:

    python benchmarks/resample.py > benchmarks/resample.md
    python benchmarks/resample.py --quick      # a few rows, under a minute
"""

from __future__ import annotations

import importlib
import itertools
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase.cpu import isa

FORMATS = {"CF": torch.contiguous_format, "CL": torch.channels_last}
DTYPES = {"u8": torch.uint8, "f32": torch.float32}
SECONDS_PER_CELL = 0.25
ROUNDS = 9
SCALE = 0.9  # of a warp: output pixels lie so many input pixels apart


@dataclass(frozen=True)
class Case:
    """One operation on one image. `keywords` are interpolate's, flip's dims, or a warp's turn (degrees) and mode."""

    shape: tuple[int, ...]
    dtype: str
    layout: str
    keywords: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        named = dict(self.keywords)
        if "dims" in named:
            return f"flip {named['dims'][0]} {self.shape} {self.dtype} {self.layout}"
        if "turn" in named:
            return f"affine {named['mode']}, {named['turn']} degrees {self.shape} {self.dtype} {self.layout}"
        mode = named["mode"] + (" antialiased" if named.get("antialias") else "")
        return f"{mode} {self.shape} -> {named['size']} {self.dtype} {self.layout}"

    def image(self) -> Tensor:
        image = torch.randint(0, 256, self.shape, dtype=torch.uint8)
        image = image if self.dtype == "u8" else image / 255
        return image.contiguous(memory_format=FORMATS[self.layout])

    def pixel_matrix(self) -> Tensor:
        """Of a warp, from output pixels to input pixels: a turn about the image's centre."""
        turn = math.radians(dict(self.keywords)["turn"])
        matrix = SCALE * torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]]).double()
        height, width = self.shape[-2:]
        centre = torch.tensor([(width - 1) / 2, (height - 1) / 2], dtype=torch.float64)
        return torch.cat([matrix, (centre - matrix @ centre)[:, None]], 1)

    def theta(self) -> Tensor:
        """The same between coordinates from -1 to 1."""
        height, width = self.shape[-2:]
        sizes = torch.tensor([width, height], dtype=torch.float64)
        turned = self.pixel_matrix()[:, :2] * sizes / sizes[:, None]
        return torch.cat([turned, torch.zeros(2, 1)], 1)[None].expand(self.shape[0], 2, 3).float()


def warps(shape: tuple[int, ...], dtype: str, mode: str) -> Iterator[Case]:
    yield from (Case(shape, dtype, layout, (("turn", 30), ("mode", mode))) for layout in FORMATS)


def resizes(shape: tuple[int, ...], size: tuple[int, int], mode: str, **options: Any) -> Iterator[Case]:
    for dtype, layout in itertools.product(DTYPES, FORMATS):
        yield Case(shape, dtype, layout, tuple({"size": size, "mode": mode, **options}.items()))


def quick_cases() -> Iterator[Case]:
    yield from resizes((1, 3, 345, 456), (270, 270), "bilinear", antialias=True)
    yield from resizes((1, 3, 500, 400), (256, 256), "nearest")
    yield from resizes((1, 3, 500, 400), (1024, 1024), "bicubic", align_corners=False)
    yield from (Case((1, 3, 224, 224), "u8", layout, (("dims", (-1,)),)) for layout in FORMATS)
    yield from warps((2, 3, 345, 456), "f32", "bilinear")


def all_cases() -> Iterator[Case]:
    yield from quick_cases()
    for mode in ("bilinear", "bicubic"):
        yield from resizes((1, 3, 1600, 2560), (1280, 2048), mode, antialias=True)
        yield from resizes((1, 3, 1600, 2560), (200, 320), mode, antialias=True)
        yield from resizes((1, 3, 1080, 1920), (224, 224), mode, antialias=True)
    yield from resizes((1, 3, 345, 456), (270, 270), "bicubic", antialias=True)
    yield from resizes((1, 3, 345, 456), (270, 270), "bilinear", align_corners=False)
    yield from resizes((1, 3, 500, 400), (1024, 1024), "bilinear", align_corners=False)
    yield from (Case((4, 3, 1080, 1920), "u8", layout, (("dims", (-1,)),)) for layout in FORMATS)
    yield from warps((2, 3, 345, 456), "f32", "nearest")
    yield from warps((2, 3, 345, 456), "f32", "bicubic")
    for dtype in DTYPES:
        yield from warps((1, 3, 1080, 1920), dtype, "bilinear")


Function = Callable[[], Any]


def eager(case: Case, image: Tensor) -> Function | None:
    keywords = dict(case.keywords)
    if "turn" in keywords:
        theta, shape, options = case.theta(), list(case.shape), {"mode": keywords["mode"], "align_corners": False}
        if case.dtype == "u8":  # which eager does not warp
            return None
        return lambda: F.grid_sample(image, F.affine_grid(theta, shape, align_corners=False), **options)
    return lambda: torch.flip(image, **keywords) if "dims" in keywords else F.interpolate(image, **keywords)


def ours(case: Case, image: Tensor) -> Function:
    keywords = dict(case.keywords)
    if "turn" in keywords:
        theta, mode = case.theta(), keywords["mode"]
        return lambda: P.affine_sample(image, theta, case.shape, mode, align_corners=False)
    return lambda: P.flip(image, **keywords) if "dims" in keywords else P.interpolate(image, **keywords)


def pillow(case: Case, image: Tensor) -> Function | None:
    """Pillow resizes RGB uint8, always antialiased."""
    keywords = dict(case.keywords)
    if not keywords.get("antialias") or (case.dtype, case.layout) != ("u8", "CL"):
        return None
    pil = importlib.import_module("PIL.Image")
    picture = pil.fromarray(image[0].permute(1, 2, 0).numpy())
    height, width = keywords["size"]
    resample = {"bilinear": pil.BILINEAR, "bicubic": pil.BICUBIC}[keywords["mode"]]
    return lambda: picture.resize((width, height), resample)


def opencv(case: Case, image: Tensor) -> Function | None:
    """OpenCV's INTER_LINEAR is not antialiased."""
    keywords = dict(case.keywords)
    if keywords.get("mode") != "bilinear" or keywords.get("antialias") or case.layout != "CL":
        return None
    cv2 = importlib.import_module("cv2")
    cv2.setNumThreads(1)
    picture = image[0].permute(1, 2, 0).numpy()
    if "turn" in keywords:
        if len(image) > 1:
            return None
        matrix, size, flags = case.pixel_matrix().numpy(), case.shape[:1:-1], cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        return lambda: cv2.warpAffine(picture, matrix, size, flags=flags)
    height, width = keywords["size"]
    return lambda: cv2.resize(picture, (width, height), interpolation=cv2.INTER_LINEAR)


COLUMNS: dict[str, Callable[[Case, Tensor], Function | None]] = {
    "eager": eager,
    "Polyphase": ours,
    "Pillow": pillow,
    "OpenCV": opencv,
}


def installed() -> dict[str, str]:
    """Titles of the columns that can run here."""
    titles = {"eager": f"eager {torch.__version__}", "Polyphase": "Polyphase"}
    for name, module in (("Pillow", "PIL"), ("OpenCV", "cv2")):
        try:
            titles[name] = f"{name} {importlib.import_module(module).__version__}"
        except ImportError:
            print(f"{name} is not installed: no column", file=sys.stderr)
    return titles


def medians(functions: dict[str, Function]) -> dict[str, float]:
    """Microseconds a call, the columns in turn."""
    calls = {}
    for name, function in functions.items():
        function()
        start = time.perf_counter()
        function()
        calls[name] = max(1, int(SECONDS_PER_CELL / ROUNDS / (time.perf_counter() - start)))
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                function()
            times[name].append((time.perf_counter() - start) / calls[name] * 1e6)
    return {name: statistics.median(column) for name, column in times.items()}


def check(case: Case, functions: dict[str, Function]) -> None:
    got = functions["Polyphase"]()
    if "turn" in dict(case.keywords):
        check_warp(case, got)
        return
    want = functions["eager"]()
    exact = case.dtype == "u8" or "nearest" in dict(case.keywords).get("mode", "nearest")
    tolerance = 0.0 if exact else None
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def check_warp(case: Case, got: Tensor) -> None:
    """Against float64: eager's positions are rounded differently."""
    torch.manual_seed(0)
    image, mode = case.image().double(), dict(case.keywords)["mode"]
    grid = F.affine_grid(case.theta().double(), list(case.shape), align_corners=False)
    want = F.grid_sample(image, grid, mode, align_corners=False)
    off = (got.double() - want).abs() / (255 if case.dtype == "u8" else 1)
    limit = 0.5 / 255 if case.dtype == "u8" else 1e-5
    if off.mean() > limit:
        raise AssertionError(f"{case}: off by {off.mean():.2e} on average, allowed are {limit:.2e}")


def row(case: Case, columns: list[str]) -> str:
    torch.manual_seed(0)
    image = case.image()
    functions = {name: function for name in columns if (function := COLUMNS[name](case, image)) is not None}
    check(case, functions)
    times = medians(functions)

    def cell(name: str) -> str:
        if name not in times:
            return ""
        faster = times[name] / times["Polyphase"]
        return f"{times[name]:.0f}" + ("" if name == "Polyphase" else f" ({faster:.1f}x)")

    return f"| {case} | " + " | ".join(map(cell, columns)) + " |"


def main() -> None:
    torch.set_num_threads(1)
    titles = installed()
    print("# `polyphase.functional`, one CPU thread\n")
    print(
        f"{platform.machine()}, instruction set {isa.chosen()}. Microseconds; in brackets, how many times longer than"
    )
    print("Polyphase. Written by `benchmarks/resample.py`.\n")
    print("| case | " + " | ".join(titles.values()) + " |\n| --- " + "| --- " * len(titles) + "|")
    for case in quick_cases() if "--quick" in sys.argv else all_cases():
        print(row(case, list(titles)), flush=True)


if __name__ == "__main__":
    main()
