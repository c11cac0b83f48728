"""From the arguments of a call to what it asks for, with every check the call has to pass.

Pure functions of shapes, dtypes and numbers. A mistake raises the exception that eager raises for the same call, with a
message that names what was seen, what is allowed and the fix.
"""

from polyphase.arguments.filling import fill_numbers
from polyphase.arguments.integers import are_known, switch
from polyphase.arguments.resampling import (
    FILTERS,
    Maps,
    border_value,
    flip_maps,
    pad_amounts,
    pad_maps,
    rectangle,
    resize_maps,
)
from polyphase.arguments.warping import (
    affine_size,
    affine_warp,
    check_shrinking,
    check_theta,
    corners_are_aligned,
    displacement_warp,
    grid_warp,
    image_size,
    map_scales,
    perspective_warp,
    pixel_matrix_rows,
    warp_options,
)

__all__ = [
    "FILTERS",
    "Maps",
    "affine_size",
    "affine_warp",
    "are_known",
    "border_value",
    "check_shrinking",
    "check_theta",
    "corners_are_aligned",
    "displacement_warp",
    "fill_numbers",
    "flip_maps",
    "grid_warp",
    "image_size",
    "map_scales",
    "pad_amounts",
    "pad_maps",
    "perspective_warp",
    "pixel_matrix_rows",
    "rectangle",
    "resize_maps",
    "switch",
    "warp_options",
]
