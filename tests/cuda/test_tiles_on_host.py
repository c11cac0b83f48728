"""Tiles of bytes by products of matrices (`byte_tiles.h`), on the host: the CPU's bits, and tables to the bit."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from polyphase.calls import binding
from polyphase.cuda import emit, tiles, ways
from polyphase.cuda.made_tables import BEFORE_TABLE, GROUP, Form, bytes_before_weights, matrix_bytes
from polyphase.cuda.maps import Arranged, way_of_all
from polyphase.cuda.ways import Way
from polyphase.records.facts import facts
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import Binary, Cast, Channel, Number, Value
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.steps import Flip, Resize, Slice, Step
from tests.cpu.conftest import run_sanitised
from tests.cuda import host
from tests.cuda.axes import arranged, host_table, recipe_of, table_of

pytestmark = pytest.mark.usefixtures("architecture")
OUTPUTS = (torch.uint8, torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture
def architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYPHASE_CUDA_ARCH", host.ARCHITECTURE)


def drawn_map(draw: random.Random, size: int, out_size: int, antialias: bool) -> AxisMap:
    """Of crops and flips around a resize, by which `size` pixels become `out_size`."""
    resized = out_size + draw.randint(0, 9)
    first = draw.randint(0, size // 8)
    crop, begin = draw.randint(max(1, size // 2), size - first), draw.randint(0, resized - out_size)
    before: list[Step] = draw.choice([[], [Flip()], [Slice(first, first + crop)]])
    after = [Flip()] if draw.random() < 0.5 else []
    return AxisMap((*before, Resize(resized, "bilinear", antialias), Slice(begin, begin + out_size), *after))


def drawn_image(draw: random.Random, channels: int, size: Sequence[int], lie: str) -> Tensor:
    """planes or pixels, which end where their memory ends, or begin anywhere in larger ones."""
    height, width = size
    around = [draw.randint(0, 9) if lie.endswith("crop") else 0 for _ in range(4)]
    whole = (height + around[0] + around[1], width + around[2] + around[3])
    made = torch.Generator().manual_seed(draw.getrandbits(30))
    shape = (*whole, channels) if lie.startswith("pixels") else (channels, *whole)
    memory = torch.randint(0, 256, shape, generator=made, dtype=torch.uint8)
    image = memory.permute(2, 0, 1) if lie.startswith("pixels") else memory
    return image[:, around[0] :, around[2] :][:, :height, :width]


def epilogue(target: torch.dtype) -> Any:
    if target == torch.uint8:
        return Value()
    scaled = Binary("div", Cast(Value(), torch.float32), Number(255.0))
    return Cast(Binary("mul", scaled, Channel(0, torch.float32)), target)


def drawn_calls(number: int) -> tuple[list[tuple[Program, list[Tensor]]], str]:
    """A few of one kind."""
    draw = random.Random(number)
    channels, target, antialias = draw.choice((1, 2, 3, 3, 4)), draw.choice(OUTPUTS), draw.random() < 0.8
    lie = draw.choice(("planes", "pixels", "planes crop", "pixels crop"))
    out_size = [draw.randint(1, 90), draw.choice((draw.randint(1, 90), 4 * draw.randint(1, 20)))]
    calls: list[tuple[Program, list[Tensor]]] = []
    for _ in range(3):
        size = [max(8, int(n * draw.uniform(0.4, 3.3))) for n in out_size]
        axes = Axes(tuple(drawn_map(draw, *one, antialias) for one in zip(size, out_size, strict=True)))
        by = torch.linspace(0.5, 2, channels) + len(calls)  # of each its own
        program = Program(torch.uint8, axes, epilogue=epilogue(target))
        calls.append((program, [drawn_image(draw, channels, size, lie), *([by] if target != torch.uint8 else [])]))
    return calls, lie


def check(number: int) -> str:
    """What was launched for all."""
    calls, lie = drawn_calls(number)
    stream = host.Stream(backwards=number % 2 == 1)
    results = host.run_batch(stream, calls)
    for (program, inputs), result in zip(calls, results, strict=True):
        expected = binding.bind(program, tuple(map(facts, inputs))).fresh(*inputs)
        assert torch.equal(result, expected), f"{number}: {program} {inputs[0].shape} {lie}"
    return str(stream.kernels[-1].chosen.way.template) if stream.kernels[-1].chosen else ""


def run_all(first: int, count: int) -> None:
    for number in range(first, first + count):
        print(number)
        check(number)


@pytest.mark.parametrize("first", [0, *(pytest.param(40 * i, marks=pytest.mark.full) for i in range(1, 8))])
def test_the_cpus_bits(first: int) -> None:
    """Of images of several sizes, strides and places, small ones among them, and of all kinds of outputs."""
    count = 15 if first == 0 else 40
    launched = [check(number) for number in range(first, first + count)]
    assert launched.count(ways.TILES) > count // 2


@pytest.mark.parametrize("first", [0, *(pytest.param(60 * i, marks=pytest.mark.full) for i in range(1, 4))])
def test_sanitised(first: int) -> None:
    """Tensors, tables and shared memory end where they end."""
    run_sanitised(f"from tests.cuda.test_tiles_on_host import run_all; run_all({first}, {4 if first == 0 else 60})")


def test_matrices_made_on_the_device_are_the_hosts() -> None:
    """By crops and flips, and of as many inputs as two matrices have."""
    draw, most = random.Random(1), 0
    for number in range(60):
        out_size = draw.randint(1, 120)
        axis_map = drawn_map(draw, size := max(8, int(out_size * draw.uniform(0.4, 3.7))), out_size, antialias=True)
        made, along_x = recipe_of(axis_map, size, torch.uint8), number % 2 == 0
        call = _arranged(axis_map, size, along_x)
        way = way_of_all([call])
        if made is None or not way.tiled:
            continue
        by_host = table_of(call.by(way), "xy"[1 - along_x], torch.uint8)
        count = by_host.taps
        most = max(most, count)
        memory = torch.full((matrix_bytes(out_size, count),), 0xA5, dtype=torch.uint8)
        recipe = bytearray(made.by(count, Form.ALONG_X if along_x else Form.ALONG_Y).packed(memory.data_ptr()))
        parameters = bytearray(struct.pack("=2q", host.address_of(recipe), 1))
        threads = emit.TAP_THREADS
        host.run_blocks(emit.tap_maker_source(), parameters, (1, 1, 1), threads, 8 * threads, number % 4 > 1)
        ranges = memory[BEFORE_TABLE:].view(torch.int32)[: 2 * -(-out_size // GROUP)].view(-1, 2)
        weights = memory[bytes_before_weights(out_size) :]
        got = dense(ranges, weights, count, out_size, size, along_x)
        assert by_host.weight is not None
        assert by_host.precision == 16
        assert torch.equal(got, dense(by_host.first.view(-1, 2), by_host.weight, count, out_size, size, along_x))
        expected = host_table(axis_map, size, torch.uint8)
        exact = expected.dense().long() << (16 - expected.precision)
        assert torch.equal(got, exact.clamp(max=65535))
    assert most == tiles.MOST_MATRICES


def _arranged(axis_map: AxisMap, size: int, along_x: bool) -> Arranged:
    """Beside an axis of the narrowest windows, so that there are no more matrices than its own."""
    other = AxisMap((Resize(40, "bilinear", True),))
    maps, shape = ((other, axis_map), (40, size)) if along_x else ((axis_map, other), (size, 40))
    return arranged(maps, (1, *shape), torch.uint8)


def dense(ranges: Tensor, weights: Tensor, count: int, out_size: int, in_size: int, along_x: bool) -> Tensor:
    """Weights by output and input, read as lanes have them."""
    lanes = weights.view(
        len(ranges), count, 2, 8, 4, 2, 2, 4
    ).long()  # high and low, g, t, columns from 16 on, rows from 8 on
    numbers = 256 * lanes[:, :, 0] + lanes[:, :, 1]
    rows = numbers.permute(0, 5, 2, 1, 4, 3, 6).reshape(len(ranges), GROUP, count, 2, 4, 4)
    if along_x:  # lane t has inputs 8 t on, outputs 4 t on
        inputs = rows.permute(0, 1, 2, 4, 3, 5).reshape(len(ranges), GROUP, -1)
        outputs = inputs.view(len(ranges), 2, 4, 2, -1).permute(0, 2, 1, 3, 4)
    else:  # of 16 inputs, 2 t and 2 t + 1, and eight more
        inputs = rows.view(len(ranges), GROUP, count, 2, 4, 2, 2).permute(0, 1, 2, 3, 5, 4, 6)
        outputs = inputs
    outputs = outputs.reshape(len(ranges) * GROUP, -1)[:out_size]
    made = torch.zeros(out_size, in_size + outputs.shape[1], dtype=torch.int64)
    places = ranges[:, 0].long().repeat_interleave(GROUP)[:out_size, None] + torch.arange(outputs.shape[1])
    made.scatter_(1, places, outputs)
    assert not made[:, in_size:].any()
    ends = ranges[:, 1].long().repeat_interleave(GROUP)[:out_size, None]
    assert not made[:, :in_size][torch.arange(in_size)[None] >= ends].any()
    return made[:, :in_size]


@pytest.mark.parametrize(("shared_bytes", "at_once"), [(228, 5), (100, 2), (32, 1)])
def test_as_many_blocks_as_a_device_has_at_once(shared_bytes: int, at_once: int) -> None:
    way = Way("byte_tiles", ways.TILES, (), 128, resident=5)
    assert tiles.most_blocks(way, 2208, 100, shared_bytes * 1024) == 100 * at_once


@pytest.mark.parametrize("blocks", [1, 7, 40, 660, 5000])
def test_blocks_have_as_much_to_do(blocks: int) -> None:
    """All tiles, of all costs together as much for each block, but for a turn; and few begin with their dearest."""
    draw = random.Random(blocks)
    shapes = [draw.choice(tiles.SHAPES) for _ in range(64)]
    images = [tiles.Listed(*one, draw.randint(16, 60) * one[1], 14, 15) for one in shapes]
    costs = {(i, number): cost for i, one in enumerate(images) for number, cost in enumerate(one.costs())}
    dealt = tiles.dealt(images, blocks)
    assert sorted(dealt) == sorted(costs)
    blocks = min(blocks, len(dealt))
    turns = len(dealt) // blocks
    sums = [sum(costs[one] for one in dealt[block : turns * blocks : blocks]) for block in range(blocks)]
    assert max(sums) - min(sums) <= 2 * max(costs.values())
    if turns in range(2, 20):
        hands = [[costs[one] for one in dealt[block::blocks]] for block in range(blocks)]
        assert sum(own[0] == max(own) for own in hands) < blocks // 2


def test_precision_of_what_is_cut_into_tiles() -> None:
    """Weights have 16 bits: of windows that groups of outputs read by two matrices, the greatest is more than 1/4."""
    for resized in range(1, 40):
        sizes = [n for n in range(1, 4 * resized + 4) if tiles.matrices_of(n, resized) <= tiles.MOST_MATRICES]
        for size in sizes[-4:]:
            step = AxisMap((Resize(resized, "bilinear", True),))
            assert host_table(step, size, torch.uint8).precision <= 16
