from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._dynamo.utils import counters


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Nothing compiled before is met again, and a recompile limit is an error where it would be silent eager."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        yield
    torch._dynamo.reset()
