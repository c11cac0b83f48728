"""For people who serve a model: JPEG files to one batch, on a GPU where there is one, and how long each part takes.

`python examples/decode_and_preprocess.py FILE ...`. Files are decoded many at a time, on the GPU by torchvision where
it can, else by Pillow; the images, which are of any sizes, become one batch there, without a way back.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import polyphase
from polyphase import transforms as T

PIPELINE = polyphase.fuse(
    [
        T.Resize(256),
        T.CenterCrop(224),
        T.ToDtype(torch.float32, scale=True),
        T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)


def decoded(files: Sequence[bytes], device: str) -> list[Tensor]:
    """Images (3, height, width) of bytes."""
    if device == "cuda":
        try:
            from torchvision.io import ImageReadMode, decode_jpeg

            data = [torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in files]
            return list(decode_jpeg(data, ImageReadMode.RGB, device=device))  # all by one call
        except (ImportError, RuntimeError) as error:
            print(f"decoded by Pillow: {error}")
    return [_by_pillow(one).to(device) for one in files]


def _by_pillow(file: bytes) -> Tensor:
    from PIL import Image

    image = Image.open(io.BytesIO(file)).convert("RGB")
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return pixels.view(image.height, image.width, 3).permute(2, 0, 1)


def batch(images: Sequence[Tensor]) -> Tensor:
    """(N, 3, 224, 224), on the images' device."""
    made: Tensor = PIPELINE.batch(images, channels_last=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("files", nargs="+", type=Path)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    files = [one.read_bytes() for one in parser.parse_args().files]
    batch(decoded(files, device))  # the first call loads kernels
    start = time.perf_counter()
    images = decoded(files, device)
    done = time.perf_counter()
    made = batch(images)
    first = made[0, :, 0, 0].tolist()  # waits for the device
    parts = f"decoding {1e3 * (done - start):.1f} ms, preprocessing {1e3 * (time.perf_counter() - done):.1f} ms"
    print(f"{tuple(made.shape)} of {made.dtype} on {made.device}: {parts}; the first pixel is {first}")


if __name__ == "__main__":
    main()
