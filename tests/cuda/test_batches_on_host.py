"""Batches of images of several sizes, by CUDA's kernels on the host: one launch, and the CPU's pictures."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from polyphase import arguments
from polyphase import transforms as T
from polyphase.calls import binding, devices
from polyphase.cpu import launch, wing
from polyphase.cuda import batches, emit, items
from polyphase.cuda.made_tables import BEFORE_TABLE, RECIPE_BYTES, Form, bytes_before_weights, table_bytes
from polyphase.errors import WrongImageError
from polyphase.sampling.axis_maps import AxisMap, AxisPath
from polyphase.sampling.programs import Axes, Program, warp_program
from polyphase.sampling.steps import Flip, Pad, Resize, Slice
from tests.cuda import host
from tests.cuda.axes import Recipe, host_table, recipe_of

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SCALED: list[Any] = [T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[host.Stream]:
    """Batches of tensors on the CPU go the way of CUDA's, on a stream of the host."""
    monkeypatch.setenv("POLYPHASE_CUDA_ARCH", host.ARCHITECTURE)
    made = host.Stream()
    made.driver.install(tmp_path, monkeypatch)
    ways: dict[str, Any] = {"bind_batched": batches.bind, "of_size": items.of_size, "bind_like": batches.bind_like}
    ways["makes_patchwork"] = False
    ways["launch_all"] = lambda *calls: batches.launch_on(made, batches.Calls.of(calls))
    ways["launch_into"] = lambda *given: batches.launch_into_on(made, *given)
    stand_in = dataclasses.replace(wing.WING, **ways)
    monkeypatch.setattr(devices, "_load", lambda device: stand_in)
    monkeypatch.setattr(launch.Sized, "teach", lambda *given: False)  # CUDA has none of its own
    binding.bound.cache_clear()
    yield made
    binding.bound.cache_clear()


def images(count: int, least: int, most: int, seed: int = 0, dtype: torch.dtype = torch.uint8) -> list[Tensor]:
    draw, made = random.Random(seed), torch.Generator().manual_seed(seed)
    sizes = [(draw.randint(least, most), draw.randint(least, most)) for _ in range(count)]
    return [(torch.rand(3, *size, generator=made) * 255).to(dtype) for size in sizes]


def templates(stream: host.Stream) -> list[str]:
    """Of what was launched since the last time."""
    found = ["tables" if kernel.chosen is None else kernel.chosen.way.template for kernel in stream.kernels]
    stream.kernels.clear()
    return found


def drawn(function: Callable[[], Any]) -> Any:
    torch.manual_seed(3)
    random.seed(3)
    return function()


CHAINS: dict[str, tuple[list[Any], list[str]]] = {
    "evaluation": ([T.Resize(25), T.CenterCrop(22), *SCALED], ["ByteTiles"]),
    "training": ([T.RandomResizedCrop(20), T.RandomHorizontalFlip(), T.RandomVerticalFlip(), *SCALED], ["ByteTiles"]),
    "crops": ([T.RandomCrop(16), T.RandomHorizontalFlip(), T.ToDtype(torch.float32, scale=True)], ["Moved"]),
    "borders": ([T.Resize(20), T.CenterCrop(30)], ["ByteStages"]),
    "warps": ([T.RandomAffine(30, scale=(0.8, 1.2), interpolation="bilinear"), T.CenterCrop(16)], ["Warp"]),
    "two": ([T.Resize((24, 28)), T.RandomRotation(40)], ["ByteTiles", "Warp"]),
    "cubic": ([T.Resize((40, 44), interpolation="bicubic")], ["ByteStages"]),
    "many taps": ([T.Resize((5, 6), interpolation="bicubic")], ["General"]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_cpus_pictures_by_one_launch(name: str, stream: host.Stream) -> None:
    chain, launched = CHAINS[name]
    pipeline, some = polyphase.fuse(chain), images(4, 30, 60)
    expected = drawn(lambda: [pipeline(one) for one in some])
    for again in (False, True):
        got = drawn(lambda: pipeline.batch(some))
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
        seen = again and name != "training"  # random crops are always new
        assert [one for one in templates(stream) if one != "tables" or seen] == launched
    stream.backwards = True
    binding.bound.cache_clear()
    assert torch.equal(drawn(lambda: polyphase.fuse(chain).batch(some)), got)


def test_floats_and_pixels_and_views(stream: host.Stream) -> None:
    chain = [T.Resize((21, 19)), T.Normalize(MEAN, STD)]
    some = images(3, 30, 90, dtype=torch.float32)
    got = polyphase.fuse(chain).batch(some, channels_last=True)
    assert got.is_contiguous(memory_format=torch.channels_last)
    for one, picture in zip(some, got, strict=True):
        torch.testing.assert_close(picture, polyphase.fuse(chain)(one), rtol=0, atol=1e-3)
    pixels = [one.permute(1, 2, 0).contiguous().permute(2, 0, 1) for one in images(3, 30, 90)]
    views = [one[:, 3:, 5:] for one in images(3, 40, 60, seed=5)]
    pipeline = polyphase.fuse([T.Resize((21, 19))])
    for given in (pixels, [*pixels, *views, *images(1, 8, 9)]):
        got = pipeline.batch(given)
        assert all(torch.equal(a, pipeline(b)) for a, b in zip(got, given, strict=True))


def test_warps_of_several_batches_and_heights(stream: host.Stream) -> None:
    """By one launch, which has blocks for the most images of a call, and for the highest."""
    calls: list[tuple[Program, list[Tensor]]] = []
    for batch, height in ((1, 90), (3, 20), (2, 41)):
        image, matrix = torch.rand(batch, 3, 30, 40), torch.randn(batch, 2, 3)
        sampler = arguments.affine_warp(image, matrix, (batch, 3, height, 50), "bilinear", "zeros", True)
        calls.append((warp_program(image.dtype, sampler), [image, matrix]))
    results = host.run_batch(stream, calls)
    assert templates(stream) == ["Warp"]
    for result, (program, inputs) in zip(results, calls, strict=True):
        assert torch.equal(result, host.run(program, *inputs))


@pytest.mark.usefixtures("stream")
def test_sizes_that_were_not_seen_are_like_those_that_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is bound for them. What they become is what they would have become alone."""
    pipeline = polyphase.fuse([T.Resize(80), T.CenterCrop(72), *SCALED])
    expected = [pipeline(one) for one in images(6, 70, 210, seed=1)]
    pipeline.batch(images(6, 70, 210, seed=2))
    monkeypatch.setattr(items.Item, "__init__", None)
    got = pipeline.batch(images(6, 70, 210, seed=1))
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.usefixtures("stream")
def test_random_crops_are_like_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a batch needs no binding, also where what is done to each image is another thing."""
    flips = [T.RandomHorizontalFlip(), T.RandomVerticalFlip()]
    pipeline, some = polyphase.fuse([T.RandomResizedCrop(48), *flips, *SCALED]), images(12, 70, 130)
    expected, bound = drawn(lambda: [pipeline(one) for one in some]), list[Any]()
    original = items.Item.__init__

    def counted(item: items.Item, record: Any) -> None:
        bound.append(record)
        original(item, record)

    monkeypatch.setattr(items.Item, "__init__", counted)
    for most in (8, 1, 1):  # which flips there are, and windows of few taps and of more
        got = drawn(lambda: pipeline.batch(some))
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
        assert len(bound) <= most
        bound.clear()


@pytest.mark.usefixtures("stream")
def test_an_item_of_another_size() -> None:
    """Backwards too, by the bytes that a call of its own would have, and tables by the same numbers."""
    whole = AxisPath.whole(131)
    paths = [path for one in (whole, whole.flip().crop(3, 120)) for path in (one.resize(70).crop(4, 60),)]
    paths += [one.flip() for one in paths]
    resize = AxisMap((Resize(70, "bilinear", True), Slice(3, 63)))
    like = items.Item(host.record_for(_program(resize, resize), [torch.zeros(3, 100, 120, dtype=torch.uint8)]))
    chosen = items.chosen_for(like.of(True).kind, frozenset([like.of(True).need]))
    image = torch.zeros(3, 131, 131, dtype=torch.uint8)
    for rows in paths:
        for columns in paths:
            record = host.record_for(_program(rows.map_like(resize), columns.map_like(resize)), [image])
            other = items.of_size(like, record.image, (rows, columns))
            assert other is not None
            assert other.record.program == record.program
            own, by_pattern = items.Item(record).prepared(chosen, True), other.prepared(chosen, True)
            assert isinstance(by_pattern, items.SizedCall)
            assert own.nbytes == by_pattern.nbytes
            (own_row, own_recipes), (row, recipes) = own.row(host._on_host, 4096), by_pattern.row(None, 4096)
            assert row.filled == own_row.filled
            half = RECIPE_BYTES
            assert {recipes[:half], recipes[half:]} == {own_recipes[:half], own_recipes[half:]}
    assert items.of_size(like, record.image, (rows, whole)) is None, "which is not resized"
    assert items.of_size(like, record.image._replace(strides=(1, 1000, 7)), (rows, columns)) is None


def _program(rows: AxisMap, columns: AxisMap) -> Program:
    return Program(torch.uint8, Axes((rows, columns)))


def test_results_of_several_sizes(stream: host.Stream) -> None:
    some, pipeline = images(3, 30, 60), polyphase.fuse([T.Resize(20)])
    got = pipeline.batch(some, as_list=True)
    assert all(torch.equal(a, pipeline(b)) for a, b in zip(got, some, strict=True))
    assert templates(stream).count("ByteTiles") == 1
    with pytest.raises(WrongImageError, match="image 1 becomes"):
        pipeline.batch(some)
    grey = torch.zeros(1, 40, 50, dtype=torch.uint8)
    chain = polyphase.fuse([T.Resize((20, 20)), *SCALED])
    for given, number in (([grey, *some], 0), ([*some, grey], 3)):
        with pytest.raises(WrongImageError, match=f"image {number} of 4: .*1 channels"):
            chain.batch(given)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_tables_made_on_the_device_are_the_hosts(dtype: torch.dtype) -> None:
    """To the bit, of crops before and after, turned round, by windows of any width."""
    draw = random.Random(0)
    for number in range(40):
        size, resized = draw.randint(20, 400), draw.randint(3, 200)
        crop, part = draw.randint(10, size), draw.randint(1, resized)
        first, begin = draw.randint(0, size - crop), draw.randint(0, resized - part)
        steps: list[Any] = [Slice(first, first + crop), Resize(resized, draw.choice(["bilinear", "bicubic"]), True)]
        steps = [*draw.choice([[], [Flip()]]), *steps, Slice(begin, begin + part), *draw.choice([[], [Flip()]])]
        axis_map = AxisMap(tuple(steps))
        recipe, expected = recipe_of(axis_map, size, dtype), host_table(axis_map, size, dtype)
        if recipe is None:
            assert expected.taps > size // 3, "only wide windows are left out"
            continue
        wider, in_fours = min(size, recipe.taps + number % 3), 4 * (recipe.taps // 4 + 2)
        for own in (recipe, recipe.by(wider, Form.WINDOWS), recipe.by(in_fours, Form.IN_FOURS)):
            in_short = own.taps == in_fours
            if in_short and dtype != torch.uint8:
                continue
            got, precision = _dense(own, size, in_short, number % 2 == 1)
            assert torch.equal(got, expected.dense())
            assert not own.quantised or precision == expected.precision


def _dense(recipe: Recipe, in_size: int, in_short: bool, backwards: bool) -> tuple[Tensor, int]:
    out_size, taps = recipe.out_size, recipe.taps
    memory = torch.full((table_bytes(out_size, taps * (2 if in_short else 4)) // 4,), -7, dtype=torch.int32)
    packed = bytearray(recipe.packed(memory.data_ptr()))
    parameters = bytearray(struct.pack("=2q", host.address_of(packed), 1))
    threads = emit.TAP_THREADS
    host.run_blocks(emit.tap_maker_source(), parameters, (1, 1, 1), threads, 8 * threads, backwards)
    first = memory[BEFORE_TABLE // 4 :][:out_size]
    kind = (torch.int16 if in_short else torch.int32) if recipe.quantised else torch.float32
    weight = memory[bytes_before_weights(out_size) // 4 :].view(kind)[: out_size * taps].view(out_size, taps)
    matrix = torch.zeros(out_size, in_size + taps, dtype=torch.float64)
    matrix.scatter_(1, first.long()[:, None] + torch.arange(taps), weight.double())
    assert not matrix[:, in_size:].any()
    return matrix[:, :in_size], int(memory[0])


def test_what_has_no_table_on_the_device() -> None:
    others: list[list[Any]] = [
        [Flip()],
        [Resize(20, "bilinear")],
        [Resize(20, "lanczos", True)],
        [Resize(20, "bilinear", True), Pad(1, 1, "reflect")],
        [Resize(20, "bilinear", True, box=(1.5, 40))],
    ]
    for steps in others:
        assert recipe_of(AxisMap(tuple(steps)), 50, torch.uint8) is None
    assert recipe_of(AxisMap((Resize(20, "bilinear", True),)), 50, torch.float64) is None
    assert recipe_of(AxisMap((Resize(1, "bicubic", True),)), 50, torch.uint8) is None


# ---- sizes that are followed in C++


def as_pixels(some: list[Tensor]) -> list[Tensor]:
    return [one.permute(1, 2, 0).contiguous().permute(2, 0, 1) for one in some]


SIZED: dict[str, tuple[list[Any], str]] = {
    "tiles": ([T.Resize(50), T.CenterCrop((44, 40)), *SCALED], "ByteTiles"),
    "grows": ([T.Resize((200, 210))], "ByteTiles"),
    "cubic": ([T.CenterCrop(64), T.Resize((60, 50), interpolation="bicubic"), T.CenterCrop(48)], "ByteStages"),
    "ring": ([T.Resize(22), T.CenterCrop(20), T.ToDtype(torch.float32, scale=True)], "ByteRing"),
}


#: Where what becomes pixels has no tiles: of planes, and of pixels.
TO_PIXELS = {
    "tiles": ("ByteRing", "ByteStages"),
    "grows": ("ByteRing", "ByteStage"),
    "cubic": ("ByteRing", "ByteStages"),
}


@pytest.mark.parametrize("lie", ["planes", "pixels", "grey", "to pixels", "pixels to pixels"])
@pytest.mark.parametrize("name", SIZED)
def test_new_sizes_are_followed_without_python(name: str, lie: str, stream: host.Stream, no_calls: list[Any]) -> None:
    """Into the CPU's pictures, by one launch and one for tables; of sizes that were seen, by one."""
    chain, template = SIZED[name]
    chain = [one for one in chain if lie != "grey" or not isinstance(one, T.Normalize)]
    pipeline, to_pixels = polyphase.fuse(chain), "to pixels" in lie

    def made(seed: int) -> list[Tensor]:
        some = [one[:1] for one in images(5, 100, 170, seed)] if lie == "grey" else images(5, 100, 170, seed)
        return as_pixels(some) if lie.startswith("pixels") else some

    for seed in (1, 4):  # higher than wide, and wider than high
        pipeline.batch(made(seed), channels_last=to_pixels)
    expected = {seed: [pipeline(one) for one in made(seed)] for seed in (2, 3)}
    templates(stream)
    no_calls.append("from now on")
    template = TO_PIXELS.get(name, (template, template))[lie.startswith("pixels")] if to_pixels else template
    for seed, launched in ((2, ["tables", template]), (2, [template]), (3, ["tables", template])):
        got = pipeline.batch(made(seed), channels_last=to_pixels)
        assert templates(stream) == launched
        assert all(torch.equal(a, b) for a, b in zip(got, expected[seed], strict=True))


def test_windows_along_x_that_are_narrower_than_the_kernels(stream: host.Stream, no_calls: list[Any]) -> None:
    """They are read as far as those along y are wide, and nothing behind shared memory is."""
    pipeline = polyphase.fuse([T.Resize((16, 70))])

    def made(sizes: list[tuple[int, int]]) -> list[Tensor]:
        return as_pixels([torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in sizes])

    pipeline.batch(made([(134, 138), (93, 71)]))
    assert templates(stream) == ["tables", "ByteRing"]
    no_calls.append("from now on")
    some = made([(135, 72), (130, 75)])
    assert all(torch.equal(a, pipeline(b)) for a, b in zip(pipeline.batch(some), some, strict=True))


@pytest.fixture
def no_calls(stream: host.Stream, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """From when something is in this list, nothing is launched by Python."""
    found, original = list[Any](), batches.launch_into_on

    def launch_into_on(*given: Any) -> None:
        assert not found, "by Python"
        original(*given)

    monkeypatch.setattr(batches, "launch_into_on", launch_into_on)
    return found


@pytest.mark.parametrize("blocks", [1, 3, 8, 1000])
def test_tiles_are_dealt_out_alike(blocks: int, stream: host.Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Python, which the first call goes by, and by the launcher."""
    lists: list[bytes] = []

    def listed(kernel: batches.Kernel, address: int, number: int) -> None:
        if kernel.chosen is not None:
            lists.append(ctypes.string_at(address - 8 * number, 8 * number))

    monkeypatch.setattr(stream, "most_blocks", lambda chosen: blocks)
    monkeypatch.setattr(stream, "run", listed)
    pipeline, some = polyphase.fuse([T.Resize(150), T.CenterCrop((100, 140)), *SCALED]), images(6, 140, 500)
    for _ in range(3):  # of new sizes, of new ones to the launcher, and of those it has seen
        pipeline.batch(some)
    assert lists[0] == lists[1] == lists[2]
    tiles = list(struct.iter_unpack("=2i", lists[0]))
    assert len(set(tiles)) == len(tiles) > 6 * 9


def test_what_cannot_be_followed_goes_beside(stream: host.Stream) -> None:
    """Small images, those that are not resized, views of which rows are far apart, windows of many taps."""
    pipeline, some = polyphase.fuse([T.Resize(70), T.CenterCrop(64), *SCALED]), images(4, 90, 200)
    far = torch.randint(0, 255, (3, 2, 1 << 22), dtype=torch.uint8)[:, :, :90].expand(3, 2, 90)
    others = [*images(1, 60, 63, 1), torch.zeros(3, 70, 90, dtype=torch.uint8), *images(1, 600, 610, 2), far]
    pipeline.batch(some)
    for given in ([*some, *others], [*others[::-1], *some], others, images(3, 90, 200, 3)):
        for _ in range(2):
            got = pipeline.batch(given)
            assert all(torch.equal(a, pipeline(b)) for a, b in zip(got, given, strict=True))
    templates(stream)
    pipeline.batch([*images(3, 90, 200, 4), *images(2, 500, 600, 5)])
    assert sorted(templates(stream)) == ["ByteRing", "ByteTiles", "tables", "tables"]


def test_outputs_that_are_given(stream: host.Stream) -> None:
    """Also where they begin anywhere, which another kernel may be for, and with others between."""
    pipeline, memory = polyphase.fuse([T.Resize(70), T.CenterCrop(64)]), torch.zeros(8 * 3 * 64 * 64 + 16).byte()
    for begin, step in ((0, 1), (0, 2), (3, 1), (16, 1), (3, 2)):
        out = memory[begin:][: 8 * 3 * 64 * 64].view(8, 3, 64, 64)[::step][:4]
        for seed in (0, 1, 2):
            some = images(4, 90, 200, seed)
            memory.fill_(7)
            assert pipeline.batch(some, out) is out
            assert all(torch.equal(a, pipeline(b)) for a, b in zip(out, some, strict=True))
            assert not memory[:begin].ne(7).any()


def test_streams_graphs_and_what_is_forgotten(stream: host.Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are a stream's. A graph's are Python's, which keeps them. Those of many sizes are made anew."""
    pipeline, number = polyphase.fuse([T.Resize(66), T.CenterCrop((64, 4))]), [0]
    monkeypatch.setattr(stream.memory, "stream_of", lambda device: number[0])
    some = images(3, 90, 120)
    expected = torch.stack([pipeline(one) for one in some])

    def launches() -> int:
        templates(stream)
        assert torch.equal(pipeline.batch(some), expected)
        return len(templates(stream))

    for number[0], launched in ((0, 2), (0, 2), (0, 1), (5, 2), (5, 1), (0, 1)):  # the first time by Python
        assert launches() == launched
    (sheet,) = pipeline._sheets.values()
    (launch,) = sheet._launches.values()
    assert launch is not None
    for stream.driver.captures, number[0], left in ((1, 5, None), (1, 0, ()), (0, 5, ())):
        assert launch(torch.zeros_like(expected), tuple(some), None) == left
    many = [torch.zeros(3, 70 + i // 40, 70 + i % 40, dtype=torch.uint8) for i in range(1040)]
    with monkeypatch.context() as patched:
        patched.setattr(host, "run_blocks", lambda *given: None)
        for one in range(0, len(many), 520):
            pipeline.batch(many[one : one + 520])
    assert [launches(), launches()] == [2, 1]


def test_tables_of_captured_graphs_are_no_part_of_them(stream: host.Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made once for all graphs, and are not a stream's own, which may be gone when a graph is replayed. They
    lie one behind the other in memory that is never freed."""
    monkeypatch.setattr(stream.memory, "stream_of", lambda device: 5)
    pipeline, some = polyphase.fuse([T.Resize(66), T.CenterCrop(64)]), images(3, 90, 120)
    expected = torch.stack([pipeline(one) for one in some])
    pipeline.batch(some)
    stream.capture(monkeypatch)
    for made in (6, 6):  # two a picture
        templates(stream)
        assert torch.equal(pipeline.batch(some), expected)
        (launched,) = templates(stream)
        assert launched != "tables"
        assert stream.made_at_once == made
    pipeline.batch(images(3, 90, 120, seed=1))
    del pipeline
    binding.forget()
    gc.collect()
    assert not stream.freed


def test_launches_by_size_that_go_wrong(stream: host.Stream) -> None:
    pipeline, some = polyphase.fuse([T.Resize(66), T.CenterCrop((64, 4))]), images(3, 90, 120)
    pipeline.batch(some)

    (sheet,) = pipeline._sheets.values()
    (launch,) = sheet._launches.values()
    assert launch is not None
    wrong: list[Any] = [(), (some[0], some, None), (some[0], tuple(some), (7,)), (some[0], (1, 2), None)]
    for given in wrong:
        with pytest.raises((ValueError, TypeError, SystemError, IndexError, AttributeError)):
            launch(*given)
    stream.driver.status = 1
    with pytest.raises(ValueError, match="refused"):
        pipeline.batch(some)
    stream.driver.status = 0
    expected = torch.stack([pipeline(one) for one in some])
    assert torch.equal(pipeline.batch(some), expected), "tables that were not made are not taken for made"
