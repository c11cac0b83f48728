"""The functions that saved kernels call: they build a kernel from its file, check it, and time it."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyphase.calls import plain_torch
from polyphase.calls.devices import wing_of
from polyphase.calls.prepared import Prepared


def replay(
    program: str, sizes: Sequence[int], inputs: Sequence[dict[str, Any]], output: dict[str, Any], source: Path
) -> None:
    torch.manual_seed(0)
    tensors = [_random(**facts) for facts in inputs]
    out = _random(**output)
    generated, edited = Prepared(program), Prepared(program)
    generated(*tensors, tuple(sizes), out=out)
    was = _time(lambda: generated(*tensors, tuple(sizes), out=out))
    with wing_of(out.device).built_from(source):
        edited(*tensors, tuple(sizes), out=out)
    now = _time(lambda: edited(*tensors, tuple(sizes), out=out))
    filled = generated.filled(tuple(sizes), tensors[0].shape)
    _compare(out, plain_torch.run(filled, *tensors), "plain torch operations")
    print(f"as generated {was:.1f} us, {source.name} {now:.1f} us: {was / now:.2f}x")


def replay_graphs(original: Path, edited: Path) -> None:
    torch.manual_seed(0)
    was, now = _module(original), _module(edited)
    args = was.get_args()
    for expected, found in zip(was.call(list(args)), now.call(list(args)), strict=True):
        if isinstance(expected, Tensor):
            _compare(found, expected, original.name)
    before, after = _time(lambda: was.call(list(args))), _time(lambda: now.call(list(args)))
    print(f"{original.name} {before:.1f} us, {edited.name} {after:.1f} us: {before / after:.2f}x")


def _random(dtype: str, shape: Sequence[int], strides: Sequence[int], device: str) -> Tensor:
    kind = getattr(torch, dtype.removeprefix("torch."))
    tensor = torch.empty_strided(tuple(shape), tuple(strides), dtype=kind, device=device)
    values = torch.rand(tuple(shape)) * (1 if kind.is_floating_point else 255)
    return tensor.copy_(values)


def _compare(found: Tensor, expected: Tensor, what: str) -> None:
    torch.testing.assert_close(found, expected)
    print(f"equal to what {what} gives")


def _time(call: Callable[[], object]) -> float:
    """The shortest of several runs, in us; on a GPU each is waited for."""
    call()
    _wait()
    least = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        call()
        _wait()
        least = min(least, time.perf_counter() - start)
    return least * 1e6


def _wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
