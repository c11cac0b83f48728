"""What the documentation shows of this build: pictures, and the program and generated source of a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase
import polyphase.functional as P
from polyphase import transforms as T
from polyphase.cpu import emit
from polyphase.kernels.plans import plan_maps
from polyphase.sampling.text import from_text
from polyphase.trying import drawn

EVALUATION = [
    T.Resize(256),
    T.CenterCrop(224),
    T.RandomHorizontalFlip(1.0),
    T.ToDtype(torch.float32, scale=True),
    T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
]
SECTIONS = ("antialiasing", "filters", "warps", "fills", "letterbox", "patches")


def program() -> str:
    """The program of one photo, a part in a line."""
    (text,) = polyphase.fuse(EVALUATION).programs(torch.empty(3, 345, 456, dtype=torch.uint8))
    return text.replace("axes([", "\n  axes([").replace(", axismap(", ",\n        axismap(").replace("epi", "\n  epi")


def source() -> str:
    """The C++ that is generated for it; the headers that it includes have the loops."""
    (text,) = polyphase.fuse(EVALUATION).programs(torch.empty(3, 345, 456, dtype=torch.uint8))
    plan = plan_maps(from_text(text), "portable")
    return emit.kernel_source(plan).strip()


def gallery(section: str) -> dict[str, Tensor]:
    """Pictures (3, height, width) of bytes, by what they show."""
    return _SECTIONS[section]()


def _antialiasing() -> dict[str, Tensor]:
    photo, size = _photo(3), (120, 160)
    made = {
        "F.interpolate, antialias=False": F.interpolate(photo, size, mode="bilinear"),
        "P.interpolate, antialias=True": P.interpolate(photo, size, mode="bilinear", antialias=True),
        "lanczos, antialias=True": P.interpolate(photo, size, mode="lanczos", antialias=True),
    }
    return {name: one[0] for name, one in made.items()}


def _filters() -> dict[str, Tensor]:
    part = _photo(0)[..., 255:295, 200:240]
    larger = {mode: P.interpolate(part, (160, 160), mode=mode)[0] for mode in ("nearest-exact", "bilinear", "bicubic")}
    return larger | {"lanczos": P.interpolate(part, (160, 160), mode="lanczos", antialias=True)[0]}


def _warps() -> dict[str, Tensor]:
    photo = _photo(0)
    out = (1, 3, 180, 240)
    turn = torch.tensor([[[0.94, -0.34, 0.0], [0.34, 0.94, 0.0]]])
    tilt = torch.tensor([[[1.0, 0.1, 0.0], [0.0, 1.1, 0.0], [0.0, 0.35, 1.0]]])
    small = P.interpolate(photo, out[2:], mode="bilinear", antialias=True)
    y, x = torch.meshgrid(torch.arange(180.0), torch.arange(240.0), indexing="ij")
    waves = torch.stack([5 * torch.sin(y / 9), 5 * torch.sin(x / 11)], -1)[None]
    return {
        "affine_sample, padding_mode='reflection'": P.affine_sample(small, turn, out, padding_mode="reflection")[0],
        "perspective_sample": P.perspective_sample(small, tilt, out, mode="bicubic")[0],
        "displacement_sample": P.displacement_sample(small, waves, padding_mode="border")[0],
    }


def _fills() -> dict[str, Tensor]:
    photo, out = P.interpolate(_photo(0), (180, 240), mode="bilinear", antialias=True), (1, 3, 180, 240)
    angle = math.radians(24)
    turn = torch.tensor([[[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]]]) * 1.2
    given: dict[str, dict[str, object]] = {
        "zeros": {},
        "padding_mode='border'": {"padding_mode": "border"},
        "fill=(240, 120, 40)": {"fill": (240.0, 120.0, 40.0)},
    }
    return {name: P.affine_sample(photo, turn, out, **more)[0] for name, more in given.items()}  # type: ignore[arg-type]


def _letterbox() -> dict[str, Tensor]:
    whole = {"landscape": drawn.picture(0), "portrait": drawn.picture(1)}
    return {
        f"{name}: T.Letterbox(180, fill=127)": polyphase.fuse([T.Letterbox(180, fill=127)])(one)
        for name, one in whole.items()
    }


def _patches() -> dict[str, Tensor]:
    """Patches of 28 by 28, each put down with a gap: 6 rows of 8."""
    cut = polyphase.fuse([T.Resize((168, 224)), T.Patches(28)])(drawn.picture(0))
    tiles = cut.reshape(6, 8, 3, 28, 28)
    apart = F.pad(tiles, (2, 2, 2, 2), value=255)
    return {"T.Resize((168, 224)), T.Patches(28)": apart.permute(2, 0, 3, 1, 4).reshape(3, 6 * 32, 8 * 32)}


def _photo(number: int) -> Tensor:
    return drawn.picture(number)[None]


_SECTIONS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "antialiasing": _antialiasing,
    "filters": _filters,
    "warps": _warps,
    "fills": _fills,
    "letterbox": _letterbox,
    "patches": _patches,
}
