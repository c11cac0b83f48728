"""What eager does in some versions of torch that we support and not in others."""

from __future__ import annotations

import torch

#: `grid_sample` of volumes by `bicubic`; before, it is refused.
SAMPLES_VOLUMES_BY_BICUBIC = torch.__version__ >= "2.15"  # compared as versions, not as text
#: `interpolate` of images by `lanczos`, antialiased.
RESIZES_BY_LANCZOS = hasattr(torch.ops.aten, "_upsample_lanczos2d_aa")
#: Linear resizes of floats on the CPU, not antialiased, round a position once in every layout; from then on twice, but
#: not in all layouts, nor backward. Ours are rounded once, which is nearer to float64.
ROUNDS_LINEAR_POSITIONS_ONCE = torch.__version__ < "2.15"


def samples(mode: str, axes: int) -> bool:
    """Whether eager's `grid_sample` has a mode for so many axes."""
    return mode != "bicubic" or axes == 2 or SAMPLES_VOLUMES_BY_BICUBIC
