"""Grids that libraries compute, read as functions of the pixel: what of, what for, and when not."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule

import polyphase
import polyphase.functional as P
from polyphase.calls import plain_torch
from polyphase.compile.grids import without_grids
from polyphase.compile.reasons import NotFused, Why
from polyphase.ops.warp import by_formula
from polyphase.sampling.formulas import Formula, is_smooth, slope
from polyphase.sampling.pointwise import Binary, Constant, Entry, Number, Place, Select, Unary, nodes_of
from polyphase.sampling.text import from_text, to_text
from polyphase.sampling.warps import Warp
from tests.compile import spellings
from tests.compile.running import check_gradients, compiled, elements_saved, launches, same

Function = Callable[..., Tensor]

MATRIX = torch.tensor([[0.9137, 0.1291, 0.0533], [-0.1117, 1.0513, 0.0217], [0.0113, 0.0219, 1.0]], dtype=torch.float64)
SIZE = (13, 17)


def image(batch: int = 2, size: tuple[int, ...] = SIZE, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(batch, 3, *size, dtype=dtype)


def arguments(function: Function, batch: int = 2, size: tuple[int, int] = SIZE) -> list[Tensor]:
    several = MATRIX.repeat(batch, 1, 1)
    height, width = size
    others: dict[Any, list[Tensor]] = {
        spellings.rotated: [MATRIX[None, :2] * torch.tensor([1.0, 1.0, 3.0])],
        spellings.in_perspective: [MATRIX[None]],
        spellings.displaced: [torch.rand(1, *size, 2, dtype=torch.float64) / 8],
        spellings.by_homography: [several],
        spellings.remapped: [torch.rand(batch, *size, dtype=torch.float64) * (n - 1) for n in (width, height)],
        spellings.by_matrix: [several[:, :2]],
        spellings.by_einsum: [several[:, :2]],
        spellings.undistorted: [torch.linspace(0.1, 0.2, batch, dtype=torch.float64)],
    }
    return [image(batch, size), *others[function]]


SPELLINGS = [
    *(spellings.rotated, spellings.in_perspective, spellings.displaced, spellings.by_homography, spellings.remapped),
    *(spellings.by_matrix, spellings.by_einsum, spellings.undistorted),
]
BY_MATRIX = (spellings.rotated, spellings.by_matrix, spellings.by_einsum)


class Read:
    """A backend that runs Dynamo's graph without its grids, formulas by the plain twin: no kernel has to be built."""

    def __init__(self) -> None:
        self.left: tuple[NotFused, ...] = ()
        self.formulas: list[Warp] = []
        self.matrices = self.samplers = 0

    def __call__(self, graph: GraphModule, inputs: object) -> Callable[..., object]:
        before = [str(node) for node in graph.graph.nodes]
        self.left = without_grids(graph)
        for node in graph.graph.nodes:
            self.matrices += node.target is torch.ops.polyphase.affine_sample.default
            self.samplers += node.target in (F.grid_sample, torch.grid_sampler, torch.ops.polyphase.grid_sample)
            if node.target is torch.ops.polyphase.formula_warp.default:
                self.formulas.append(from_text(node.args[3]))
                node.target = _by_torch
        if self.left and not self.formulas and not self.matrices:
            assert before == [str(node) for node in graph.graph.nodes], "it is as it was"
        graph.recompile()
        return graph.forward


def _by_torch(image: Tensor, entries: Tensor, fields: list[Tensor], warp: str, sizes: Any) -> Tensor:
    return plain_torch.warp(image, entries, by_formula(warp, sizes), *fields)


@pytest.mark.parametrize("function", SPELLINGS)
def test_values_and_gradients(function: Function) -> None:
    read = Read()
    check_gradients(function, *arguments(function), run=torch.compile(function, backend=read))
    assert not read.left
    assert read.samplers == 0
    assert (read.matrices, len(read.formulas)) == ((1, 0) if function in BY_MATRIX else (0, 1))


def scaled_in_place(x: Tensor, flow: Tensor) -> Tensor:
    grid = torch.zeros_like(flow)
    grid[..., 0] += torch.linspace(-1, 1, flow.shape[2], dtype=x.dtype)
    grid[..., 1].copy_(torch.linspace(-1, 1, flow.shape[1], dtype=x.dtype)[:, None])
    grid[..., 0].mul_(0.9).add_(flow[..., 1])
    return F.grid_sample(x, grid, align_corners=False)


def seen_in_part(x: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
    grid = flow * 0.5
    row = grid[..., 0].mul_(2)
    return F.grid_sample(x, grid, align_corners=False), row


def scaled_in_a_small_part(x: Tensor, flow: Tensor) -> Tensor:
    """What is written to is as small as a matrix."""
    grid = torch.zeros(2, 8, 8, 2, dtype=x.dtype)
    grid[..., 0] += flow.mean(-1)[:, :8, :8]
    grid[..., 1] = torch.linspace(-1, 1, 8, dtype=x.dtype)
    grid[:, :, :, 0].mul_(0.5)
    return F.grid_sample(x, grid, align_corners=False)


def written_by_others(x: Tensor, flow: Tensor) -> Tensor:
    grid = flow * 0.5
    grid[..., 0].tanh_()
    return F.grid_sample(x, grid + 0.1, align_corners=False)


def read_by_another_grid(x: Tensor, flow: Tensor) -> Tensor:
    grid = flow * 0.5
    return F.grid_sample(x, grid, align_corners=False) + F.grid_sample(x, grid * 0.9, align_corners=False)


def beside_one_that_stays(x: Tensor, flow: Tensor) -> Tensor:
    """Which is not tried again, and has its reason all the same."""
    return written_by_others(x, flow) + read_by_another_grid(x, flow)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        *((scaled_in_place, []), (seen_in_part, [Why.NOT_ALONE]), (scaled_in_a_small_part, [])),
        *((written_by_others, [Why.MUTATION_BETWEEN]), (read_by_another_grid, [])),
        (beside_one_that_stays, [Why.MUTATION_BETWEEN]),
    ],
)
def test_a_grid_that_is_written_part_by_part(function: Function, why: list[Why]) -> None:
    """Its parts are read by what writes to them; that is no reason to make it."""
    read, tensors = Read(), (image(), torch.rand(2, *SIZE, 2, dtype=torch.float64))
    check_gradients(function, *tensors, run=torch.compile(function, backend=read))
    assert [one.why for one in read.left] == why


def test_numbers_in_the_code_are_numbers_of_the_formula() -> None:
    """What they are computed to, and written into, besides: nothing of a matrix is left in memory."""

    def function(x: Tensor) -> Tensor:
        matrix = torch.tensor(MATRIX.tolist(), dtype=torch.float64)
        matrix[:2].div_(torch.tensor([[1.5], [0.75]], dtype=torch.float64))
        return spellings.by_homography(x, matrix.expand(2, 3, 3))

    read, x = Read(), image()
    same(torch.compile(function, backend=read)(x), function(x))
    (warp,) = read.formulas
    assert warp.formula is not None
    assert len(warp.formula.numbers) >= 6
    assert not any(isinstance(one, Entry) for axis in warp.formula.axes for one in nodes_of(axis))


@pytest.mark.parametrize("given", [{"data": [2.0]}, {"data": [math.inf]}, [math.nan]], ids=["named", "inf", "nan"])
def test_numbers_in_the_code_that_are_unusual(given: Any) -> None:
    """Given by name, or not finite: eager's picture all the same."""

    def function(x: Tensor) -> Tensor:
        scale = torch.tensor(**given, dtype=x.dtype) if isinstance(given, dict) else torch.tensor(given, dtype=x.dtype)
        return spellings.by_homography(x, MATRIX.repeat(2, 1, 1) * scale)

    read, x = Read(), image()
    torch.testing.assert_close(torch.compile(function, backend=read)(x), function(x), equal_nan=True)
    assert read.samplers == 0


def test_volumes() -> None:
    read = Read()
    tensors = image(1, (5, 6, 7)), torch.rand(1, 3, 5, 6, 7, dtype=torch.float64)
    check_gradients(spellings.of_a_volume, *tensors, run=torch.compile(spellings.of_a_volume, backend=read))
    assert [len(one.size) for one in read.formulas] == [3]


@pytest.mark.parametrize("function", [spellings.remapped, spellings.by_einsum])
def test_symbolic_sizes(function: Function) -> None:
    """torch.linspace and others that take no symbolic size make constants of it, whoever compiles."""
    read = Read()
    run = torch.compile(function, backend=read)
    for size in ((13, 17), (15, 12), (9, 20)):
        tensors = arguments(function, 3, size)
        same(run(*tensors), function(*tensors))
    assert (read.matrices, len(read.formulas)) == ((2, 0) if function in BY_MATRIX else (0, 2)), "two graphs for all"


def _pixels(x: Tensor) -> tuple[Tensor, Tensor]:
    h, w = x.shape[-2:]
    column, row = torch.arange(w, dtype=x.dtype), torch.arange(h, dtype=x.dtype)
    return column.expand(h, w), row[:, None].expand(h, w)


def by_a_remainder(x: Tensor, flow: Tensor) -> Tensor:
    """Which is 0 for some sizes."""
    column, row = _pixels(x)
    rest = torch.full(x.shape[-2:], x.shape[-2] % 4, dtype=x.dtype)
    grid = torch.stack([torch.where(rest > 0, column, column + 1), row], -1) / 10 - 1
    return F.grid_sample(x, grid + flow[:, 3:-3, 2:-1], align_corners=True)


def by_a_difference(x: Tensor, flow: Tensor) -> Tensor:
    """Which is negative for some sizes."""
    column, row = _pixels(x)
    less = torch.full(x.shape[-2:], (x.shape[-2] - 20) // 2, dtype=x.dtype)
    grid = torch.stack([torch.where(less > 0, column, column + 1), row], -1) / 10 - 1
    return F.grid_sample(x, grid + flow[:, 3:-3, 2:-1], align_corners=True)


def by_the_middle(x: Tensor, flow: Tensor) -> Tensor:
    height, width = x.shape[-2:]
    top, left = (flow.shape[1] - height) // 2, (flow.shape[2] - width) // 2
    grid = torch.stack(_pixels(x), -1) / 10 - 1 + flow[:, top : top + height, left : left + width]
    return F.grid_sample(x, grid, align_corners=True)


def by_a_row_from_the_end(x: Tensor, flow: Tensor) -> Tensor:
    row = flow[:, -2 * (x.shape[-2] // 2) :][:, :1, : x.shape[-1]]
    return F.grid_sample(x, torch.stack(_pixels(x), -1) / 10 - 1 + row, align_corners=True)


@pytest.mark.parametrize("function", [by_a_remainder, by_a_difference, by_the_middle, by_a_row_from_the_end])
def test_what_symbolic_sizes_make(function: Function) -> None:
    read = Read()
    run = torch.compile(function, backend=read, dynamic=True)
    for height, width in ((9, 11), (24, 13), (8, 20)):
        x, flow = image(2, (height, width)), torch.rand(2, height + 6, width + 3, 2, dtype=torch.float64)
        same(run(x, flow), function(x, flow))
    is_compared = function in (by_a_remainder, by_a_difference)
    assert [one.why for one in read.left] == ([Why.NOT_A_FORMULA] if is_compared else [])


def test_numbers_are_no_part_of_a_kernel() -> None:
    """Sizes of one graph and of another give the same expressions."""
    found = []
    for size in ((13, 17), (15, 12)):
        read = Read()
        torch._dynamo.reset()
        torch.compile(spellings.displaced, backend=read)(*arguments(spellings.displaced, 2, size))
        found.append(read.formulas[0].formula)
    first, second = (one for one in found if one is not None)
    assert first.axes == second.axes
    assert first.numbers != second.numbers


# ---- steps


def in_blocks(column: Tensor, length: int) -> Tensor:
    return torch.floor(column / length) * length


def folded(column: Tensor, length: int) -> Tensor:
    return torch.where(column / length < 1, column, length - column)


@pytest.mark.parametrize("function", [in_blocks, folded])
def test_a_step_is_taken_where_it_is_written(function: Callable[[Tensor, int], Tensor]) -> None:
    """49 / 49 is 1, but 49 times 1 / 49, rounded, is less."""
    read, width = Read(), 100

    def moved(x: Tensor) -> Tensor:
        column = function(torch.arange(width, dtype=x.dtype), 49)
        grid = torch.stack([(column * 2 + 1) / width - 1, torch.zeros(width, dtype=x.dtype)], -1)
        return F.grid_sample(x, grid.expand(2, 5, width, 2), align_corners=False)

    x = image(2, (5, width))
    same(torch.compile(moved, backend=read)(x), moved(x))
    assert len(read.formulas) == 1


def in_another_dtype(length: int) -> Tensor:
    return torch.floor(torch.arange(length, dtype=torch.float32) * 0.01 * 100).double()


def of_numbers(length: int) -> Tensor:
    """7.0 in float32, but 0.7 as float32 has it is less."""
    return torch.arange(length) * torch.floor(torch.tensor(0.7) * 10) / 8


def of_evenly_spaced(length: int) -> Tensor:
    return torch.floor(torch.linspace(0, 1, length, dtype=torch.float64) * (length - 1))


def of_numbers_in_the_dtype(length: int) -> Tensor:
    number = torch.floor(torch.tensor(0.29, dtype=torch.float64) * 100)  # 28, though 0.29 times 100 is 29
    return torch.arange(length, dtype=torch.float64) * number / 28


@pytest.mark.parametrize(
    ("column", "why"),
    [
        *((in_another_dtype, [Why.ANOTHER_DTYPE]), (of_numbers, [Why.ANOTHER_DTYPE])),
        *((of_evenly_spaced, [Why.NOT_A_FORMULA]), (of_numbers_in_the_dtype, [])),
    ],
)
def test_a_step_is_taken_as_its_dtype_rounds(column: Callable[[int], Tensor], why: list[Why]) -> None:
    read, width = Read(), 100

    def moved(x: Tensor) -> Tensor:
        grid = torch.stack([(column(width) * 2 + 1) / width - 1, torch.zeros(width, dtype=x.dtype)], -1)
        return F.grid_sample(x, grid.to(x.dtype).expand(2, 5, width, 2), align_corners=False)

    x = image(2, (5, width))
    same(torch.compile(moved, backend=read)(x), moved(x))
    assert [one.why for one in read.left] == why


def test_what_is_computed_in_float64_is_not_computed_in_less() -> None:
    """Differences of large numbers, such as places on a map."""

    def moved(x: Tensor, origin: Tensor) -> Tensor:
        places = (origin[:, None, None, None].expand(2, *SIZE, 2) - 1e9).float()
        base = F.affine_grid(torch.eye(2, 3).expand(2, 2, 3), list(x.shape), align_corners=False)
        return F.grid_sample(x, base + places, align_corners=False)

    read, x = Read(), image(dtype=torch.float32)
    origin = torch.tensor([1e9 + 0.25, 1e9 - 0.125], dtype=torch.float64)
    same(torch.compile(moved, backend=read)(x, origin), moved(x, origin))
    assert [one.why for one in read.left] == [Why.ANOTHER_DTYPE]


def test_a_root_of_a_negative_number_is_nan() -> None:
    def moved(x: Tensor) -> Tensor:
        base = F.affine_grid(torch.eye(2, 3, dtype=x.dtype).expand(2, 2, 3), list(x.shape), align_corners=False)
        return F.grid_sample(x, base * torch.sqrt(torch.tensor(-1.0, dtype=x.dtype)), align_corners=False)

    read, x = Read(), image()
    torch.testing.assert_close(torch.compile(moved, backend=read)(x), moved(x), equal_nan=True)
    assert read.samplers == 0


def test_small_factors_count() -> None:
    """A grid in small units, by a matrix with large ones."""

    def moved(x: Tensor, matrix: Tensor) -> Tensor:
        y, column = torch.meshgrid(*(torch.linspace(-1, 1, n, dtype=x.dtype) for n in SIZE), indexing="ij")
        return F.grid_sample(x, torch.stack([column, y], -1) * 1e-13 * matrix[:, :1, None, None], align_corners=True)

    read, tensors = Read(), (image(), torch.tensor([[0.9e13], [0.8e13]], dtype=torch.float64))
    same(torch.compile(moved, backend=read)(*tensors), moved(*tensors))
    assert read.matrices == 1


@pytest.mark.parametrize("value", [-1.0, 1.0])
def test_a_division_by_nothing_has_a_sign(value: float) -> None:
    def moved(x: Tensor, given: Tensor) -> Tensor:
        nothing = torch.zeros(2, *SIZE, 2, dtype=x.dtype) * given
        return F.grid_sample(x, nothing.neg().reciprocal().clamp(-0.5, 0.5), align_corners=False)

    read, tensors = Read(), (image(), torch.tensor([value], dtype=torch.float64))
    same(torch.compile(moved, backend=read)(*tensors), moved(*tensors))
    assert [one.why for one in read.left] == [Why.DIVIDED_BY_ZERO]


# ---- values that images have


def scaled(values: Callable[[Tensor], Tensor]) -> Function:
    """By what is made of an image's value, which is as large as a grid."""

    def function(x: Tensor, value: Tensor) -> Tensor:
        y, column = torch.meshgrid(*(torch.linspace(-1, 1, n, dtype=x.dtype) for n in SIZE), indexing="ij")
        return F.grid_sample(
            x, torch.stack([column, y], -1) * values(value[:, None, None, None].expand(2, *SIZE, 1)), align_corners=True
        )

    return function


def inverse(value: Tensor) -> Tensor:
    """Never of 0, so that 0 has a slope."""
    far = value.abs() > 1e-8
    return torch.where(far, 1 / torch.where(far, value, torch.ones_like(value)), torch.ones_like(value))


OF_IMAGES: dict[str, tuple[Callable[[Tensor], Tensor], list[Why]]] = {
    "clamped": (lambda value: value.clamp(0.41, 0.77), []),
    "the least": (lambda value: torch.minimum(value, torch.full_like(value, 0.77)), []),
    "turned round": (lambda value: torch.where(value > 0.6, torch.full_like(value, 0.9), -0.7), []),
    "inverse": (inverse, []),
}


@pytest.mark.parametrize("name", OF_IMAGES)
@pytest.mark.parametrize("value", [0.0, 0.57, 0.77])
def test_values_of_images(name: str, value: float) -> None:
    """In the matrix that is made of them. What has kinks is none where gradients are needed: at 0.77, a clamp has
    another slope than a minimum."""
    read, function = Read(), scaled(OF_IMAGES[name][0])
    x, values = image(), torch.tensor([0.83, value], dtype=torch.float64)
    same(torch.compile(function, backend=read)(x, values), function(x, values))
    assert (read.matrices, read.left) == (1, ())
    torch._dynamo.reset()
    has_kinks, read = name in ("clamped", "the least"), Read()
    if name != "turned round":
        check_gradients(function, x, values, run=torch.compile(function, backend=read))
        assert [one.why for one in read.left] == ([Why.NOT_SMOOTH] if has_kinks else [])


# ---- parts of tensors


def test_a_slice_from_before_the_beginning() -> None:
    def function(x: Tensor, flow: Tensor) -> Tensor:
        return F.grid_sample(x, flow[..., -100:][:, -100 : SIZE[0]] * 0.5, align_corners=False)

    read, tensors = Read(), (image(), torch.rand(2, SIZE[0] + 3, SIZE[1], 2, dtype=torch.float64))
    check_gradients(function, *tensors, run=torch.compile(function, backend=read))
    assert len(read.formulas) == 1


def of_an_inner_part(x: Tensor, flow: Tensor) -> Tensor:
    """Of a displacement that is larger than the image, batch included."""
    part = flow[1:, 2:-1, :-3]
    base = F.affine_grid(torch.eye(2, 3, dtype=x.dtype).expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, base + part * 0.1, align_corners=False)


def by_some_matrices(x: Tensor, matrices: Tensor) -> Tensor:
    """The last of several, and all but the last."""
    return spellings.by_matrix(spellings.by_matrix(x, matrices[-1:]), matrices[:-1])


@pytest.mark.parametrize(
    ("function", "shape"), [(of_an_inner_part, (3, SIZE[0] + 3, SIZE[1] + 3, 2)), (by_some_matrices, (3, 2, 3))]
)
def test_parts_of_tensors(function: Function, shape: tuple[int, ...]) -> None:
    read, tensors = Read(), (image(), torch.rand(shape, dtype=torch.float64))
    check_gradients(function, *tensors, run=torch.compile(function, backend=read))
    assert (read.samplers, read.left) == (0, ())


# ---- calls


def by_numbers(x: Tensor, theta: Tensor) -> Tensor:
    return torch.grid_sampler(x, F.affine_grid(theta, list(x.shape), align_corners=False) * 0.9, 0, 1, False)


def by_our_own(x: Tensor, theta: Tensor) -> Tensor:
    return P.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False) * 0.9, "nearest", "reflection")


@pytest.mark.parametrize("function", [by_numbers, by_our_own])
def test_whoever_samples(function: Function) -> None:
    read = Read()
    tensors = image(), MATRIX[:2].repeat(2, 1, 1)
    same(torch.compile(function, backend=read)(*tensors), function(*tensors))
    assert (read.samplers, read.matrices) == (0, 1)


# ---- when not


def a_grid(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, grid, align_corners=False)


def a_turned_grid(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, grid.transpose(1, 2), align_corners=False)


def blurred(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, F.avg_pool2d(grid.permute(0, 3, 1, 2), 3, 1, 1).permute(0, 2, 3, 1), align_corners=False)


def by_the_number(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, grid + torch.arange(2).reshape(2, 1, 1, 1), align_corners=False)


def returned(x: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
    grid = grid * 0.5
    return F.grid_sample(x, grid, align_corners=False), grid


def clamped(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, (grid * 2).clamp(-1, 1), align_corners=False)


def halved(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, (grid.half() * 0.5).to(x.dtype), align_corners=False)


def written(x: Tensor, grid: Tensor) -> Tensor:
    scaled = grid * 0.5
    grid.mul_(0)
    return F.grid_sample(x, scaled, align_corners=False)


def rectified(x: Tensor, grid: Tensor) -> Tensor:
    scaled = grid * 0.5
    F.relu(grid, True)
    return F.grid_sample(x, scaled, align_corners=False)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        *((a_grid, None), (a_turned_grid, None), (blurred, None)),
        *((returned, Why.NOT_ALONE), (clamped, Why.NOT_SMOOTH), (halved, Why.ANOTHER_DTYPE)),
        *((written, Why.MUTATION_BETWEEN), (rectified, Why.MUTATION_BETWEEN), (by_the_number, Why.NOT_A_FORMULA)),
    ],
)
def test_refusals(function: Function, why: Why | None) -> None:
    read = Read()
    x, grid = image(), (torch.rand(2, *SIZE, 2, dtype=torch.float64) * 2 - 1).requires_grad_(function is clamped)
    run = torch.compile(function, backend=read)
    same(run(x, grid.detach().clone().requires_grad_(grid.requires_grad)), function(x, grid.detach().clone()))
    assert read.samplers == 1
    assert [one.why for one in read.left] == ([] if why is None else [why])


def _written_into(made: Callable[..., Tensor]) -> Callable[[], Tensor]:
    """What is made of a row, as integers."""

    def function() -> Tensor:
        integers = torch.zeros(SIZE[1], dtype=torch.int64)
        integers[:] = made(torch.arange(SIZE[1]))
        return integers

    return function


ROUNDED: dict[str, Callable[[], Tensor]] = {
    "written": _written_into(lambda row: row * 0.7),
    "filled": lambda: torch.empty(SIZE[1], dtype=torch.int64).fill_(1.7),
    "full": lambda: torch.full(SIZE[1:], 1.7, dtype=torch.int64),
    "a scalar": lambda: torch.scalar_tensor(1.7, dtype=torch.int64).expand(SIZE[1]),
    "arange": lambda: torch.arange(0.5, SIZE[1], dtype=torch.int64),
    "linspace": lambda: torch.linspace(0, 11, SIZE[1], dtype=torch.int64),
    "truth values added": lambda: (torch.arange(SIZE[1]) > 3) + (torch.arange(SIZE[1]) > 7),
    "integers as truth values": lambda: torch.arange(SIZE[1]).bool(),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_integers_and_truth_values_are_rounded(name: str) -> None:
    def function(x: Tensor) -> Tensor:
        row = ROUNDED[name]().to(x.dtype) / 8 - 1
        grid = torch.stack([row.expand(SIZE), torch.linspace(-1, 1, SIZE[0], dtype=x.dtype)[:, None].expand(SIZE)], -1)
        return F.grid_sample(x, grid.expand(len(x), -1, -1, -1), align_corners=False)

    read, x = Read(), image()
    same(torch.compile(function, backend=read)(x), function(x))
    assert [one.why for one in read.left] == [Why.NOT_A_FORMULA]


def test_steps_are_fine_without_gradients() -> None:
    read = Read()
    x, grid = image(), torch.rand(2, *SIZE, 2, dtype=torch.float64) * 2 - 1
    same(torch.compile(clamped, backend=read)(x, grid), clamped(x, grid))
    assert len(read.formulas) == 1


def detached(x: Tensor, matrix: Tensor) -> Tensor:
    return spellings.by_homography(x, matrix.detach() * 1.0) + spellings.by_homography(x, matrix)


def without_gradient(x: Tensor, matrix: Tensor) -> Tensor:
    with torch.no_grad():
        theta = matrix * 2 - matrix
    return spellings.by_homography(x, theta) + matrix.sum()


@pytest.mark.parametrize("function", [detached, without_gradient])
def test_gradients_end_where_they_are_ended(function: Function) -> None:
    tensors = arguments(spellings.by_homography)
    check_gradients(function, *tensors, run=torch.compile(function, backend=Read()))


def test_many_values_are_refused() -> None:
    def splines(image: Tensor, weights: Tensor) -> Tensor:
        y, x = (torch.linspace(-1, 1, n, dtype=image.dtype) for n in SIZE)
        terms = [weights[:, k, None, None] * (x + y[:, None] - k) ** 2 for k in range(40)]
        total = torch.stack([reduce(torch.add, one) for one in (terms[:20], terms[20:])], -1)
        return F.grid_sample(image, total, align_corners=False)

    read = Read()
    torch.compile(splines, backend=read)(image(), torch.rand(2, 40, dtype=torch.float64))
    assert [one.why for one in read.left] == [Why.TOO_MANY_INPUTS]


def iterated(times: int) -> Function:
    """Each step needs the one before several times."""

    def function(image: Tensor, strength: Tensor) -> Tensor:
        y, x = torch.meshgrid(*(torch.linspace(-1, 1, n, dtype=image.dtype) for n in SIZE), indexing="ij")
        scale = torch.ones_like(x)
        for _ in range(times):
            scale = 1 / (1 + strength[:, None, None] * (x * x + y * y) * scale * scale)
        return F.grid_sample(image, torch.stack([x * scale, y * scale], -1), align_corners=True)

    return function


def shifted(times: int) -> Function:
    """As deep as it is long."""

    def function(image: Tensor, strength: Tensor) -> Tensor:
        y, x = torch.meshgrid(*(torch.linspace(-1, 1, n, dtype=image.dtype) for n in SIZE), indexing="ij")
        x = x * strength[:, None, None]
        for number in range(times):
            x = (x + number / 1000).abs() * (1 - number / 999)
        return F.grid_sample(image, torch.stack([x, y.expand_as(x)], -1), align_corners=True)

    return function


@pytest.mark.parametrize(
    ("made", "times", "why"),
    [
        *((iterated, 3, None), (iterated, 25, Why.LONG_FORMULA)),
        *((shifted, 15, None), (shifted, 20, Why.TOO_MANY_INPUTS), (shifted, 300, Why.LONG_FORMULA)),
    ],
)
def test_long_formulas_are_refused(made: Callable[[int], Function], times: int, why: Why | None) -> None:
    function = made(times)
    read, tensors = Read(), (image(), torch.tensor([0.1, 0.2], dtype=torch.float64))
    same(torch.compile(function, backend=read)(*tensors), function(*tensors))
    assert [one.why for one in read.left] == ([] if why is None else [why])


# ---- selecting, which formulas do besides


def test_select() -> None:
    x, threshold = Binary("mul", Entry(0), Place(1)), Constant(0)
    chosen = Select(Unary("abs", x), threshold, Binary("div", Number(1.0), x), Number(0.5))
    formula = Formula((chosen, Place(0)), (0.5,))
    warp = Warp("formula", size=(3, 4), formula=formula)
    assert from_text(to_text(warp)) == warp
    assert is_smooth(formula)
    assert not is_smooth(Formula((Unary("floor", chosen), Place(0)), (0.5,)))
    assert isinstance(slope(chosen, Entry(0)), Select)
    assert slope(chosen, Entry(1)) == Number(0.0)
    pixels, entries = torch.rand(1, 1, 5, 6, dtype=torch.float64), torch.tensor([[0.3]], dtype=torch.float64)
    got = torch.ops.polyphase.formula_warp(pixels, entries, [], to_text(warp), None)
    torch.testing.assert_close(got, plain_torch.warp(pixels, entries, warp))


# ---- compiled


def normalised(x: Tensor, theta: Tensor) -> Tensor:
    warped = spellings.in_perspective(x.float(), theta)
    return (warped.round().clamp(0, 255) / 255 - 0.5) * 2


@pytest.mark.inductor
def test_one_kernel_with_the_arithmetic_around() -> None:
    x = torch.randint(0, 256, (2, 3, *SIZE), dtype=torch.uint8)
    theta = MATRIX[None].float()
    run = compiled(normalised)
    run(x, theta)
    got, launched = launches(run, x, theta)
    assert launched == 1
    assert (got - normalised(x, theta)).abs().max() <= 2 / 255 + 1e-6  # a tie may round the other way
    found = polyphase.explain(normalised)(x, theta)
    (kernel,) = found.graphs[0].ours
    assert kernel.coordinates == "computed in the kernel, from 9 values an image: of a grid, 0 bytes lie between"
    assert max((one.bytes for one in found.graphs[0].buffers if one.role == "between"), default=0) < 1024
    assert "0 bytes lie between" in str(found)


@pytest.mark.inductor
def test_training_saves_no_grid() -> None:
    tensors = [one.float() for one in arguments(spellings.in_perspective)]
    run = compiled(spellings.in_perspective)
    check_gradients(spellings.in_perspective, *tensors, run=run, rtol=1e-3)
    saved = elements_saved(run, *tensors)
    assert sorted(saved)[-1] == tensors[0].numel()
    assert sum(saved) < tensors[0].numel() + 64


@pytest.mark.inductor
def test_another_size_builds_nothing() -> None:
    run = compiled(spellings.remapped)
    for number, size in enumerate(((13, 17), (15, 12), (9, 20))):
        tensors = [one.float() for one in arguments(spellings.remapped, 3, size)]
        before = polyphase.stats()
        got, launched = launches(run, *tensors)
        same(got, spellings.remapped(*tensors))
        assert launched == 1
        assert number < 2 or polyphase.stats()["kernels_built"] == before["kernels_built"]


@pytest.mark.inductor
def test_explain_says_why_a_grid_stays() -> None:
    found = polyphase.explain(returned)(image(), torch.rand(2, *SIZE, 2, dtype=torch.float64))
    assert "a grid in memory: grid_sample: its result is read by others too" in str(found)
