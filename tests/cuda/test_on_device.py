"""CUDA kernels on a GPU, against the CPU's and against eager's. `pytest tests/cuda` on a machine that has one."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase
import polyphase.functional as P
from polyphase import transforms as T

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

AA: dict[str, Any] = {"mode": "bilinear", "antialias": True}
MODES: list[dict[str, Any]] = [
    AA,
    {"mode": "bicubic", "antialias": True},
    {"mode": "bilinear", "align_corners": True},
    {"mode": "bicubic", "align_corners": False},
    {"mode": "nearest"},
    {"mode": "nearest-exact"},
    {"mode": "area"},
]
MOST = {torch.float32: 2e-3, torch.float64: 1e-10, torch.float16: 0.6, torch.bfloat16: 3.0}  # of values up to 255


def images(seed: int, count: int) -> list[tuple[Tensor, tuple[int, int], dict[str, Any]]]:
    rng, found = random.Random(seed), []
    for _ in range(count):
        dtype = rng.choice([torch.uint8, *MOST])
        shape = (rng.randint(1, 3), rng.choice([1, 2, 3, 4, 8, 17]), rng.randint(1, 70), rng.randint(1, 90))
        x = (torch.rand(shape, generator=torch.Generator().manual_seed(rng.getrandbits(30))) * 255).to(dtype)
        layout = rng.randrange(4)
        if layout == 1:
            x = x.contiguous(memory_format=torch.channels_last)
        elif layout == 2:
            x = x[:, :, rng.randrange(shape[2]) :, rng.randrange(shape[3]) :]
        elif layout == 3:
            x = x.transpose(2, 3)
        found.append((x, (rng.randint(1, 100), rng.randint(1, 100)), rng.choice(MODES)))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_as_the_cpu(seed: int) -> None:
    for x, size, options in images(seed, 60):
        if x.dtype == torch.uint8 and options["mode"] == "area":
            continue
        on_device = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda").copy_(x)
        expected, got = P.interpolate(x, size=size, **options), P.interpolate(on_device, size=size, **options)
        assert got.stride() == expected.stride()
        if x.dtype == torch.uint8:
            assert torch.equal(got.cpu(), expected), (x.shape, size, options)
        elif not (x.dtype == torch.float64 and "nearest" in options["mode"]):  # whose ratio is another on CUDA
            assert (got.cpu().double() - expected.double()).abs().max() <= MOST[x.dtype], (x.shape, size, options)


@pytest.mark.parametrize("options", MODES, ids=str)
def test_accelerated_code_agrees_with_eager(options: dict[str, Any]) -> None:
    x = torch.rand(2, 3, 64, 96, device="cuda")
    before = polyphase.stats()["kernels_launched"]
    with polyphase.accelerate(check=True):
        for image in (x, x.half(), x.double(), x.contiguous(memory_format=torch.channels_last)):
            leaf = image.clone().requires_grad_()
            F.interpolate(leaf, size=(31, 47), **options).sum().backward()
        torch.flip(x, (-1, 0))
        F.pad(x, (1, 2, 3, 4), mode="reflect")
        F.grid_sample(x, torch.rand(2, 5, 5, 2, device="cuda"), align_corners=True)  # which is ATen's
    assert polyphase.stats()["kernels_launched"] > before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_large_shrinks_of_half_precision(dtype: torch.dtype) -> None:
    """For which ATen's own kernel has no room. Sums of thousands of products are rounded on the way."""
    most = max(2 * torch.finfo(dtype).eps, MOST[torch.float32] / 255)
    for mode, shape, size in (("bicubic", (1, 5, 5, 1024), (16, 5)), ("bilinear", (2, 3, 4000, 9), (2, 7))):
        x = torch.rand(shape, device="cuda").to(dtype)
        with polyphase.accelerate(check=True):
            leaf = x.clone().requires_grad_()
            got = F.interpolate(leaf, size=size, mode=mode, antialias=True)
            got.sum().backward()
        expected = F.interpolate(x.cpu().double(), size=size, mode=mode, antialias=True)
        assert (got.detach().cpu().double() - expected).abs().max() <= most


def test_accelerated_calls_that_are_known_are_those_of_python() -> None:
    """Made from the dispatcher, without Python: on the stream of the caller, backward in a thread of torch's own."""
    x = torch.rand(2, 3, 64, 96, device="cuda")
    grid = torch.rand(2, 5, 5, 2, device="cuda") * 2.2 - 1.1
    shifted = torch.rand(2 * 3 * 64 * 96 + 1, device="cuda")[1:].view(2, 3, 64, 96)  # not aligned

    def calls(image: Tensor) -> list[Tensor]:
        leaf = image.detach().requires_grad_()
        resized = F.interpolate(leaf, size=(53, 63), **AA)
        resized.square().sum().backward()
        assert leaf.grad is not None
        warped = [F.grid_sample(image, grid, align_corners=corners) for corners in (False, True)]
        return [resized.detach(), leaf.grad, torch.flip(image, (-1,)), F.pad(image, (1, 2, 3, 4), "reflect"), *warped]

    with polyphase.accelerate():
        for image in (x, shifted):
            first = calls(image)
            for _ in range(6):
                again = calls(image)
            assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
        first, stream = calls(x), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            elsewhere = calls(x)
        stream.synchronize()
        assert all(torch.equal(*pair) for pair in zip(first, elsewhere, strict=True))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = F.interpolate(x, size=(53, 63), **AA)
        x.uniform_()
        graph.replay()
        torch.testing.assert_close(captured, F.interpolate(x, size=(53, 63), **AA))
        with pytest.raises(IndexError):
            torch.flip(x, (7,))


def test_gradients_are_the_same_bits_every_time() -> None:
    x = torch.rand(2, 8, 40, 50, device="cuda", requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        result = P.interpolate(x, size=(90, 33), **AA)
        upward = torch.rand_like(result)
        first, *others = [torch.autograd.grad(result, x, upward, retain_graph=True)[0] for _ in range(5)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(first, one) for one in others)


def test_a_size_first_met_while_a_graph_is_captured() -> None:
    x = torch.rand(2, 3, 64, 96, device="cuda")
    P.interpolate(x, size=(50, 60), **AA)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = P.interpolate(x, size=(51, 61), **AA)
    polyphase.calls.binding.forget()
    x.uniform_()
    graph.replay()
    torch.testing.assert_close(result, F.interpolate(x, size=(51, 61), **AA))


def test_other_streams_and_threads() -> None:
    x, found = torch.rand(2, 3, 64, 96, device="cuda"), []

    def call() -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            found.append(P.interpolate(x, size=(52, 62), **AA))
        stream.synchronize()

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    torch.testing.assert_close(found[0], F.interpolate(x, size=(52, 62), **AA))


@pytest.mark.parametrize("size", [(33, 40), (345, 456)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
def test_kernels_that_begin_early_wait(dtype: torch.dtype, size: tuple[int, int]) -> None:
    """For those before them, whose result they read, and whose image lay where they write: as one by one, on a stream
    and in a graph."""
    matrix = torch.tensor([[[0.8, 0.4, 0.1], [-0.4, 0.8, 0.0]]], device="cuda")
    warp: dict[str, Any] = {"padding_mode": "reflection", "align_corners": False}
    larger = (size[0] + 7, size[1] + 9)
    steps: list[Any] = [
        *[lambda x: P.affine_sample(x, matrix, x.shape, **warp)] * 3,
        lambda x: P.flip(x, (-1,)),
        lambda x: P.interpolate(x, size=larger, **AA),
        lambda x: P.interpolate(x, size=size, mode="bicubic"),
        lambda x: P.affine_sample(x, matrix * 1, x.shape, mode="bicubic", **warp),
        lambda x: x + 1,
        lambda x: P.interpolate(x, size=(larger[1], larger[0]), mode="bilinear"),
        lambda x: P.interpolate(x, size=size, mode="nearest"),
    ]

    def chain(image: Tensor, after: Any = lambda: None) -> Tensor:
        for step in steps * 12:
            image = step(image)
            after()
        return image

    x = (torch.rand(1, 3, *size, device="cuda") * 255).to(dtype)
    one_by_one = chain(x, torch.cuda.synchronize)
    for _ in range(3):
        torch.cuda._sleep(1 << 24)  # clocks, in which launches gather
        assert torch.equal(chain(x), one_by_one)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = chain(x)
    for _ in range(3):
        captured.zero_()
        graph.replay()
        assert torch.equal(captured, one_by_one)


def test_what_eager_refuses() -> None:
    assert P.interpolate(torch.rand(1, 3, 4096, 4096, device="cuda"), size=(16, 16), **AA).shape == (1, 3, 16, 16)
    many = torch.rand(70_000, 1, 3, 3, device="cuda")
    expected = F.interpolate(many.cpu(), size=(6, 6), mode="bilinear")
    torch.testing.assert_close(P.interpolate(many, size=(6, 6), mode="bilinear").cpu(), expected)


def test_what_is_not_aligned() -> None:
    whole = torch.randint(0, 255, (3 * 50 * 64 + 5,), dtype=torch.uint8, device="cuda")
    x = whole[5:].view(1, 3, 50, 64)
    assert torch.equal(P.interpolate(x, size=(20, 30), **AA).cpu(), P.interpolate(x.cpu(), size=(20, 30), **AA))
    assert torch.equal(P.flip(x, (-1,)).cpu(), P.flip(x.cpu(), (-1,)))


# ---- batches of images of several sizes

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CHAINS: dict[str, list[Any]] = {
    "evaluation": [T.Resize(80), T.CenterCrop(72), T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)],
    "training": [T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToDtype(torch.float32, scale=True)],
    "crops": [T.RandomCrop(40), T.RandomVerticalFlip()],
    "bicubic": [T.Resize((30, 40), interpolation="bicubic"), T.Pad(3, padding_mode="reflect")],
}


def pictures(seed: int, count: int = 6) -> list[Tensor]:
    rng = random.Random(seed)
    return [
        torch.randint(0, 256, (3, rng.randint(85, 300), rng.randint(85, 300)), dtype=torch.uint8) for _ in range(count)
    ]  # none that `Resize(80)` leaves as it is: that would be a launch of its own


def drawn(function: Any) -> Any:
    torch.manual_seed(1)
    random.seed(1)
    return function()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CHAINS)
def test_pipelines_give_the_cpus_pictures(name: str, seed: int) -> None:
    """One by one, and by one launch; new sizes take another, which makes their tables, and so does what C has learned
    from the first batch. Random crops are always new."""
    pipeline, some = polyphase.fuse(CHAINS[name]), pictures(seed)
    there = [one.cuda() for one in some]
    expected = drawn(lambda: [pipeline(one) for one in some])
    single = drawn(lambda: [pipeline(one) for one in there])
    assert all(torch.equal(a.cpu(), b) for a, b in zip(single, expected, strict=True))
    for most in (2, 2, 2 if name == "training" else 1):
        before = polyphase.stats()["kernels_launched"]
        got = drawn(lambda: pipeline.batch(there))
        assert polyphase.stats()["kernels_launched"] - before <= most
        assert all(torch.equal(a.cpu(), b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("lie", ["planes", "pixels"])
@pytest.mark.parametrize("name", ["evaluation", "many taps"])
def test_new_sizes_give_the_cpus_pictures(name: str, lie: str) -> None:
    """By one call into C, which makes tables on every stream anew."""
    chains = {**CHAINS, "many taps": [T.Resize((12, 13)), T.ToDtype(torch.float32, scale=True)]}
    pipeline, streams = polyphase.fuse(chains[name]), [torch.cuda.current_stream(), torch.cuda.Stream()]
    for seed in range(10, 22):
        some = pictures(seed)
        if lie == "pixels":
            some = [one.permute(1, 2, 0).contiguous().permute(2, 0, 1) for one in some]
        with torch.cuda.stream(streams[seed % 2]):
            got = pipeline.batch([one.cuda() for one in some])
            assert torch.equal(got.cpu(), pipeline.batch(some)), seed
    (sheet,) = [one for key, one in pipeline._sheets.items() if key[2].type == "cuda"]
    assert any(sheet._launches.values())


def test_batches_of_many_threads() -> None:
    """Of one pipeline, on one stream: nobody reads a table that another is about to have made."""
    pipeline = polyphase.fuse(CHAINS["evaluation"])
    some = [pictures(seed) for seed in range(12)]
    expected = [pipeline.batch(one) for one in some]
    there = [[one.cuda() for one in own] for own in some]
    wrong = list[int]()

    def work(first: int) -> None:
        for turn in range(24):
            number = (first + turn) % len(some)
            if not torch.equal(pipeline.batch(there[number]).cpu(), expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(3 * first,)) for first in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


@pytest.mark.parametrize("warp", [T.RandomAffine(30, interpolation="bilinear"), T.RandomPerspective(p=1.0)], ids=str)
def test_warps_of_pipelines(warp: Any) -> None:
    """By grids as the CPU rounds them. What lies between two levels may be rounded to the other."""
    pipeline, some = polyphase.fuse([warp, T.CenterCrop(64)]), pictures(2)
    expected = drawn(lambda: [pipeline(one) for one in some])
    got = drawn(lambda: pipeline.batch([one.cuda() for one in some]))
    difference = (got.cpu().int() - torch.stack(expected).int()).abs()
    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 0.002


def test_a_batch_waits_for_nothing_and_can_be_captured() -> None:
    pipeline, there = polyphase.fuse(CHAINS["evaluation"]), [one.cuda() for one in pictures(3)]
    pipeline.batch(there)
    torch.cuda.set_sync_debug_mode("error")
    try:
        pipeline.batch(there)
        pipeline.batch([torch.empty(3, 99, 101, dtype=torch.uint8, device="cuda"), *there])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = pipeline.batch(there)
    for one in there:
        one.random_(0, 256)
    polyphase.calls.binding.forget()
    graph.replay()
    assert torch.equal(got.cpu(), pipeline.batch([one.cpu() for one in there]))


def test_batches_on_other_streams_whose_images_are_gone() -> None:
    pipeline, some = polyphase.fuse(CHAINS["evaluation"]), pictures(4)
    expected = pipeline.batch(some)
    for _ in range(3):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            got = pipeline.batch([one.cuda() for one in some])
            torch.full((1 << 20,), 7, device="cuda")  # in memory that was the images'
        stream.synchronize()
        assert torch.equal(got.cpu(), expected)
