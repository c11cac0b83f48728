"""A second process starts warm: torch's caches hit and no kernel is built; of another version, nothing is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.inductor

CODE = """
import json, sys, types
version = types.ModuleType("polyphase.version")  # in place of the package's own
version.__version__ = sys.argv[1]
sys.modules["polyphase.version"] = version
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters
import polyphase
from polyphase.cpu import build

build.FLAGS += ("-O0",)  # sooner, and as many


def step(x, vector):
    y = F.interpolate(x, scale_factor=1.5, mode="bicubic", antialias=True)[..., 1:, 2:].flip(-1)
    return (y - vector) * 2


def turned(x):
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, x.shape[2]), torch.linspace(-1, 1, x.shape[3]), indexing="ij")
    grid = torch.stack([0.9 * xs - 0.1 * ys, 0.1 * xs + 0.9 * ys + 0.05], -1)
    return F.grid_sample(x, grid.expand(len(x), -1, -1, -1), align_corners=True)


x = torch.linspace(0, 1, 2 * 3 * 12 * 13).view(2, 3, 12, 13).requires_grad_()
vector = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)
options = {"polyphase.fusion": sys.argv[2] == "fusion"}
compiled = lambda function: torch.compile(
    function, backend="polyphase", dynamic=sys.argv[3] == "dynamic", options=options
)
run = compiled(step)
y = run(x, vector)
want = step(x, vector)
torch.testing.assert_close(y, want)
gradient = torch.rand_like(want)
torch.testing.assert_close(torch.autograd.grad(y, x, gradient), torch.autograd.grad(want, x, gradient))
torch.testing.assert_close(run(x.detach()[:, :, :9], vector), step(x.detach()[:, :, :9], vector))
torch.testing.assert_close(compiled(turned)(x.detach()), turned(x.detach()))
count = lambda kind, names: sum(counters[kind][name] for name in names)
print(json.dumps({
    "graph hits": count("inductor", ["fxgraph_cache_hit"]),
    "graph misses": count("inductor", ["fxgraph_cache_miss", "fxgraph_cache_bypass"]),
    "autograd hits": count("aot_autograd", ["autograd_cache_hit"]),
    "autograd misses": count("aot_autograd", ["autograd_cache_miss", "autograd_cache_bypass"]),
    **polyphase.stats(),
}))
"""


def run(folder: Path, version: str = "1.0", fusion: str = "fusion", shapes: str = "static") -> dict[str, Any]:
    environment = {
        **os.environ,
        "POLYPHASE_CACHE_DIR": str(folder / "polyphase"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",  # which takes longer than the few kernels that would use it
    }
    command = [sys.executable, "-c", CODE, version, fusion, shapes]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("shapes", ["static", pytest.param("dynamic", marks=pytest.mark.full)])
def test_a_second_process_starts_warm(tmp_path: Path, shapes: str) -> None:
    first, second = run(tmp_path, shapes=shapes), run(tmp_path, shapes=shapes)
    assert first["autograd misses"] > 0
    assert first["kernels_built"] > 0
    assert (second["autograd misses"], second["graph misses"]) == (0, 0)
    assert second["autograd hits"] > 0
    assert second["kernels_built"] == 0
    assert second["kernels_launched"] == first["kernels_launched"] > 0


@pytest.mark.full
def test_another_version_or_option_misses(tmp_path: Path) -> None:
    first = run(tmp_path)
    for other in (run(tmp_path, version="2.0"), run(tmp_path, fusion="alone")):
        assert (other["autograd hits"], other["graph hits"]) == (0, 0)
        assert other["autograd misses"] > 0
    newer = run(tmp_path, version="3.0")
    assert newer["kernels_built"] == first["kernels_built"] > 0  # none of the old ones
