"""Pipelines of columns of arrays, as Ray Data has them; with Ray itself where it is installed."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import polyphase
from polyphase import transforms as T
from polyphase.errors import UnknownNameError, WrongImageError
from tests.pipelines.chains import MEAN, STD, image

numpy = pytest.importorskip("numpy")
CHAIN = [T.Resize(64), T.CenterCrop(48), T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]


def pixels(seed: int) -> Any:
    return image(seed).permute(1, 2, 0).contiguous().numpy()


def objects(values: list[Any]) -> Any:
    made = numpy.empty(len(values), dtype=object)
    made[:] = values
    return made


def columns(count: int) -> dict[str, Any]:
    return {"image": objects([pixels(seed) for seed in range(count)]), "number": numpy.arange(count)}


def test_images_of_different_sizes_become_one_array() -> None:
    on_column = pickle.loads(pickle.dumps(polyphase.OnColumn(CHAIN, "image")))
    found, alone = on_column(columns(3)), polyphase.fuse(CHAIN)
    assert found["number"].tolist() == [0, 1, 2]
    assert found["image"].dtype == numpy.float32
    assert found["image"].shape == (3, 3, 48, 48)
    for seed in range(3):
        assert numpy.array_equal(found["image"][seed], alone(pixels(seed)).numpy())


def test_results_of_different_sizes_are_objects() -> None:
    found = polyphase.OnColumn(T.Resize(30), "image", "small")(columns(3))
    assert list(found) == ["image", "number", "small"]
    assert found["small"].shape == (3,)
    assert numpy.array_equal(found["small"][2], polyphase.fuse(T.Resize(30))(pixels(2)).numpy())


def test_arrays_are_read_where_they_lie() -> None:
    """One array of images of one size, as Arrow's memory is: nobody may write to it."""
    one = numpy.stack([pixels(1), pixels(1)[::-1]])
    one.flags.writeable = False
    found = polyphase.OnColumn(CHAIN, "image")({"image": one})["image"]
    assert numpy.array_equal(found[1], polyphase.fuse(CHAIN)(pixels(1)[::-1]).numpy())


def test_rows_that_cannot_be_done() -> None:
    given = columns(3) | {"image": objects([pixels(0), pixels(1)[..., :1], pixels(2)])}
    with pytest.raises(WrongImageError, match=r"image 1 of 3: .*1 channels.*convert"):
        polyphase.OnColumn(CHAIN, "image")(given)
    found = polyphase.OnColumn(CHAIN, "image", on_error="skip")(given)
    assert found["number"].tolist() == [0, 2]
    assert found["image"].shape == (2, 3, 48, 48)
    nothing = polyphase.OnColumn(CHAIN, "image", on_error="skip")({"image": given["image"][1:2]})
    assert len(nothing["image"]) == 0
    assert len(polyphase.OnColumn(CHAIN, "image")({"image": given["image"][:0]})["image"]) == 0


def test_columns_that_make_no_sense() -> None:
    with pytest.raises(UnknownNameError, match=r"column.*picture.*image"):
        polyphase.OnColumn(CHAIN, "picture")(columns(1))
    with pytest.raises(WrongImageError, match=r"bfloat16.*float16"):
        polyphase.OnColumn([*CHAIN, T.ToDtype(torch.bfloat16)], "image")(columns(2))


class _Killed(polyphase.OnColumn):
    """Its process dies once, at its second batch."""

    def __init__(self, flag: str, *given: Any) -> None:
        super().__init__(*given)
        self.flag, self.calls = Path(flag), 0

    def __call__(self, columns: Any) -> dict[str, Any]:
        self.calls += 1
        if self.calls == 2 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(columns)


@pytest.mark.full
def test_ray_data_and_a_worker_that_is_killed(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200_000_000, log_to_driver=False)
    try:
        data = ray.data.from_items([{"number": number, "image": pixels(number)} for number in range(24)])
        flag = tmp_path / "killed"
        actors = {"compute": ray.data.ActorPoolStrategy(size=1), "batch_size": 8}
        made = data.map_batches(_Killed, fn_constructor_args=(str(flag), CHAIN, "image"), **actors).take_all()
        by_tasks = data.map_batches(polyphase.OnColumn(CHAIN, "image"), batch_size=8).take_all()
        assert flag.exists()
        alone = polyphase.fuse(CHAIN)
        for rows in (made, by_tasks):
            found = {row["number"]: row["image"] for row in rows}
            assert sorted(found) == list(range(24))
            for number, picture in found.items():
                assert numpy.array_equal(picture, alone(pixels(number)).numpy())
    finally:
        ray.shutdown()
