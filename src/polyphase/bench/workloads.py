"""The cases that are measured: one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from polyphase.bench.library_warps import KorniaWarp, TorchvisionWarp
from polyphase.bench.operations import (
    DTYPES,
    FORMATS,
    AffineWarp,
    DecoderStep,
    Flip,
    OfTurned,
    Operation,
    PerspectiveWarp,
    Points,
    Preprocess,
    PyramidStep,
    Resize,
    Shape,
)
from polyphase.errors import NothingToMeasureError, UnknownNameError
from polyphase.torch_versions import samples

SUITES = ("aa", "nearest", "warp", "flip", "bicubic", "chain", "backward", "model", "library")
#: Suites of code that not everybody has installed: no part of them is quick.
OF_LIBRARIES = ("library",)
ALL = "all"
OWN = "own"

FOUR = ("u8 CF", "u8 CL", "f32 CF", "f32 CL")
BYTES = ("u8 CF", "u8 CL")
FLOATS = ("f32 CF", "f32 CL")


@dataclass(frozen=True)
class Case:
    """One row: an operation on an image, or on one image of each shape in turn.

    `order` names the group of rows that go through one compiled function, in the table's order: batches of `1->4`.
    """

    suite: str
    operation: Operation
    shapes: tuple[Shape, ...]
    dtype: str
    layout: str
    order: str = ""
    backward: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")
    quick: bool = False

    @property
    def label(self) -> str:
        sizes = f", {len(self.shapes)} sizes in turn" if len(self.shapes) > 1 else ""
        direction = "forward + backward " if self.backward else ""
        return f"{direction}{self.operation.label(self.shapes[0])}{sizes}, {self.dtype} {self.layout}"

    @property
    def compiled_together(self) -> object:
        """Cases that are equal in this share a compiled function."""
        return (self.operation, self.dtype, self.layout, self.backward, self.order or self.shapes)


@dataclass(frozen=True)
class Workload:
    """A line of the table: a case for each of `kinds`, of which `quick` are in the quick suite."""

    suite: str
    operation: Operation
    shapes: tuple[Shape, ...]
    kinds: tuple[str, ...] = FOUR
    quick: tuple[str, ...] = ()
    order: str = ""
    in_turn: bool = False  # all shapes are one case
    backward: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")

    def cases(self) -> Iterator[Case]:
        for kind in self.kinds:
            dtype, layout = kind.split()
            for shapes in [self.shapes] if self.in_turn else [(shape,) for shape in self.shapes]:
                rest = self.order, self.backward, self.devices, kind in self.quick
                yield Case(self.suite, self.operation, shapes, dtype, layout, *rest)


def antialiased(size: tuple[int, int], mode: str = "bilinear") -> Resize:
    return Resize(size, mode, antialias=True)


def plain(size: tuple[int, int], mode: str, align_corners: bool = False) -> Resize:
    return Resize(size, mode, align_corners=align_corners)


PHOTO = (1, 3, 345, 456)
FOUR_PHOTOS = (4, 3, 345, 456)
TWO_PHOTOS = (2, 3, 345, 456)
PORTRAIT = (1, 3, 500, 400)
FULL_HD = (1, 3, 1080, 1920)
EIGHT_LARGE = (8, 3, 1234, 1345)
WIDE = (1, 3, 1600, 2560)
CAMERA = (1, 3, 3279, 4928)
PHOTOS_OF_MANY_SIZES = tuple((1, 3, 300 + 37 * i, 480 - 23 * i) for i in range(8))

TABLE: tuple[Workload, ...] = (
    # W1
    Workload("aa", antialiased((270, 270)), (PHOTO, FOUR_PHOTOS), quick=("u8 CL", "f32 CF"), order="1->4"),
    Workload("aa", antialiased((270, 270)), (FOUR_PHOTOS, PHOTO), quick=("f32 CF",), order="4->1"),
    Workload("aa", antialiased((256, 256)), (PORTRAIT,)),
    Workload("aa", antialiased((200, 300)), ((1, 3, 1200, 1300),)),
    Workload("aa", antialiased((600, 700)), ((1, 3, 300, 400),)),
    Workload("aa", antialiased((224, 224)), ((1, 3, 256, 256), FULL_HD)),
    Workload("aa", antialiased((1280, 2048)), (WIDE,)),
    Workload("aa", antialiased((200, 320)), (WIDE,)),
    *(
        Workload("aa", antialiased(size, mode), (CAMERA,), BYTES, devices=("cpu",))
        for size in ((224, 224), (567, 852))
        for mode in ("bilinear", "bicubic", "lanczos")
    ),
    Workload("aa", antialiased((270, 270), "bicubic"), (PHOTO,)),
    Workload("aa", antialiased((224, 224), "bicubic"), (FULL_HD,)),
    Workload("aa", antialiased((1280, 2048), "bicubic"), (WIDE,)),
    Workload("aa", antialiased((200, 320), "bicubic"), (WIDE,)),
    Workload("aa", antialiased((270, 270), "lanczos"), (PHOTO,)),
    Workload("aa", antialiased((224, 224), "lanczos"), (FULL_HD,)),
    Workload("aa", antialiased((1234, 1345)), ((8, 3, 2345, 2456),), FLOATS, devices=("cuda",)),
    Workload("aa", antialiased((224, 224)), ((32, 3, 1080, 1920),), FLOATS, devices=("cuda",)),
    # W2
    Workload("nearest", Resize((256, 256), "nearest"), (PORTRAIT,), quick=("u8 CL", "f32 CL")),
    Workload("nearest", Resize((600, 700), "nearest"), ((1, 3, 300, 400),)),
    Workload("nearest", Resize((256, 256), "nearest-exact"), (PORTRAIT,)),
    Workload("nearest", Resize((600, 700), "nearest-exact"), ((1, 3, 300, 400),)),
    # W3
    Workload("warp", AffineWarp("bilinear"), (TWO_PHOTOS,), FLOATS, quick=("f32 CF",)),
    Workload("warp", AffineWarp("bilinear", align_corners=True), (TWO_PHOTOS,), FLOATS),
    Workload("warp", AffineWarp("nearest"), (TWO_PHOTOS,), FLOATS),
    Workload("warp", AffineWarp("nearest", align_corners=True), (TWO_PHOTOS,), FLOATS),
    Workload("warp", AffineWarp("bicubic"), (TWO_PHOTOS,), FLOATS),
    Workload("warp", AffineWarp("bicubic", align_corners=True), (TWO_PHOTOS,), FLOATS),
    Workload("warp", AffineWarp("bilinear", padding_mode="border"), (TWO_PHOTOS,), FLOATS),
    Workload("warp", AffineWarp("bilinear", padding_mode="reflection"), (TWO_PHOTOS,), FLOATS),
    Workload("warp", AffineWarp("bilinear", degrees=30.0, scale=0.9, shift=(0.0, 0.0)), (FULL_HD,)),
    Workload("warp", AffineWarp("bilinear", degrees=0.3, scale=0.9, shift=(0.0, 0.0)), (FULL_HD,)),
    Workload("warp", PerspectiveWarp("bilinear", degrees=20.0, scale=0.9), (FULL_HD,)),
    Workload("warp", PerspectiveWarp("bilinear", degrees=0.3, scale=0.9), (FULL_HD,)),
    Workload("warp", AffineWarp("bilinear"), (EIGHT_LARGE,), FLOATS, devices=("cuda",)),
    Workload("warp", AffineWarp("bicubic"), (EIGHT_LARGE,), FLOATS, devices=("cuda",)),
    # W4
    Workload("flip", Flip(-1), ((1, 3, 224, 224),), BYTES, quick=BYTES),
    Workload("flip", Flip(-1), ((1, 3, 256, 256),), BYTES),
    Workload("flip", Flip(-2), ((1, 3, 224, 224),), BYTES),
    Workload("flip", Flip(-1, margins=(9, 12, 12, 10)), ((1, 3, 245, 246),), BYTES),
    Workload("flip", Flip(-2, margins=(9, 12, 12, 10)), ((1, 3, 245, 246),), BYTES),
    Workload("flip", Flip(-1), ((4, 3, 1080, 1920),), BYTES),
    # W5
    Workload("bicubic", plain((256, 256), "bicubic"), (PORTRAIT,), quick=("u8 CL", "f32 CF")),
    Workload("bicubic", plain((256, 256), "bicubic", align_corners=True), (PORTRAIT,)),
    Workload("bicubic", plain((1024, 1024), "bicubic"), (PORTRAIT,)),
    Workload("bicubic", plain((1024, 1024), "bicubic", align_corners=True), (PORTRAIT,)),
    Workload("bicubic", plain((256, 256), "bilinear"), (PORTRAIT,)),
    Workload("bicubic", plain((1024, 1024), "bilinear"), (PORTRAIT,)),
    Workload("bicubic", plain((270, 270), "bilinear"), (PHOTO,)),
    Workload("bicubic", plain((2345, 2456), "bilinear"), (EIGHT_LARGE,), FLOATS, devices=("cuda",)),
    Workload("bicubic", plain((2345, 2456), "bicubic"), (EIGHT_LARGE,), FLOATS, devices=("cuda",)),
    # W6
    Workload("chain", Preprocess(), (PHOTO,), BYTES, quick=("u8 CF",)),
    Workload("chain", Preprocess(), PHOTOS_OF_MANY_SIZES, BYTES, quick=("u8 CL",), in_turn=True),
    # W7
    Workload("backward", antialiased((270, 270)), (PHOTO, FOUR_PHOTOS), FLOATS, quick=("f32 CF",), backward=True),
    Workload("backward", AffineWarp("bilinear"), (TWO_PHOTOS,), FLOATS, backward=True),
    Workload("backward", AffineWarp("bicubic"), (TWO_PHOTOS,), FLOATS, backward=True),
    Workload("backward", plain((256, 256), "bilinear"), (PORTRAIT,), FLOATS, backward=True),
    Workload("backward", plain((256, 256), "bicubic"), (PORTRAIT,), FLOATS, backward=True),
    Workload("backward", antialiased((256, 256)), ((8, 64, 128, 128),), FLOATS, backward=True, devices=("cuda",)),
    Workload("backward", antialiased((512, 512)), (EIGHT_LARGE,), FLOATS, backward=True, devices=("cuda",)),
    # W8
    Workload("model", PyramidStep(), ((1, 64, 32, 32),), FLOATS, quick=("f32 CL",), backward=True),
    Workload("model", PyramidStep(), ((2, 256, 32, 32),), FLOATS, backward=True),
    Workload("model", DecoderStep(), ((1, 64, 32, 32),), FLOATS, quick=("f32 CF",), backward=True),
    Workload("model", DecoderStep(), ((2, 256, 32, 32),), FLOATS, backward=True),
    # Where a kernel of torch's may take less time than ours: `cpu/slower.py`
    *(
        Workload("model", Points(size), (shape,), kinds, backward=backward)
        for size, shape, kinds in (
            ((4, 1), (64, 3, 20, 20), ("f32 CF",)),
            ((784, 1), (100, 1, 16, 16), ("f32 CF", "f64 CF")),
            ((2000, 4), (8, 32, 32, 32), FLOATS),
        )
        for backward in (False, True)
    ),
    Workload("model", OfTurned(pads=True), ((64, 4, 40, 12),), ("f32 CF",)),
    Workload("model", OfTurned(pads=False), ((64, 4, 40, 12), (8, 3, 200, 300)), ("f32 CF",)),
    *(
        Workload("model", Points((48, 64, 64), "bicubic"), ((1, 1, 48, 64, 64),), ("f32 CF",), backward=backward)
        for backward in (False, True)
        if samples("bicubic", 3)
    ),
    # Warps that libraries write
    *(
        Workload("library", warp, (shape,), kinds, devices=devices)
        for shape, kinds, devices in ((TWO_PHOTOS, FOUR, ("cpu", "cuda")), (EIGHT_LARGE, FLOATS, ("cuda",)))
        for warp in (
            TorchvisionWarp("rotate"),
            TorchvisionWarp("rotate", expand=True),
            TorchvisionWarp("rotate", fill=0.0),
            TorchvisionWarp("perspective"),
            TorchvisionWarp("elastic"),
        )
    ),
    *(
        Workload("library", warp, (shape,), FLOATS, devices=devices)
        for shape, devices in ((TWO_PHOTOS, ("cpu", "cuda")), (EIGHT_LARGE, ("cuda",)))
        for warp in map(KorniaWarp, ("warp_affine", "warp_perspective", "homography_warp", "remap"))
    ),
    Workload("library", KorniaWarp("warp_affine"), (TWO_PHOTOS,), FLOATS, backward=True),
)


@dataclass(frozen=True)
class Wanted:
    """Which rows of the table; None is any."""

    suite: str = ALL
    device: str = "cpu"
    quick: bool = False
    mode: str | None = None
    dtype: str | None = None
    layout: str | None = None

    def __post_init__(self) -> None:
        if self.suite not in (*SUITES, ALL):
            raise UnknownNameError("suite", self.suite, (*SUITES, ALL))
        check_kind(self.dtype, self.layout)

    def takes(self, case: Case) -> bool:
        return (
            self.suite in (ALL, case.suite)
            and self.device in case.devices
            and (case.quick or not self.quick)
            and self.mode in (None, case.operation.mode)
            and self.dtype in (None, case.dtype)
            and self.layout in (None, case.layout)
        )


def chosen(wanted: Wanted) -> list[Case]:
    cases = [case for line in TABLE for case in line.cases()]
    found = [case for case in cases if wanted.takes(case)]
    if not found:
        narrowed = {"--mode": wanted.mode, "--dtype": wanted.dtype, "--format": wanted.layout}
        options = " ".join(f"{name} {value}" for name, value in narrowed.items() if value)
        quick = "quick " if wanted.quick else ""
        raise NothingToMeasureError(
            f"no {quick}workload of suite {wanted.suite!r} on {wanted.device} has {options or 'been listed'}; "
            "leave options away, or name a case of your own with --input and --size"
        )
    return found


def own_cases(shape: Shape, operation: Resize, dtype: str | None, layout: str | None) -> list[Case]:
    """A case that is not in the table, as uint8 and float32, channels first and last, unless said."""
    check_kind(dtype, layout)
    dtypes = [dtype] if dtype else ["u8", "f32"]
    layouts = [layout] if layout else list(FORMATS)
    return [Case(OWN, operation, (shape,), a, b) for a in dtypes for b in layouts]


def check_kind(dtype: str | None, layout: str | None) -> None:
    if dtype is not None and dtype not in DTYPES:
        raise UnknownNameError("dtype", dtype, DTYPES)
    if layout is not None and layout not in FORMATS:
        raise UnknownNameError("format", layout, FORMATS)
