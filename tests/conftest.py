"""Kernels of tests are kept between runs in a directory of their own: not among the user's, and by all workers.

PyTorch where its own build ends the process.

torch 2.13 for ARM converts to half precision by instructions that not every such CPU has: the gradient of a float16 or
bfloat16 image that was resized by nearest, in channels-last memory, is a SIGILL there. Tests take it in float32 and
round it once, which is what those instructions would have done.
"""

from __future__ import annotations

import os
import platform
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKeySet
from torch._ops import OpOverload

from polyphase.cpu import isa

os.environ.setdefault("POLYPHASE_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"polyphase-tests-{os.geteuid()}"))

aten = torch.ops.aten

NEAREST_BACKWARD = (
    aten.upsample_nearest2d_backward.default,
    aten.upsample_nearest3d_backward.default,
    aten._upsample_nearest_exact2d_backward.default,
    aten._upsample_nearest_exact3d_backward.default,
)


def in_float32(op: OpOverload) -> Callable[..., Tensor]:
    own = torch.library.get_kernel(op, "CPU")

    def kernel(keys: DispatchKeySet, gradient: Tensor, *sizes: Any) -> Tensor:
        if gradient.dtype not in (torch.bfloat16, torch.float16):
            return own.call_boxed(keys, gradient, *sizes)  # type: ignore[no-any-return]
        return own.call_boxed(keys, gradient.float(), *sizes).to(gradient.dtype)  # type: ignore[no-any-return]

    return kernel


if platform.machine() == "aarch64" and "bf16" not in isa.features():
    mended = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"(?s).*Overriding a previously registered kernel")
        for op in NEAREST_BACKWARD:
            mended.impl(op, in_float32(op), "CPU", with_keyset=True, allow_override=True)
