from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch._dynamo.utils import counters

from polyphase.calls.devices import MovingCosts, wing_of


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Nothing compiled before is met again, and a recompile limit is an error where it would be silent eager."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        yield
    torch._dynamo.reset()


@pytest.fixture
def gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only moves is left to Inductor as it is for a GPU: all but small elements that stand alone."""
    costs = MovingCosts(worth_a_call=8192, vector=4, gathers=4)
    wing = replace(wing_of(torch.device("cpu")), costs=costs)
    monkeypatch.setattr("polyphase.compile.costs.wing_of", lambda device: wing)
