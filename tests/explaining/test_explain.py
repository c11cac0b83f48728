"""Every statement of an explanation, against what is known of the graph or found in the generated code."""

from __future__ import annotations

import json
import platform
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase
from polyphase.errors import UnknownNameError
from polyphase.explaining.explanation import Explanation
from polyphase.explaining.gather import gathered
from polyphase.explaining.model import Call, InductorKernel, OurKernel
from tests.decompositions.test_inductor import resize
from tests.support import samples

pytestmark = pytest.mark.inductor

BYTES = torch.randint(0, 256, (1, 3, 224, 224), dtype=torch.uint8)
FLOATS = torch.rand(1, 3, 50, 40)
CHANNELS_LAST = torch.channels_last


def mirrored(image: Tensor) -> Tensor:
    return torch.flip(image, (-1,))


def mirrored_part(image: Tensor) -> Tensor:
    return torch.flip(image[:, :, 9:-12, 12:-10], (-1,))


def only_kernel(explanation: Explanation) -> InductorKernel | OurKernel:
    (graph,) = explanation.graphs
    (kernel,) = graph.kernels
    assert isinstance(kernel, (InductorKernel, OurKernel))
    return kernel


@pytest.mark.parametrize(
    ("function", "image", "ranges", "read", "written", "why"),
    [
        (mirrored, BYTES, ("672", "224"), "224*i0 - i1 + 223", "224*i0 + i1", "a negative stride"),
        (
            mirrored,
            BYTES.contiguous(memory_format=CHANNELS_LAST),
            ("224", "224", "3"),
            "672*i0 - 3*i1 + i2 + 669",
            "672*i0 + 3*i1 + i2",
            "a short innermost loop",
        ),
        pytest.param(
            mirrored_part,
            torch.zeros(1, 3, 245, 246, dtype=torch.uint8),
            ("3", "224", "224"),
            "60270*i0 + 246*i1 - i2 + 2449",
            "50176*i0 + 224*i1 + i2",
            "a negative stride",
            marks=pytest.mark.full,
        ),
    ],
)
def test_flips(function: object, image: Tensor, ranges: tuple[str, ...], read: str, written: str, why: str) -> None:
    kernel = only_kernel(polyphase.explain(function, backend="inductor")(image))  # type: ignore[arg-type]
    assert isinstance(kernel, InductorKernel)
    (loop,) = kernel.loops
    (step,) = loop.steps
    assert tuple(step.ranges.values()) == ranges
    assert [one.index for one in step.reads] == [read]
    assert [one.index for one in step.writes] == [written], "over the variables that it reads over"
    assert loop.vectorised == ("at::vec::" in kernel.source), "what it says of the code is so"
    if not (loop.vectorised and platform.machine() == "aarch64"):  # there, Inductor counts other vectors
        assert loop.why_scalar.startswith(why)
    ours = only_kernel(polyphase.explain(function)(image))  # type: ignore[arg-type]
    assert isinstance(ours, OurKernel)
    assert (ours.bytes_read, ours.bytes_written) == (224 * 224 * 3, 224 * 224 * 3)
    assert "flip()" in ours.program


def small(image: Tensor) -> Tensor:
    return F.interpolate(image, size=(20, 30), mode="bilinear", antialias=True)


def test_what_inductor_leaves_to_aten_is_said() -> None:
    explanation = polyphase.explain(small, backend="inductor")(FLOATS)
    (call,) = explanation.graphs[0].kernels
    assert isinstance(call, Call)
    assert call.name == "aten._upsample_bilinear2d_aa.default"
    assert call.elements == FLOATS.numel()
    assert "0 of Inductor's, 1 call of ATen's" in str(explanation)


class Turned(torch.nn.Module):
    """By an angle, with arithmetic on 3 x 3 matrices before, as libraries do it."""

    def forward(self, image: Tensor, angle: Tensor) -> Tensor:
        c, s = angle.cos(), angle.sin()
        turn = torch.stack([torch.stack([c, -s, 0 * c], -1), torch.stack([s, c, 0 * c], -1)], -2)
        matrix = torch.linalg.inv_ex(torch.cat([turn, torch.eye(3)[2:].expand(2, 1, 3)], 1))[0] * 1.1
        grid = F.affine_grid(matrix[:, :2], list(image.shape), align_corners=False)
        return F.grid_sample(image, grid, align_corners=False).sigmoid()


def test_what_matters_comes_first_and_the_rest_in_a_line() -> None:
    explanation = polyphase.explain(Turned())(FLOATS.expand(2, 3, 50, 40), torch.rand(2))
    (graph,) = explanation.graphs
    small_ones = [one for one in graph.kernels if not isinstance(one, OurKernel) and one.elements < 100]
    assert len(small_ones) > 1
    title, _, first, *rest = str(explanation).splitlines()
    assert title.startswith("Turned, backend polyphase"), "not the repr of all its layers"
    assert first.strip().startswith("ours: program(float32, warp(affine")
    told = [line for line in rest if any(one.name in line for one in small_ones)]
    assert len(told) == 1
    assert f"and {len(small_ones)} of 18 elements at most" in told[0]
    assert sum("small buffer" in line for line in rest) == 1
    assert sum("(2, 3, 3)" in line for line in rest) == 0


def test_buffers_that_are_written_over_are_not_between_kernels() -> None:
    def warped(image: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(image, grid, align_corners=False) * 2

    explanation = polyphase.explain(warped, backend="inductor")(FLOATS, torch.rand(1, 50, 40, 2))
    (graph,) = explanation.graphs
    assert sum(len(loop.steps) for kernel in graph.inductors for loop in kernel.loops) > 1
    assert [one.role for one in graph.buffers] == ["input", "input", "output"]
    assert not graph.traffic


@pytest.mark.full  # ten seconds; tests/decompositions/test_inductor.py compiles it too
def test_the_antialiased_decomposition() -> None:
    image = samples.image((2, 3, 45, 52), torch.float32, "CL")  # as in decompositions/test_inductor.py: built once
    table = polyphase.decompositions.table()
    explanation = polyphase.explain(resize, backend="inductor", decompositions=table)(image)
    (graph,) = explanation.graphs
    between = [one for one in graph.buffers if one.role == "between" and len(one.shape) == 4]
    assert between, "the first pass is in memory"
    for one in between:
        assert one.bytes == 4 * int(torch.tensor([int(n) for n in one.shape]).prod())
    planar = [one.name for one in between if one.format == "contiguous"]
    assert all(name in str(explanation) for name in planar)
    assert graph.traffic >= sum(2 * one.bytes for one in between)
    assert "antialias" not in str(explanation.graphs[0].kernels)


def test_bilinear() -> None:
    def bilinear(image: Tensor) -> Tensor:
        return F.interpolate(image, size=(25, 26), mode="bilinear")

    image = FLOATS.contiguous(memory_format=CHANNELS_LAST)
    theirs = polyphase.explain(bilinear, backend="inductor")(image)
    (graph,) = theirs.graphs
    code = Path(graph.code_file).read_text()
    assert len(graph.inductors) == len(re.findall(r"^cpp_fused\w* = async_compile", code, re.MULTILINE))
    assert any(len(step.reads) > 1 for kernel in graph.inductors for loop in kernel.loops for step in loop.steps)
    assert {one.format for one in graph.buffers if one.role == "output"} == {"channels last"}
    ours = only_kernel(polyphase.explain(bilinear)(image))
    assert isinstance(ours, OurKernel)
    assert not polyphase.explain(bilinear)(image).graphs[0].traffic


def test_what_was_fused_and_what_not() -> None:
    mean = torch.rand(3, 1, 1)

    def step(image: Tensor, other: Tensor) -> Tensor:
        sampled = small(image).float() / 255 - mean
        return torch.sigmoid(sampled) + torch.tanh(torch.flip(other, (-2,)))

    explanation = polyphase.explain(step)(BYTES, torch.rand(1, 3, 20, 30))
    (graph,) = explanation.graphs
    (ours,) = graph.ours
    assert ours.program.endswith("epilogue=sub(div(cast(x, float32), 255), channel(0)))")
    assert any("test_explain.py" in line and "small(image).float() / 255" in line for line in ours.lines)
    assert any("neither sampling nor arithmetic" in why for why in ours.not_fused)
    assert not ours.ends
    assert any("Inductor's loop does both at once" in why for why in graph.not_taken)
    assert len(graph.inductors) == 1
    assert "extern" in Path(ours.source_file).read_text()


def test_a_kernel_that_ends_because_its_result_is_read_twice() -> None:
    def step(image: Tensor) -> tuple[Tensor, Tensor]:
        sampled = small(image)
        return sampled * 2, sampled.sigmoid()

    explanation = polyphase.explain(step)(FLOATS)
    (ours,) = explanation.graphs[0].ours
    assert ours.nodes == ("_upsample_bilinear2d_aa",)
    assert [why.partition(":")[0] for why in ours.ends] == list(ours.nodes)
    assert not ours.not_fused
    assert "not fused" not in str(explanation)


def test_forward_and_backward() -> None:
    explanation = polyphase.explain(small)(FLOATS.clone().requires_grad_())
    assert [graph.kind for graph in explanation.graphs] == ["forward", "backward"]
    assert ["adjoint_of" in graph.ours[0].program for graph in explanation.graphs] == [False, True]


def test_graph_breaks_and_recompiles() -> None:
    def broken(image: Tensor) -> Tensor:
        image = image + 1
        torch._dynamo.graph_break()
        return mirrored(image)

    explanation = polyphase.explain(broken)(FLOATS)
    assert len(explanation.breaks) == 1
    assert "torch._dynamo.graph_break()" in explanation.breaks[0].line
    assert "test_explain.py" in explanation.breaks[0].line
    explanation = polyphase.explain(mirrored).over([(torch.rand(n, 3, 8, 9),) for n in (2, 3)])
    assert len(explanation.recompiles) == 1
    assert "size" in explanation.recompiles[0]


def test_over_the_recompile_limit() -> None:
    calls = [(torch.rand(1, 3, 8, n),) for n in range(5, 12)]
    with torch._dynamo.config.patch(recompile_limit=2):
        explanation = polyphase.explain(mirrored, backend="inductor").over(calls, dynamic=False)
    assert "recompile" in explanation.ran_eager
    assert "RAN EAGER" in str(explanation)
    assert not polyphase.explain(mirrored)(FLOATS).ran_eager


def test_json_and_an_unknown_backend() -> None:
    explanation = polyphase.explain(mirrored)(FLOATS)
    assert json.loads(explanation.to_json())["graphs"][0]["kernels"][0]["program"].startswith("program(float32")
    with pytest.raises(UnknownNameError, match="inductor, polyphase"):
        polyphase.explain(mirrored, backend="eager")


def test_saved_kernels_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def both(image: Tensor) -> Tensor:
        return torch.sigmoid(small(image))

    for script in polyphase.explain(both)(FLOATS).save(tmp_path):
        runpy.run_path(str(script))
        told = capsys.readouterr().out
        assert "equal to what" in told
        assert " us" in told


def test_a_saved_kernel_that_was_broken_says_so(tmp_path: Path) -> None:
    (script,) = polyphase.explain(lambda image: small(image) * 3)(FLOATS).save(tmp_path)
    source = script.with_suffix(".cpp")
    assert "3.0f" in source.read_text()
    source.write_text(source.read_text().replace("3.0f", "4.0f"))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert "not close" in done.stderr


def position_embedding(embedding: Tensor) -> Tensor:
    """As timm resamples one."""
    grid = embedding.reshape(1, 14, 14, -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(20, 20), mode="bicubic", antialias=True)
    return grid.permute(0, 2, 3, 1).reshape(1, -1, grid.shape[1])


def upsampling_block(image: Tensor) -> Tensor:
    """As in a diffusion model's decoder."""
    return F.conv2d(F.interpolate(image, scale_factor=2.0, mode="nearest"), torch.ones(3, 3, 3, 3), padding=1)


def pyramid_level(image: Tensor) -> Tensor:
    """As kornia goes down a pyramid."""
    kernel = torch.ones(3, 1, 5, 5) / 25
    blurred = F.conv2d(F.pad(image, (2, 2, 2, 2), mode="reflect"), kernel, groups=3)
    return F.interpolate(blurred, scale_factor=0.5, mode="bilinear", align_corners=False)


@pytest.mark.parametrize(
    ("function", "given", "lines"),
    [
        (position_embedding, torch.rand(1, 196, 64), ["F.interpolate(grid"]),
        (upsampling_block, FLOATS, ['mode="nearest"']),
        (pyramid_level, FLOATS, ['mode="reflect"', "scale_factor=0.5"]),
    ],
)
def test_unfamiliar_functions(function: object, given: Tensor, lines: list[str]) -> None:
    with torch.no_grad():
        explanation = polyphase.explain(function)(given)  # type: ignore[arg-type]
    (graph,) = explanation.graphs
    assert len(str(explanation).splitlines()) < 60
    assert len(graph.ours) == len(lines)
    for kernel, line in zip(graph.ours, lines, strict=True):
        assert any("test_explain.py" in one and line in one for one in kernel.lines)
    code = Path(graph.code_file).read_text()
    calls = re.findall(r"^\s+(polyphase_\w+|cpp_fused\w+)\(", code, re.MULTILINE)
    named = [one for one in graph.kernels if isinstance(one, (OurKernel, InductorKernel))]
    assert len(calls) == len(named), "every kernel it names is called, and no other"
    buffers = re.findall(r"^\s+(buf\d+) = empty_strided_cpu\(\(([\d, ]*)\)", code, re.MULTILINE)
    shapes = {one.name: ", ".join(one.shape) for one in graph.buffers if one.role != "input"}
    assert all(shapes[name] == shape.rstrip(", ") for name, shape in buffers)


def test_triton_kernels_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, as far as their code."""
    from torch._inductor.codegen.triton import TritonScheduling

    monkeypatch.setattr(TritonScheduling, "define_kernel", lambda self, source, nodes, kernel: "triton_poi_fused_0")
    with gathered() as found:
        TritonScheduling.define_kernel(None, "@triton.jit ...", [object()], None)
    (kernel,) = found._order
    assert isinstance(kernel, InductorKernel)
    assert (kernel.name, kernel.loops, kernel.source) == ("triton_poi_fused_0", (), "@triton.jit ...")
