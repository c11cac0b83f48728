"""Every statement of an explanation, against what is known of the graph or found in the generated code."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase
from polyphase.errors import UnknownNameError
from polyphase.explaining.model import Explanation, InductorKernel, OurKernel

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
    ("function", "image", "ranges", "index", "why"),
    [
        (mirrored, BYTES, ("672", "224"), "224*c0 - c1 + 223", "a negative stride"),
        (
            mirrored,
            BYTES.contiguous(memory_format=CHANNELS_LAST),
            ("224", "224", "3"),
            "672*c0 - 3*c1 + c2 + 669",
            "a short innermost loop",
        ),
        (
            mirrored_part,
            torch.zeros(1, 3, 245, 246, dtype=torch.uint8),
            ("3", "224", "224"),
            "60270*c0 + 246*c1 - c2 + 2449",
            "a negative stride",
        ),
    ],
)
def test_flips(function: object, image: Tensor, ranges: tuple[str, ...], index: str, why: str) -> None:
    kernel = only_kernel(polyphase.explain(function, backend="inductor")(image))  # type: ignore[arg-type]
    assert isinstance(kernel, InductorKernel)
    (loop,) = kernel.loops
    assert loop.steps[0].ranges == ranges
    assert [one.index for one in loop.steps[0].reads] == [index]
    assert loop.vectorised == ("at::vec::" in kernel.source), "what it says of the code is so"
    if not (loop.vectorised and platform.machine() == "aarch64"):  # there, Inductor counts other vectors
        assert loop.why_scalar.startswith(why)
    ours = only_kernel(polyphase.explain(function)(image))  # type: ignore[arg-type]
    assert isinstance(ours, OurKernel)
    assert (ours.bytes_read, ours.bytes_written) == (224 * 224 * 3, 224 * 224 * 3)
    assert "flip()" in ours.program


def small(image: Tensor) -> Tensor:
    return F.interpolate(image, size=(20, 30), mode="bilinear", antialias=True)


def test_the_antialiased_decomposition() -> None:
    image = FLOATS.contiguous(memory_format=CHANNELS_LAST)
    table = polyphase.decompositions.table()
    explanation = polyphase.explain(small, backend="inductor", decompositions=table)(image)
    (graph,) = explanation.graphs
    between = [one for one in graph.buffers if one.role == "between" and len(one.shape) == 4]
    assert between, "the first pass is in memory"
    for one in between:
        assert one.bytes == 4 * int(torch.tensor([int(n) for n in one.shape]).prod())
    planar = [one.name for one in between if one.format == "contiguous"]
    assert all(name in str(explanation) for name in planar)
    assert graph.traffic >= sum(2 * one.bytes for one in between)
    assert "antialias" not in str(explanation.graphs[0].kernels)


def test_bicubic() -> None:
    def bicubic(image: Tensor) -> Tensor:
        return F.interpolate(image, size=(25, 26), mode="bicubic")

    image = FLOATS.contiguous(memory_format=CHANNELS_LAST)
    theirs = polyphase.explain(bicubic, backend="inductor")(image)
    (graph,) = theirs.graphs
    code = Path(graph.code_file).read_text()
    assert len(graph.inductors) == len(re.findall(r"^cpp_fused\w* = async_compile", code, re.MULTILINE))
    assert any(len(step.reads) > 1 for kernel in graph.inductors for loop in kernel.loops for step in loop.steps)
    assert {one.format for one in graph.buffers if one.role == "output"} == {"channels last"}
    ours = only_kernel(polyphase.explain(bicubic)(image))
    assert isinstance(ours, OurKernel)
    assert not polyphase.explain(bicubic)(image).graphs[0].traffic


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
    assert any("Inductor's loop does both at once" in why for why in graph.not_taken)
    assert len(graph.inductors) == 1
    assert "extern" in Path(ours.source_file).read_text()


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


def test_saved_kernels_run(tmp_path: Path) -> None:
    def both(image: Tensor) -> Tensor:
        return torch.sigmoid(small(image))

    for script in polyphase.explain(both)(FLOATS).save(tmp_path):
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "equal to what" in done.stdout
        assert " us" in done.stdout


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
