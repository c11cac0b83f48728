"""What forked processes would each have to do anew is done before: imports, and the libraries that most calls need."""

from __future__ import annotations

import pytest
import torch

import polyphase
import polyphase.functional as P


@pytest.fixture(scope="session", autouse=True)
def _warm() -> None:
    torch.testing.assert_close(torch.zeros(1), torch.zeros(1))
    polyphase.accelerate()(lambda: torch.flip(torch.rand(2, 2), (0,)))()
    for image in (torch.rand(1, 1, 4, 4), torch.zeros(1, 1, 4, 4, dtype=torch.uint8)):
        P.interpolate(image, 3, mode="bilinear")
        P.flip(image, (0,))
        P.grid_sample(image, torch.zeros(1, 2, 2, 2))
