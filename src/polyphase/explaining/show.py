"""An explanation as text, short enough to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from polyphase.explaining.model import Buffer, Call, Explained, Graph, InductorKernel, Loop, OurKernel

_MOST = 6  # of anything that there can be dozens of
_SMALL = 1024  # elements, or bytes: next to nothing beside images


def text_of(explanation: Explained) -> str:
    return "\n".join(_lines(explanation))


def _lines(explanation: Explained) -> Iterator[str]:
    e = explanation
    yield f"{e.function}, backend {e.backend}: {_count(len(e.graphs), 'graph')} in {_count(e.calls, 'call')}"
    if e.ran_eager:
        yield f"  RAN EAGER: {e.ran_eager}"
    for one in e.breaks:
        yield f"  graph break: {one.reason}"
        yield f"    at {one.line}"
    for reason in e.recompiles:
        yield f"  recompiled, because a guard failed: {reason}"
    for graph in e.graphs:
        yield from _indented(_graph(graph))


def _graph(graph: Graph) -> Iterator[str]:
    ours, theirs = len(graph.ours), len(graph.inductors)
    operators = sum(isinstance(one, Call) and one.is_ours for one in graph.kernels)
    calls = len(graph.kernels) - ours - theirs - operators
    counts = [
        _count(ours + operators, "kernel of ours", "kernels of ours"),
        _count(theirs, "kernel of Inductor's", "of Inductor's"),
        *([_count(calls, "call of ATen's or a library's", "calls of ATen's or a library's")] if calls else []),
    ]
    yield f"{graph.kind}: {', '.join(counts)}"
    small = _small_of(graph.kernels)
    for kernel in sorted(graph.kernels, key=lambda one: -one.elements):  # what matters first, else in their order
        if kernel not in small:
            yield from _indented(_kernel(kernel))
    if small:
        most = max(one.elements for one in small)
        names = Counter(one.name for one in small)
        told = [name if times == 1 else f"{name} ({times} times)" for name, times in names.items()]
        yield f"  and {len(small)} of {most} elements at most: {', '.join(told)}"
    for why in graph.not_taken:
        yield f"  left to Inductor: {why}"
    for one in graph.attention:
        yield f"  attention: {one}"
    for why in graph.grids:
        yield f"  a grid in memory: {why}"
    hidden = {
        step.name for one in small if isinstance(one, InductorKernel) for loop in one.loops for step in loop.steps
    }
    apart = [one for one in graph.not_fused if not {one.first, one.second} & hidden]
    yield from _some([f"  not fused, as Inductor says: {one.first} with {one.second}: {one.why}" for one in apart])
    yield from _indented(_buffers(graph.buffers, fold=bool(small)))
    if graph.traffic:
        yield f"  between kernels: {_bytes(graph.traffic)} written and read"
    if graph.code_file:
        yield f"  code: {graph.code_file}"


def _small_of(kernels: Sequence[OurKernel | InductorKernel | Call]) -> list[InductorKernel | Call]:
    """Kernels that are told in one line, because they do next to nothing: work on 3 x 3 matrices, for example."""
    small = [one for one in kernels if not isinstance(one, OurKernel) and one.elements <= _SMALL]
    return small if len(small) < len(kernels) else []


def _kernel(kernel: OurKernel | InductorKernel | Call) -> Iterator[str]:
    match kernel:
        case OurKernel():
            yield f"ours: {kernel.program}"
            yield f"  {kernel.plan}"
            yield f"  computes: {', '.join(kernel.nodes)}"
            if kernel.coordinates:
                yield f"  coordinates: {kernel.coordinates}"
            yield from (f"    {line}" for line in kernel.lines if line)
            read, written = _bytes(kernel.bytes_read), _bytes(kernel.bytes_written)
            yield f"  reads {read} at most, writes {written}: every element once"
            yield f"  source: {kernel.source_file}"
            yield from (f"  ends with {why}" for why in kernel.ends)
            yield from (f"  not part of it: {why}" for why in kernel.not_fused)
        case InductorKernel():
            loops = _count(len(kernel.loops), "loop nest")
            yield f"Inductor's {kernel.name}: {loops}"
            small = kernel.elements <= _SMALL
            shown = [loop for loop in kernel.loops if small or loop.elements > _SMALL][:_MOST]
            for loop in shown:
                yield from _indented(_loop(loop))
            if len(kernel.loops) > len(shown):
                yield f"  ... and {len(kernel.loops) - len(shown)} more"
        case Call() if kernel.is_ours:
            yield f"ours, by its operator: {kernel.name}"
        case Call():
            yield f"call of {kernel.name}: no kernel was generated, the operator runs as in eager"


def _loop(loop: Loop) -> Iterator[str]:
    ranges = dict.fromkeys(", ".join(f"{name} < {n}" for name, n in step.ranges.items()) for step in loop.steps)
    vectorised = "vectorised" if loop.vectorised else f"not vectorised: {loop.why_scalar}"
    yield f"over {' / '.join(ranges) or 'one element'}; {_count(len(loop.steps), 'node')}; {vectorised}"
    for step in loop.steps[:_MOST]:
        yield f"  {step.name}: {', '.join(step.origins) or 'a copy'}"
        yield from _some([f"    reads {one.buffer}[{one.index}]" for one in step.reads])
        yield from (f"    writes {one.buffer}[{one.index}]" for one in step.writes)
    if len(loop.steps) > _MOST:
        yield f"  ... and {len(loop.steps) - _MOST} more nodes"


def _buffers(buffers: Sequence[Buffer], fold: bool) -> Iterator[str]:
    inputs = [one for one in buffers if one.role == "input" and len(one.shape) > 1]
    small = [one for one in buffers if fold and one.role == "between" and one.bytes <= _SMALL]
    if small:
        yield f"between: {_count(len(small), 'small buffer')}, {_bytes(sum(one.bytes for one in small))} together"
    for one in buffers:
        if one.role == "input" or one in small:
            continue
        shape = f"({', '.join(one.shape)})"
        beside = _beside(one, inputs[0]) if inputs else ""
        remark = f"; {one.remark}" if one.remark else ""
        yield f"{one.role} {one.name}: {one.dtype} {shape}, {_bytes(one.bytes)}, {one.format}{beside}{remark}"


def _beside(buffer: Buffer, image: Buffer) -> str:
    """How a buffer's memory format compares with the first input's, if both are images of one batch and as many
    channels."""
    if buffer.shape[:2] == image.shape[:2] and len(buffer.shape) == len(image.shape) and buffer.format != image.format:
        return f", the input is {image.format}"
    return ""


def _some(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_MOST]
    if len(lines) > _MOST:
        yield f"{' ' * (len(lines[0]) - len(lines[0].lstrip()))}... and {len(lines) - _MOST} more"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def _bytes(n: int) -> str:
    return f"{n} bytes" if n < 10_000 else f"{n / 1000:.0f} KB" if n < 10_000_000 else f"{n / 1e6:.1f} MB"
