"""A pipeline of one column of a batch, a dictionary of arrays, as Ray Data has them; nothing of Ray is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polyphase.errors import UnknownNameError, WrongImageError
from polyphase.pipelines.pipeline import fuse


class OnColumn:
    """A transform of the images in one column of a batch, a dictionary of numpy arrays; the others stay as they are.

    The column is one array (N, height, width, channels), or an array of N objects: images as arrays of their own sizes,
    or whatever the transform takes. They are read where they lie, which may be Arrow's memory. Results go to the column
    `to`, or back to the same: one array where all are of one size, else an array of objects. `on_error="skip"` leaves
    out the rows of images that cannot be done.

    To Ray Data an object is a function, done by tasks; the class is for actors, each of which reads the transform and
    remembers sizes once:

        dataset.map_batches(polyphase.OnColumn(transform, "image"))
        dataset.map_batches(polyphase.OnColumn, fn_constructor_args=(transform, "image"), concurrency=(1, 8))
    """

    def __init__(self, transform: Any, column: str, to: str | None = None, *, on_error: str = "raise") -> None:
        self.pipeline, self.column, self.to, self.on_error = fuse(transform), column, to or column, on_error

    def __call__(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        import numpy  # whoever has such columns has it

        if self.column not in columns:
            raise UnknownNameError("column", self.column, tuple(columns))
        images = list(columns[self.column])
        if not images:
            return {**columns, self.to: numpy.empty(0, dtype=object)}
        made, kept = self.pipeline.batch(images, as_list=None, on_error=self.on_error), None
        if self.on_error == "skip":
            made, mask = made
            kept = mask.numpy()
        rest = {name: column if kept is None else column[kept] for name, column in columns.items()}
        return rest | {self.to: _array(made) if isinstance(made, Tensor) else _objects(made)}


def _array(images: Tensor) -> Any:
    if images.dtype == torch.bfloat16:
        raise WrongImageError(
            "images become torch.bfloat16, which numpy does not have; end with ToDtype(torch.float16)"
        )
    return images.detach().cpu().numpy()


def _objects(images: list[Tensor]) -> Any:
    import numpy

    made = numpy.empty(len(images), dtype=object)
    for number, one in enumerate(images):  # numpy would look for one array in a list of them
        made[number] = _array(one)
    return made
