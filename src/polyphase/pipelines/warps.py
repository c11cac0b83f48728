"""Transforms that turn, shear and distort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from polyphase.errors import WrongArgumentError
from polyphase.pipelines.doing import why_not_warped
from polyphase.pipelines.draws import Chance, Corners, Draw, Draws, Shift, Uniform, whole_numbers
from polyphase.pipelines.given import (
    angle_range,
    centre_of,
    check_fill,
    check_probability,
    colour_of,
    interpolation_name,
    numbers_of,
)
from polyphase.pipelines.grids import (
    AffineGrid,
    PerspectiveGrid,
    expanded_size,
    inverse_affine,
    perspective_coefficients,
)
from polyphase.pipelines.picture import Picture
from polyphase.pipelines.vocabulary import Params, Transform


@dataclass(frozen=True)
class Warped(Transform):
    """What is sampled by a grid."""

    # It turns by right angles as by others.
    as_v1: bool = field(default=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "interpolation", interpolation_name(self.interpolation))  # type: ignore[attr-defined]
        check_fill(self.fill)  # type: ignore[attr-defined]
        centre = getattr(self, "center", None)
        if centre is not None:
            numbers_of(centre, "center", (2,))

    def why_not(self, picture: Picture) -> str | None:
        return why_not_warped(picture, self.interpolation, self.fill)  # type: ignore[attr-defined]

    def warp(self, picture: Picture, grid: AffineGrid | PerspectiveGrid) -> None:
        mode, fill = self.interpolation, self.fill  # type: ignore[attr-defined]
        picture.warp(grid, mode, colour_of(fill, picture.kind))


@dataclass(frozen=True)
class RandomRotation(Warped):
    """Turned by a random angle: between -`degrees` and `degrees`, or between two numbers. `expand`: to all of it."""

    degrees: Any
    interpolation: Any = "nearest"
    expand: bool = False
    center: Any = None
    fill: Any = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "degrees", angle_range(self.degrees, "degrees"))

    def draws(self) -> Draws:
        return (Uniform(*self.degrees),)

    def params(self, drawn: Iterator[float], height: int, width: int) -> Params:
        return {"angle": next(drawn)}

    def apply(self, picture: Picture, params: Params) -> None:
        height, width = picture.height, picture.width
        angle = params["angle"] if self.as_v1 else params["angle"] % 360
        if not self.as_v1 and self.center is None and angle in (0, 90, 180, 270):
            if angle == 0:
                picture.copies()
                return
            if angle == 180:
                picture.flip(-1)
                picture.flip(-2)
                return
            if self.expand or height == width:
                picture.by_torch(lambda image: torch.rot90(image, k=int(angle) // 90, dims=(-2, -1)))
                return
        matrix = inverse_affine(centre_of(self.center, height, width), -angle, (0.0, 0.0), 1.0, (0.0, 0.0))
        size = expanded_size(matrix, height, width) if self.expand else (height, width)
        self.warp(picture, AffineGrid(matrix, (height, width), size))


@dataclass(frozen=True)
class RandomAffine(Warped):
    """Turned, moved (`translate`: shares of width and height), scaled and sheared, each by a random amount."""

    degrees: Any
    translate: Any = None
    scale: Any = None
    shear: Any = None
    interpolation: Any = "nearest"
    fill: Any = 0
    center: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "degrees", angle_range(self.degrees, "degrees"))
        if self.shear is not None:
            object.__setattr__(self, "shear", angle_range(self.shear, "shear", (2, 4)))
        if self.translate is not None and not all(
            0.0 <= t <= 1.0 for t in numbers_of(self.translate, "translate", (2,))
        ):
            raise WrongArgumentError(f"translate={self.translate}; give shares of the width and height, from 0 to 1")
        if self.scale is not None and not all(s > 0 for s in numbers_of(self.scale, "scale", (2,))):
            raise WrongArgumentError(f"scale={self.scale}; give two numbers greater than 0")

    def draws(self) -> Draws:
        found: list[Draw] = [Uniform(*self.degrees)]
        if self.translate is not None:
            found.append(Shift(tuple(self.translate)))
        for two in (self.scale, self.shear and self.shear[:2], self.shear and self.shear[2:]):
            if two:
                found.append(Uniform(*two))
        return tuple(found)

    def params(self, drawn: Iterator[float], height: int, width: int) -> Params:
        angle, (across, down) = next(drawn), (0, 0) if self.translate is None else whole_numbers(drawn, 2)
        scale = 1.0 if self.scale is None else next(drawn)
        shear = [next(drawn) for _ in range(len(self.shear or ()) // 2)]
        return {"angle": angle, "translate": (across, down), "scale": scale, "shear": (*shear, 0.0, 0.0)[:2]}

    def apply(self, picture: Picture, params: Params) -> None:
        size = picture.height, picture.width
        centre = centre_of(self.center, *size)
        matrix = inverse_affine(centre, params["angle"], params["translate"], params["scale"], params["shear"])
        self.warp(picture, AffineGrid(matrix, size, size))


@dataclass(frozen=True)
class RandomPerspective(Warped):
    """Seen from a random angle, with probability `p`; `distortion_scale` is from 0 to 1."""

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: Any = "bilinear"
    fill: Any = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(self.p)
        if not 0 <= self.distortion_scale <= 1:
            raise WrongArgumentError(f"distortion_scale={self.distortion_scale}; give a number from 0 to 1")

    def draws(self) -> Draws:
        return (Chance(self.p, (Corners(self.distortion_scale),)),)

    def params(self, drawn: Iterator[float], height: int, width: int) -> Params | None:
        if not next(drawn):
            return None
        ends = [whole_numbers(drawn, 2) for _ in range(4)]
        corners = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        return {"coefficients": perspective_coefficients(corners, ends)}

    def apply(self, picture: Picture, params: Params) -> None:
        self.warp(picture, PerspectiveGrid(tuple(params["coefficients"]), (picture.height, picture.width)))
