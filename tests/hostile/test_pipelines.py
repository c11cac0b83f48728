"""Pipelines nobody writes on purpose: `fuse` does what they do, to samples of any form."""

from __future__ import annotations

import pytest
import torch

import polyphase
from tests.hostile.pipelines import case_of, contents, seen, wrong_with
from tests.support.vision import torchvision


@pytest.mark.filterwarnings("ignore:The transform")
@pytest.mark.parametrize("pictures", [False, True], ids=["anything", "pictures"])
@pytest.mark.parametrize("part", range(4))
def test_pipelines_do_what_torchvisions_do(part: int, pictures: bool) -> None:
    torchvision()
    for number in range(part * 6, part * 6 + 6):
        case = case_of(0, number, pictures=pictures)
        assert not list(wrong_with(case, number)), str(case)


@pytest.mark.parametrize("spoilt", ["values", "memory", "draws"])
def test_what_is_wrong_is_seen(spoilt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    v2 = torchvision()
    case = case_of(0, 0, pictures=False)
    case.transform, case.rough = v2.Compose([v2.RandomHorizontalFlip(1.0)]), 0.0
    case.make = lambda: torch.arange(60, dtype=torch.uint8).view(3, 4, 5)
    assert not list(wrong_with(case, 0))

    def wrong(image: torch.Tensor) -> torch.Tensor:
        torch.rand(1 if spoilt != "draws" else 2)
        flipped = image.flip(-1)
        return image.copy_(flipped) if spoilt == "memory" else flipped + 1 if spoilt == "values" else flipped

    monkeypatch.setattr(polyphase, "fuse", lambda transform: wrong)
    assert list(wrong_with(case, 0))
    assert contents(case.make()) == seen(lambda sample: sample.clone(), case.make(), 0).given
