"""Pipelines in a DataLoader's workers, however these are started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import polyphase
from tests.pipelines.chains import image
from tests.pipelines.loaded import CHAIN, epoch

#: The last two import torch in every worker, which takes seconds.
METHODS = ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.full)]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    polyphase.fuse(CHAIN)(image(0))  # so that no worker builds anything
    return epoch(None, 0, collates=False)


@pytest.mark.parametrize("method", METHODS)
def test_workers_make_the_same_pictures(method: str, expected: list[Any]) -> None:
    for (found, numbers), (wanted, _) in zip(epoch(method, 2, collates=False), expected, strict=True):
        assert numbers.tolist() == list(range(numbers[0], numbers[0] + 4))
        assert torch.equal(found, wanted)


@pytest.mark.parametrize(
    "method", ["fork", *[pytest.param(one, marks=pytest.mark.full) for one in ("forkserver", "spawn")]]
)
def test_workers_collate(method: str) -> None:
    """What is random is drawn from each worker's own seed; two epochs from one seed are one."""
    once = epoch(method, 2, collates=True)
    again = epoch("fork", 2, collates=True)
    for (found, numbers), (wanted, _) in zip(once, again, strict=True):
        assert found.shape == (4, 3, 48, 48)
        assert numbers.tolist() == list(range(numbers[0], numbers[0] + 4))
        assert found.is_shared()
        assert torch.equal(found, wanted)


@pytest.mark.cpu
def test_eight_workers_that_begin_at_once_build_each_kernel_once(tmp_path: Path) -> None:
    environment = {**os.environ, "POLYPHASE_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.pipelines.loaded", "8"]
    done = subprocess.run(
        command, check=True, env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.split() == ["1", "1"], "kernels built by all of them together, and pictures they made"


@pytest.mark.cpu
def test_the_first_result_of_a_process_comes_soon() -> None:
    """With kernels that are built: tens of milliseconds after the imports, on a machine that has time for it. More of
    torch to import, or a compiler, would take seconds."""
    polyphase.fuse(CHAIN)(image(3))
    code = (
        "import time, torch, polyphase\nfrom tests.pipelines.loaded import CHAIN, image\n"
        "picture, start = image(3), time.process_time()\n"
        "polyphase.fuse(CHAIN)(picture)\n"
        "print(time.process_time() - start, polyphase.stats()['kernels_built'])"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    seconds, built = done.stdout.split()
    assert float(seconds) < 0.5
    assert built == "0"
