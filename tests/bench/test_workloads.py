"""The table of workloads, and the operations in it."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from polyphase.bench import workloads
from polyphase.bench.operations import (
    POLYPHASE,
    PYTORCH,
    AffineWarp,
    Flip,
    Operation,
    PerspectiveWarp,
    Preprocess,
    PyramidStep,
    Resize,
    Source,
)
from polyphase.bench.work import call_of, prepare, tensors_of
from polyphase.bench.workloads import OF_LIBRARIES, SUITES, TABLE, Case, Wanted
from polyphase.errors import NothingToMeasureError, UnknownNameError


def test_rows_have_names_of_their_own() -> None:
    names = Counter((case.suite, case.order, case.label) for line in TABLE for case in line.cases())
    assert [name for name, number in names.items() if number > 1] == []


@pytest.mark.parametrize("suite", [suite for suite in SUITES if suite not in OF_LIBRARIES])
def test_every_suite_has_a_quick_part(suite: str) -> None:
    cases = workloads.chosen(Wanted(suite, quick=True))
    assert 0 < len(cases) < len(workloads.chosen(Wanted(suite)))


def test_quick_cases_exist() -> None:
    for line in TABLE:
        assert set(line.quick) <= set(line.kinds)


def test_batch_order_goes_through_one_compiled_function() -> None:
    cases = [case for case in workloads.chosen(Wanted("aa", dtype="u8", layout="CL")) if case.order]
    together = {case.order: [] for case in cases}  # type: dict[str, list[Case]]
    for case in cases:
        together[case.order].append(case)
    for order, batches in {"1->4": [1, 4], "4->1": [4, 1]}.items():
        first, second = together[order]
        assert [first.shapes[0][0], second.shapes[0][0]] == batches
        assert first.compiled_together == second.compiled_together
    assert together["1->4"][0].compiled_together != together["4->1"][1].compiled_together


def test_filters_narrow_the_table() -> None:
    cases = workloads.chosen(Wanted("bicubic", mode="bicubic", dtype="u8", layout="CL"))
    assert {(case.operation.mode, case.dtype, case.layout) for case in cases} == {("bicubic", "u8", "CL")}
    with pytest.raises(NothingToMeasureError, match=r"flip.*--mode bicubic.*leave options away"):
        workloads.chosen(Wanted("flip", mode="bicubic"))


@pytest.mark.parametrize("wrong", [{"suite": "antialias"}, {"dtype": "uint8"}, {"layout": "NHWC"}])
def test_unknown_names(wrong: dict[str, str]) -> None:
    with pytest.raises(UnknownNameError, match="choose one of"):
        Wanted(**wrong)  # type: ignore[arg-type]


OPERATIONS = [
    Resize((20, 31), "bilinear", antialias=True),
    Flip(-1),
    Flip(-2, margins=(2, 3, 4, 5)),
    AffineWarp("bilinear"),
    PerspectiveWarp("bilinear", degrees=20.0, scale=0.9),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: type(operation).__name__)
@pytest.mark.parametrize("layout", ["CF", "CL"])
def test_both_ways_to_run_an_operation_agree(operation: Operation, layout: str) -> None:
    inputs = operation.inputs((2, 3, 40, 50), Source("f32", layout, "cpu"))
    got, want = (operation.function(calls)(*inputs) for calls in (POLYPHASE, PYTORCH))
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


def test_preprocessing_is_as_torchvision_rounds() -> None:
    assert Preprocess().resized(345, 456) == (256, 338)
    assert Preprocess().resized(456, 345) == (338, 256)
    inputs = Preprocess().inputs((1, 3, 345, 456), Source("u8", "CF", "cpu"))
    assert Preprocess().function(PYTORCH)(*inputs).shape == (1, 3, 224, 224)


def test_opencvs_matrices_lead_to_the_same_pixels() -> None:
    height, width = 30, 40
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    pixels = torch.stack([x, y, torch.ones_like(x)], -1).double()
    size = torch.tensor([width, height])

    affine = AffineWarp("bilinear")
    grid = torch.nn.functional.affine_grid(affine.theta(), [1, 1, height, width], align_corners=False)
    torch.testing.assert_close(pixels @ affine.pixel_matrix(height, width).T, ((grid[0] + 1) * size - 1) / 2)

    perspective = PerspectiveWarp("bilinear", degrees=20.0, scale=0.9)
    places = torch.cat([(2 * pixels[..., :2] + 1) / size - 1, pixels[..., 2:]], -1) @ perspective.matrix()[0].T
    led = pixels @ perspective.pixel_matrix(height, width).T
    wanted = ((places[..., :2] / places[..., 2:] + 1) * size - 1) / 2
    torch.testing.assert_close(led[..., :2] / led[..., 2:], wanted)


def test_what_must_be_moved() -> None:
    shrink = Case("nearest", Resize((10, 10), "nearest"), ((1, 3, 100, 100),), "u8", "CF")
    assert prepare(shrink, "cpu").bytes_moved == 2 * 300
    smooth = Case("aa", Resize((10, 10), "bilinear", antialias=True), ((1, 3, 100, 100),), "f32", "CF")
    assert prepare(smooth, "cpu").bytes_moved == 4 * (30000 + 300)


def test_training_gives_every_gradient() -> None:
    work = prepare(Case("model", PyramidStep(), ((1, 8, 4, 4),), "f32", "CF", backward=True), "cpu")
    output, *gradients = tensors_of(call_of(work, work.case.operation.function(PYTORCH))())
    assert output.shape == (1, 8, 8, 8)
    assert [gradient.shape for gradient in gradients] == [tensor.shape for tensor in work.steps[0].inputs]


def test_sizes_in_turn_are_one_call() -> None:
    work = prepare(Case("chain", Preprocess(), ((1, 3, 300, 300), (1, 3, 256, 400)), "u8", "CL"), "cpu")
    assert len(tensors_of(call_of(work, work.case.operation.function(PYTORCH))())) == work.calls == 2
