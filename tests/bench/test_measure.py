"""What is timed was checked before, and what is wrong says so instead of a number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from polyphase.bench import measure, workloads
from polyphase.bench.columns.base import Column, Options
from polyphase.bench.columns.compiled import Compiled, Decomposition, Inductor, PolyphaseCompiled
from polyphase.bench.columns.uncompiled import Eager, MemoryFloor, Polyphase
from polyphase.bench.library_warps import KorniaWarp, TorchvisionWarp
from polyphase.bench.measure import Effort
from polyphase.bench.operations import PYTORCH, AffineWarp, Flip, Function, Resize
from polyphase.bench.results import Cell, Row
from polyphase.bench.work import Call, Work, call_of, prepare
from polyphase.bench.workloads import Case, Wanted
from tests.support.vision import torchvision

BRIEF = Effort(passes=2, rounds=2, block_seconds=0.0005)


def resize(dtype: str = "u8", *shapes: tuple[int, ...]) -> Case:
    return Case("aa", Resize((20, 31), "bilinear", antialias=True), shapes or ((1, 3, 40, 50),), dtype, "CL")


def measured(case: Case, *columns: type[Column], dynamic: bool | None = None, limit: int | None = None) -> Row:
    made = {column.__name__: column(Options(dynamic=dynamic)) for column in columns}
    with measure.settings(threads=1, recompile_limit=limit):
        (row,), complete = measure.measure([case], made, BRIEF)
    assert complete
    return row


def only(row: Row, column: type[Column]) -> Cell:
    found = row.cell(column.__name__)
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", ["u8", "f32", "f64"])
def test_right_columns_are_timed_in_blocks(dtype: str) -> None:
    row = measured(resize(dtype), MemoryFloor, Eager, Polyphase)
    for cell in row.cells:
        assert cell.timed, cell.problem
        assert [len(blocks) for blocks in cell.passes] == [2, 2]
        assert all(0 < seconds < 1 for seconds in cell.blocks)
    assert [cell.column for cell in row.yardsticks] == ["MemoryFloor"]


def crippled(damage: Callable[[Tensor], Tensor]) -> type[Column]:
    class Crippled(Eager):
        heading = "Crippled"

        def make(self, work: Work) -> Call:
            right = work.case.operation.function(PYTORCH)
            return call_of(work, lambda *inputs: damage(right(*inputs)))

    return Crippled


def brighter(image: Tensor) -> Tensor:
    image = image.clone()
    image[0, 0, 3, 5] += 1 if image.dtype == torch.uint8 else 1e-3
    return image


@pytest.mark.parametrize("dtype", ["u8", "f32"])
@pytest.mark.parametrize(
    "damage",
    [brighter, lambda image: image.roll(1, -1), lambda image: image.flip(-1), lambda image: image[..., :-1]],
    ids=["one pixel", "shifted", "mirrored", "narrower"],
)
def test_a_wrong_image_is_never_timed(damage: Callable[[Tensor], Tensor], dtype: str) -> None:
    column = crippled(damage)
    cell = only(measured(resize(dtype), column), column)
    assert cell.problem is not None
    assert cell.problem.startswith("wrong")
    assert not cell.timed
    assert cell.blocks == ()


def test_nan_is_wrong() -> None:
    column = crippled(lambda image: image * float("nan"))
    assert "wrong image" in (only(measured(resize("f32"), column), column).problem or "")


def test_what_is_raised_is_what_the_cell_says() -> None:
    class Raising(Eager):
        def make(self, work: Work) -> Call:
            raise RuntimeError("out of paper\nsecond line")

    row = measured(resize(), Raising, Eager)
    assert only(row, Raising).problem == "RuntimeError: out of paper"
    assert only(row, Eager).timed


def test_a_case_that_cannot_be_made_leaves_the_others() -> None:
    hopeless = Case("aa", Resize((20, 31), "cubist"), ((1, 3, 40, 50),), "u8", "CL")
    with measure.settings(1, None):
        (first, second), complete = measure.measure([hopeless, resize()], {"eager": Eager(Options())}, BRIEF)
    assert complete
    assert "cubist" in (first.cells[0].problem or "")
    assert second.cells[0].timed


class TracedOnly(Compiled):
    """Compiles by running the traced graph as it is: quick."""

    backend: Any = "eager"


SIZES = tuple((1, 3, 40, 50 + i) for i in range(4))


def test_over_the_recompile_limit_is_not_compiled() -> None:
    """A column that is run on more sizes than Dynamo will compile for goes back to eager without a word."""
    row = measured(resize("u8", *SIZES), TracedOnly, Eager, dynamic=False, limit=2)
    assert only(row, TracedOnly).problem == "not compiled: the recompile limit of 2 was reached"
    assert not only(row, TracedOnly).timed
    assert only(row, Eager).timed
    within = measured(resize("u8", *SIZES), TracedOnly, dynamic=False, limit=8)
    assert only(within, TracedOnly).timed


def test_a_limit_reached_before_is_seen_too() -> None:
    """Once Dynamo gave a function up nothing is counted or raised any more; the profiler tells."""
    column = TracedOnly(Options(dynamic=False))
    work = prepare(resize("u8", *SIZES), "cpu")
    call = column.make(work)
    with torch._dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=False):
        call()
        call = column.make(work)
        call()
        assert column.disproof(work, call) == "not compiled: 2 compiled regions ran in 4 calls"


def broken_in_two(function: Function) -> Function:
    def broken(image: Tensor) -> Tensor:
        resized = function(image)
        torch._dynamo.graph_break()
        return resized.clone()

    return broken


def test_a_graph_break_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Resize.function
    monkeypatch.setattr(Resize, "function", lambda self, calls: broken_in_two(right(self, calls)))
    problem = only(measured(resize(), TracedOnly), TracedOnly).problem
    assert problem is not None
    assert problem.startswith("not one graph: Call to `torch._dynamo.graph_break()`")


def test_a_function_that_dynamo_skips_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Resize.function
    with monkeypatch.context() as patch:
        patch.setattr(TracedOnly, "_function", lambda self, case: right(case.operation, PYTORCH))
        problem = only(measured(resize(), TracedOnly), TracedOnly).problem
    assert problem == "not compiled: 0 compiled regions ran in 1 calls"


def test_functions_without_kernels_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Polyphase, "make", Eager.make)
    problem = only(measured(resize(), Polyphase), Polyphase).problem
    assert problem == "not our kernels: 0 launched in 1 calls"


def test_batches_in_order_share_a_compiled_function() -> None:
    cases = [
        Case("aa", Resize((20, 31), "bilinear", antialias=True), ((n, 3, 40, 50),), "u8", "CL", order="1->4")
        for n in (1, 4)
    ]
    column = TracedOnly(Options())
    with measure.settings(1, None):
        rows, _ = measure.measure(cases, {"traced": column}, BRIEF)
    assert all(row.cells[0].timed for row in rows)
    assert len(column._functions) == 1


@pytest.mark.full
@pytest.mark.inductor
def test_inductor_is_timed() -> None:
    row = measured(Case("flip", Flip(-1), ((1, 3, 20, 30),), "u8", "CF"), Inductor)
    assert only(row, Inductor).timed, only(row, Inductor).problem


@pytest.mark.full
@pytest.mark.inductor
def test_decompositions_are_not_what_inductor_made_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches that know nothing of our table hand out the one for the other."""
    # As in decompositions/test_inductor.py, so that Inductor's kernels are built once.
    case = Case("aa", Resize((27, 31), "bilinear", antialias=True), ((2, 3, 45, 52),), "u8", "CL")
    row = measured(case, Inductor, Decomposition)
    assert only(row, Decomposition).timed, only(row, Decomposition).problem
    monkeypatch.setattr(Decomposition, "backend", "inductor")
    row = measured(case, Decomposition)
    assert only(row, Decomposition).problem == "not decomposed: aten::_upsample_bilinear2d_aa ran"


def test_bytes_that_eager_does_not_warp_are_checked_against_doubles() -> None:
    case = Case("warp", AffineWarp("bilinear"), ((1, 3, 40, 50),), "u8", "CL")
    row = measured(case, Eager, Polyphase)
    assert only(row, Polyphase).timed, only(row, Polyphase).problem
    assert "not implemented" in (only(row, Eager).problem or "")


@pytest.mark.parametrize("suite", [suite for suite in workloads.SUITES if suite not in workloads.OF_LIBRARIES])
def test_every_suite_is_right_in_our_columns(suite: str) -> None:
    cases = workloads.chosen(Wanted(suite, quick=True))
    columns: dict[str, Column] = {"eager": Eager(Options()), "polyphase": Polyphase(Options())}
    with measure.settings(1, None):
        rows, _ = measure.measure(cases, columns, Effort(passes=1, rounds=1, block_seconds=0.0))
    assert [(row.name, cell.problem) for row in rows for cell in row.cells if not cell.timed] == []


def test_an_operation_of_a_library_that_is_missing_is_left_out() -> None:
    @dataclass(frozen=True)
    class Theirs(Flip):
        library: ClassVar[str] = "no_such_library.of_theirs"

    row = measured(Case("library", Theirs(-1), ((1, 3, 8, 8),), "u8", "CF"), Eager, Polyphase)
    assert {cell.skipped for cell in row.cells} == {"no_such_library is not installed"}


@pytest.mark.full
@pytest.mark.inductor
@pytest.mark.parametrize("library", [TorchvisionWarp.library, KorniaWarp.library])
def test_warps_of_libraries_are_right(library: str) -> None:
    torchvision(TorchvisionWarp.library)
    pytest.importorskip(library)
    for case in workloads.chosen(Wanted("library", layout="CF")):
        if case.operation.library == library:
            row = measured(replace(case, shapes=((2, 3, 45, 56),)), Eager, Polyphase, PolyphaseCompiled)
            assert only(row, Polyphase).skipped == f"written with {library.partition('.')[0]}, not with our functions"
            assert only(row, Eager).timed, row.name
            assert only(row, PolyphaseCompiled).timed, (row.name, only(row, PolyphaseCompiled).problem)


def test_an_interruption_keeps_what_was_measured() -> None:
    def progress(doing: str) -> None:
        if doing.startswith("pass 2 of 2") and "f32" in doing:
            raise KeyboardInterrupt

    with measure.settings(1, None):
        rows, complete = measure.measure(
            [resize("u8"), resize("f32")], {"eager": Eager(Options())}, BRIEF, progress=progress
        )
    assert not complete
    assert [len(row.cells[0].passes) for row in rows] == [2, 1]


def test_threads_and_limits_are_put_back() -> None:
    before = torch.get_num_threads(), torch._dynamo.config.recompile_limit
    with measure.settings(threads=1, recompile_limit=3):
        assert torch._dynamo.config.recompile_limit == 3
        assert torch.get_num_threads() == 1
    assert before == (torch.get_num_threads(), torch._dynamo.config.recompile_limit)
