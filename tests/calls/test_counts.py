"""`polyphase.stats()`: what a process built, waited for and ran."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import polyphase
from polyphase.calls import devices
from polyphase.cpu import libraries
from polyphase.cuda import launch

CALLS = """
import json
import torch, polyphase, polyphase.functional as P
image, told = torch.rand(1, 3, 40, 50), []
for size in ((20, 30), (20, 30), (21, 33), (70, 90)):
    before = polyphase.stats()
    P.interpolate(image, size, mode="bilinear", antialias=True)
    told.append({name: count - before[name] for name, count in polyphase.stats().items()})
print(json.dumps(told))
"""


def test_only_a_programs_first_call_waits(tmp_path: Path) -> None:
    """In a process that builds, and in the next one, which loads from disk."""
    everything = {**os.environ, "POLYPHASE_CACHE_DIR": str(tmp_path)}
    for builds in (True, False):
        text = subprocess.run([sys.executable, "-c", CALLS], env=everything, check=True, stdout=subprocess.PIPE).stdout
        first, *later = json.loads(text)
        assert first["builds_waited"] > 0
        assert (first["kernels_built"] > 0) == builds
        for one in later:
            assert (one["builds_waited"], one["kernels_built"], one["kernels_launched"]) == (0, 0, 1)
            assert one["makers_launched"] == 0


def test_a_call_that_waits_for_another_threads_build_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    request = libraries.launcher_request("portable")
    began, may_end = threading.Event(), threading.Event()

    def load(missing: object) -> None:
        if missing:
            began.set()
            assert may_end.wait(60)
            libraries._libraries[request] = object()  # type: ignore[assignment]

    monkeypatch.setattr(libraries, "_libraries", dict(libraries._libraries))
    libraries._libraries.pop(request, None)
    monkeypatch.setattr(libraries, "_load", load)
    waited = libraries.stats()["builds_waited"]
    threads = [threading.Thread(target=libraries._loaded, args=([request],)) for _ in range(2)]
    threads[0].start()
    assert began.wait(60)
    threads[1].start()
    for _ in range(6000):
        if libraries.stats()["builds_waited"] == waited + 2:
            break
        time.sleep(0.01)
    may_end.set()
    for one in threads:
        one.join()
    libraries._loaded([request])
    assert libraries.stats()["builds_waited"] == waited + 2


def test_all_counts_are_told() -> None:
    names = set(polyphase.stats())
    assert set(devices.wing_of(torch.device("cpu")).stats()) == names
    assert set(launch.stats()) == names
