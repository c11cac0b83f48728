"""Calls that are like earlier ones find their kernel again, and calls that only look like them do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase.errors import PolyphaseError
from polyphase.ops.short_way import ShortWay, _cannot_change

X = torch.rand(2, 3, 8, 8)
GRID = torch.rand(2, 4, 4, 2)
THETA = torch.eye(2, 3).repeat(2, 1, 1)
MATRIX = torch.eye(3).repeat(2, 1, 1)
FIELD = torch.rand(2, 4, 5, 2)

CALLS: dict[str, Callable[[], Tensor]] = {
    "interpolate": lambda: P.interpolate(X, (4, 4), mode="bilinear"),
    "interpolate by a list": lambda: P.interpolate(X, [4, 4], mode="bilinear"),
    "interpolate by a factor": lambda: P.interpolate(X, scale_factor=2.0),
    "flip": lambda: P.flip(X, [-1]),
    "pad": lambda: P.pad(X, (1, 1), value=0.5),
    "grid_sample": lambda: P.grid_sample(X, GRID),
    "affine_sample": lambda: P.affine_sample(X, THETA, (2, 3, 4, 4)),
    "perspective_sample": lambda: P.perspective_sample(X, MATRIX, (2, 3, 4, 4)),
    "displacement_sample": lambda: P.displacement_sample(X, FIELD, fill=[0.1, 0.2, 0.3]),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_second_call_binds_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = CALLS[name]()

    def unexpected(*call: object) -> None:
        raise AssertionError("bound again")

    for bound in ("_bound", "_bound_to_any_size"):
        monkeypatch.setattr(ShortWay, bound, unexpected)
    for _ in range(3):
        assert torch.equal(CALLS[name](), first)


def test_what_is_equal_but_not_the_same() -> None:
    one = X[:, :, :1, :1]
    assert P.interpolate(one, 1).shape == (2, 3, 1, 1)
    for not_a_size in (1.0, True):
        with pytest.raises(PolyphaseError):
            P.interpolate(one, not_a_size)  # type: ignore[arg-type]
    for zero in (0.0, -0.0, 0.0):
        padded = P.pad(X, (1, 0), value=zero)[0, 0, 0, 0]
        assert torch.signbit(padded) == (str(zero) == "-0.0")
    assert P.grid_sample(X, GRID, align_corners=True).shape == (2, 3, 4, 4)
    with pytest.raises(PolyphaseError):
        P.grid_sample(X, GRID, align_corners=1)  # type: ignore[arg-type]


def test_a_list_that_changes() -> None:
    size = [4, 4]
    for n in (4, 5, 6):
        size[0] = n
        for _ in range(3):
            assert P.interpolate(X, size).shape == (2, 3, n, 4)


def test_numbers_of_other_libraries() -> None:
    size = (numpy.int64(4), numpy.int32(5))
    for _ in range(3):
        assert torch.equal(P.interpolate(X, size), F.interpolate(X, (4, 5)))
    for _ in range(3):
        assert torch.equal(P.interpolate(X, X.shape[2:]), X)
        assert torch.equal(P.interpolate(X, X.shape[:2]), F.interpolate(X, X.shape[:2]))
    scale = torch.tensor(2.0)
    for _ in range(3):
        assert P.interpolate(X, scale_factor=scale, mode="area").shape == (2, 3, 16, 16)  # type: ignore[arg-type]


def test_numbers_that_share_their_bytes() -> None:
    half = numpy.float32(0.5)
    for value in (half, half.view(numpy.int32), half):
        for _ in range(3):
            assert P.pad(X, (1, 0), value=value)[0, 0, 0, 0] == float(value)


def test_arguments_by_name_and_by_position() -> None:
    wanted = P.grid_sample(X, GRID, "nearest", align_corners=True)
    for _ in range(3):
        assert torch.equal(P.grid_sample(input=X, grid=GRID, mode="nearest", align_corners=True), wanted)
        assert torch.equal(P.grid_sample(X, grid=GRID, align_corners=True, mode="nearest"), wanted)
        assert torch.equal(P.grid_sample(X, GRID, "nearest", "zeros", True), wanted)
    assert torch.equal(P.flip(dims=(-1,), input=X), X.flip(-1))


def test_tensors_that_take_turns() -> None:
    """Other shapes, strides, dtypes and gradients, each in turn with the first."""
    others = [
        X[:, :, 1:],
        X.contiguous(memory_format=torch.channels_last),
        X.double(),
        X.clone().requires_grad_(),
        torch.randint(256, X.shape, dtype=torch.uint8),
    ]
    for _ in range(3):
        for other in others:
            for image in (X, other):
                ours = P.interpolate(image, (5, 6), mode="bilinear")
                torch.testing.assert_close(ours, F.interpolate(image, (5, 6), mode="bilinear"))
                assert ours.requires_grad == image.requires_grad


def test_parts_of_tensors_that_take_turns() -> None:
    """A kernel that is given views of a field, or a matrix in another dtype, is given those of this call's."""
    rows, columns = torch.meshgrid(torch.arange(4), torch.arange(5), indexing="ij")

    def eager(image: Tensor, field: Tensor) -> Tensor:
        wide = torch.float64 if field.dtype == torch.float64 else torch.float32
        places = torch.stack((columns, rows), dim=-1) + field.to(wide)
        return F.grid_sample(image.to(wide), (2 * places + 1) / 8 - 1, align_corners=False).to(image.dtype)

    fields = [
        FIELD,
        FIELD.clone().requires_grad_(),
        FIELD.movedim(-1, 1).contiguous().movedim(1, -1),
        FIELD[:1].expand(2, -1, -1, -1),
        FIELD.double(),
        FIELD.half(),
    ]
    for _ in range(3):
        for field in fields:
            for given in (FIELD, field):
                image = X.to(given.dtype)
                ours = P.displacement_sample(image, given)
                torch.testing.assert_close(ours, eager(image, given))
                assert ours.requires_grad == given.requires_grad
                matrix = MATRIX.to(given.dtype)
                torch.testing.assert_close(P.perspective_sample(image, matrix, X.shape), image, atol=1e-3, rtol=0)


def test_the_very_objects_of_the_call_before() -> None:
    """By which it is found without a look at what they are; a list that has changed is the very object too."""
    size, mode, inside = (5, 6), "bilinear", ([5, 6],)
    for _ in range(3):
        assert P.interpolate(X, size, mode=mode).shape == (2, 3, 5, 6)
    assert P.interpolate(X[..., 1:], size, mode=mode).shape == (2, 3, 5, 6)
    assert P.interpolate(X, size, mode="nearest").equal(F.interpolate(X, size, mode="nearest"))
    assert _cannot_change((size, mode, None))
    assert not _cannot_change((inside, mode))
