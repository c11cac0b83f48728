"""A plugin of pytest, `-p tests.cuda.default_device`: tests that name no device run on the GPU.

Eager has no resizing of bytes there. The CPU's is what our kernels have to equal, so it stands in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

BYTES_ON_CPU = ("upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
LIBRARY = torch.library.Library("aten", "IMPL")


def _with_bytes(name: str) -> Callable[..., Tensor]:
    operator, on_gpu = getattr(torch.ops.aten, name).default, torch.library.get_kernel(f"aten::{name}", "CUDA")

    def run(keys: Any, image: Tensor, *options: Any) -> Tensor:
        if image.dtype == torch.uint8:
            result: Tensor = operator(image.cpu(), *options).to(image.device)
        else:
            result = on_gpu.call_boxed(keys, image, *options)
        return result

    return run


def pytest_configure() -> None:
    torch.set_default_device("cuda")
    for name in BYTES_ON_CPU:
        LIBRARY.impl(name, _with_bytes(name), "CUDA", with_keyset=True, allow_override=True)
