"""Where nothing can be built: eager's results, and one warning that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = """
import collections, warnings
import torch
import torch.nn.functional as F
import polyphase.functional as P

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for width in range(3, 9):
        image = torch.rand(2, 3, 7, 6, dtype=torch.float64, requires_grad=True)
        for call in (
            lambda f: f.interpolate(image, (5, width), mode="bilinear"),
            lambda f: f.interpolate(image.detach(), (5, width), mode="bicubic", antialias=True),
            lambda f: f.pad(image, (width - 4, 1), value=2.0),
            lambda f: f.grid_sample(image, torch.full((2, width, 2, 2), 0.3, dtype=torch.float64), align_corners=True),
            lambda f: (torch if f is F else f).flip(image, (-1,)),
        ):
            results = [call(f) for f in (F, P)]
            torch.testing.assert_close(results[1], results[0])
            if results[0].requires_grad:
                gradients = [torch.autograd.grad(one, image, torch.ones_like(one))[0] for one in results]
                torch.testing.assert_close(gradients[1], gradients[0])
for text, count in collections.Counter(str(one.message) for one in caught).items():
    print(count, text.splitlines()[0])
"""


def warned(tmp_path: Path, **environment: str) -> list[str]:
    everything = {**os.environ, "POLYPHASE_CACHE_DIR": str(tmp_path / "cache"), **environment}
    command = [sys.executable, "-c", CALLS]
    return subprocess.run(command, env=everything, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def test_no_compiler(tmp_path: Path) -> None:
    (line,) = warned(tmp_path, CXX="", PATH=str(tmp_path))
    assert line.startswith("1 Polyphase runs on plain PyTorch operations, correct but slow: ")
    assert "install g++" in line


@pytest.mark.parametrize("script", ["exit 3", "exit 0"])
def test_a_compiler_that_fails(script: str, tmp_path: Path) -> None:
    """Once for every kernel, and not for every size."""
    log, compiler = tmp_path / "log", tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho >> {log}\n{script}\n")
    compiler.chmod(0o755)
    lines = warned(tmp_path, CXX=str(compiler))
    assert lines
    for line in lines:
        assert line.startswith(
            "1 Polyphase runs on plain PyTorch operations, correct but slow: the C++ compiler failed"
        )
    assert len(log.read_text()) < 16
