"""Other libraries, where they are installed. They take one image, or its like, in the memory order they want."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from polyphase.bench.checks import PEER
from polyphase.bench.columns.base import Column
from polyphase.bench.libraries import imported
from polyphase.bench.operations import MEAN, STD, AffineWarp, Flip, PerspectiveWarp, Preprocess, Resize
from polyphase.bench.work import Call, Work
from polyphase.bench.workloads import Case


class Peer(Column):
    tolerance = PEER
    module: str

    @property
    def version(self) -> str:
        return str(imported(self.module.partition(".")[0]).__version__)

    @property
    def title(self) -> str:
        return self.heading if isinstance(self.library, str) else super().title

    @property
    def library(self) -> Any:
        return imported(self.module)

    def can_run(self, case: Case) -> str | None:
        if isinstance(self.library, str):
            return self.library
        if self.options.device != "cpu":
            return "CPU only"
        return self.refuses(case)

    def refuses(self, case: Case) -> str | None:
        raise NotImplementedError


class ArrayPeer(Peer):
    """A library of (height, width, channels) arrays."""

    def refuses(self, case: Case) -> str | None:
        (shape, *more) = case.shapes
        if more or shape[0] != 1 or case.backward:
            return "one image at a time"
        if case.layout != "CL":
            return "interleaved channels only"
        return self.refuses_image(case)

    def refuses_image(self, case: Case) -> str | None:
        raise NotImplementedError

    def tensors(self, result: object) -> tuple[Tensor, ...]:
        array = importlib.import_module("numpy").asarray(result)
        return (torch.from_numpy(array.copy()).permute(2, 0, 1)[None],)


def _array(work: Work) -> Any:
    return work.steps[0].inputs[0][0].permute(1, 2, 0).numpy()


class OpenCV(ArrayPeer):
    """Resizes without antialiasing, `area` apart."""

    heading = "OpenCV"
    module = "cv2"

    def refuses_image(self, case: Case) -> str | None:
        operation = case.operation
        if case.dtype not in ("u8", "f32"):
            return f"no {case.dtype}"
        if isinstance(operation, (Flip, PerspectiveWarp)):
            return None
        if isinstance(operation, AffineWarp):
            plain = operation.padding_mode == "zeros" and not operation.align_corners and operation.mode == "bilinear"
            return None if plain else "other borders or corners"
        if isinstance(operation, Resize):
            if operation.antialias:
                return "no antialiasing"
            if operation.mode not in ("bilinear", "nearest-exact") or operation.align_corners:
                return f"other {operation.mode}"
            return None
        return "no such operation"

    def make(self, work: Work) -> Call:
        cv2, operation, array = self.library, work.case.operation, _array(work)
        cv2.setNumThreads(self.options.threads)
        if isinstance(operation, Flip):
            code = {-1: 1, -2: 0}[operation.dim]
            return lambda: cv2.flip(array, code)
        height, width = array.shape[:2]
        if isinstance(operation, AffineWarp):
            matrix = operation.pixel_matrix(height, width).numpy()
            flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
            return lambda: cv2.warpAffine(array, matrix, (width, height), flags=flags)
        if isinstance(operation, PerspectiveWarp):
            matrix = operation.pixel_matrix(height, width).numpy()
            flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
            return lambda: cv2.warpPerspective(array, matrix, (width, height), flags=flags)
        assert isinstance(operation, Resize)
        rule = {"bilinear": cv2.INTER_LINEAR, "nearest-exact": cv2.INTER_NEAREST_EXACT}[operation.mode]
        size = operation.size[::-1]
        return lambda: cv2.resize(array, size, interpolation=rule)


class Pillow(ArrayPeer):
    """Resizes RGB bytes, always antialiased."""

    heading = "Pillow"
    module = "PIL.Image"
    simd = False

    def refuses_image(self, case: Case) -> str | None:
        if (".post" in self.version) != self.simd:
            return f"installed is {'Pillow' if self.simd else 'Pillow-SIMD'} {self.version}"
        operation = case.operation
        if not isinstance(operation, Resize) or not operation.antialias:
            return "antialiased resizing only"
        if case.dtype != "u8" or case.shapes[0][1] != 3:
            return "RGB bytes only"
        return None

    def make(self, work: Work) -> Call:
        pil, operation = self.library, work.case.operation
        assert isinstance(operation, Resize)
        picture, size = pil.fromarray(_array(work)), operation.size[::-1]
        rule = getattr(pil, operation.mode.upper())
        return lambda: picture.resize(size, rule)


class PillowSimd(Pillow):
    heading = "Pillow-SIMD"
    simd = True


class Torchvision(Peer):
    """Transforms v2."""

    heading = "torchvision"
    module = "torchvision.transforms.v2"

    def can_run(self, case: Case) -> str | None:
        return self.library if isinstance(self.library, str) else self.refuses(case)

    def refuses(self, case: Case) -> str | None:
        operation = case.operation
        if case.backward:
            return "no training"
        if isinstance(operation, Resize):
            if operation.align_corners or operation.mode not in ("bilinear", "bicubic", "nearest", "nearest-exact"):
                return f"other {operation.mode}"
            return None
        return None if isinstance(operation, (Flip, Preprocess)) else "no such operation"

    def make(self, work: Work) -> Call:
        transform, images = self._transform(work.case.operation), [step.inputs[0] for step in work.steps]
        if len(images) == 1:
            return lambda: transform(images[0])
        return lambda: [transform(image) for image in images]

    def _transform(self, operation: object) -> Any:
        v2 = self.library
        if isinstance(operation, Flip):
            return {-1: v2.functional.horizontal_flip, -2: v2.functional.vertical_flip}[operation.dim]
        if isinstance(operation, Resize):
            rule = v2.InterpolationMode(operation.mode)
            return v2.Resize(operation.size, rule, antialias=operation.antialias)
        assert isinstance(operation, Preprocess)
        return v2.Compose(
            [
                v2.Resize(operation.shorter, antialias=True),
                v2.CenterCrop(operation.crop),
                v2.RandomHorizontalFlip(1.0),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
            ]
        )
