"""The registry of wings: which devices have kernels, which are switched off, and what a fork leaves of them."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import polyphase
import polyphase.functional as P
from polyphase.calls import devices
from polyphase.calls.devices import has_kernels, wing_of
from polyphase.calls.rules import rules_of
from polyphase.errors import ForkedProcessError, UnknownNameError
from polyphase.records.facts import facts

CPU = torch.device("cpu")


def test_the_cpu_has_kernels() -> None:
    assert has_kernels("cpu")
    assert wing_of(CPU).device == "cpu"
    assert wing_of(CPU) in devices.loaded()
    assert not has_kernels("meta")
    assert not has_kernels("xpu")


def test_facts_tell_devices_apart() -> None:
    image = torch.rand(1, 3, 4, 5)
    assert facts(image) == (torch.float32, (1, 3, 4, 5), (60, 20, 5, 1), CPU)
    assert facts(image) != facts(image.to("meta"))


def test_a_device_that_is_switched_off_runs_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    image = torch.rand(1, 3, 40, 50, requires_grad=True)
    monkeypatch.setattr(polyphase.calls.plain, "_USUAL", defaultdict(lambda: polyphase.calls.plain._never))
    monkeypatch.setattr(polyphase.calls.plain, "_CHECKS", {})
    monkeypatch.setattr(polyphase.calls.plain, "_SEEN", set())
    for off in ("cuda", "none"):
        monkeypatch.setenv("POLYPHASE_DEVICES", off)
        assert not has_kernels("cpu")
        launched = polyphase.stats()["kernels_launched"]
        ours = P.interpolate(image, (20, 30), mode="bilinear", antialias=True)
        assert torch.equal(ours, F.interpolate(image, (20, 30), mode="bilinear", antialias=True))
        assert polyphase.stats()["kernels_launched"] == launched
    monkeypatch.setenv("POLYPHASE_DEVICES", "cpu, cuda")
    assert has_kernels("cpu")
    monkeypatch.setenv("POLYPHASE_DEVICES", "gpu")
    with pytest.raises(UnknownNameError, match="cpu, cuda, none"):
        has_kernels("cpu")


def test_a_device_that_is_lost_by_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """As CUDA is: what a parent used, its forked child cannot."""
    lost = replace(wing_of(CPU), survives_fork=False)
    monkeypatch.setattr(devices, "_load", lambda device: lost)
    monkeypatch.setattr(devices, "_first_user", {})
    image = torch.rand(1, 1, 8, 8)
    assert wing_of(CPU) is lost
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            wing_of(CPU)
        except ForkedProcessError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as said:
        assert "'spawn' or 'forkserver'" in said.read()
    assert torch.equal(P.flip(image, (-1,)), image.flip(-1))


def test_a_child_may_be_the_first_to_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = replace(wing_of(CPU), survives_fork=False)
    monkeypatch.setattr(devices, "_load", lambda device: lost)
    monkeypatch.setattr(devices, "_first_user", {})
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if wing_of(CPU) is lost else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_counts_are_those_of_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    before = polyphase.stats()
    more = dict.fromkeys(before, 7)
    both = [*devices.loaded(), replace(wing_of(CPU), device="cuda", stats=lambda: more)]
    monkeypatch.setattr(devices, "loaded", lambda: both)
    assert polyphase.stats() == {name: count + 7 for name, count in before.items()}


def test_eager_has_rules_of_its_own_on_each_device() -> None:
    assert rules_of(torch.device("cuda", 1)).antialias_in_double
    assert not rules_of(CPU).antialias_in_double
    assert rules_of(torch.device("meta")) == type(rules_of(CPU))()
