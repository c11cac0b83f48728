"""What is built for a call, and what it shares with other calls."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor

from polyphase.calls import binding
from polyphase.cpu import build, emit, isa, libraries
from polyphase.errors import BuildFailedError
from polyphase.kernels import store
from polyphase.kernels.plans import MapsPlan, purpose
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.steps import Flip
from tests.cpu.conftest import in_a_child

BUILT = """
import torch
import polyphase.functional as P
from polyphase.cpu import build

build.FLAGS += ("-O0",)  # sooner, and as many
image = torch.rand(1, 3, 20, 20)
stems = ("launcher", "sampler", "kernel")

def built_by(call, *args, **options):
    before = dict(build.built)
    call(*args, **options)
    print(*(build.built[stem] - before.get(stem, 0) for stem in stems))

built_by(P.interpolate, image, (10, 12), mode="bilinear")
built_by(P.interpolate, image, (30, 7), mode="bicubic", antialias=True)
built_by(P.interpolate, image.half(), (10, 12), mode="bilinear")
built_by(P.flip, image, (-1,))
built_by(P.interpolate, image.to(torch.uint8), (10, 12), mode="bilinear")
"""


def test_what_is_built(tmp_path: Path) -> None:
    environment = {**os.environ, "POLYPHASE_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", BUILT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "1 1 1",
        "0 0 0",  # one kernel for all filters and sizes
        "0 0 1",  # half precision is summed as float32 is
        "0 1 1",  # moved as bytes, whatever the dtype
        # Bytes with nothing around them, again; where AVX-512 has no VBMI, they are summed by another set than moved.
        "0 1 0" if isa.chosen() == isa.chosen_for_moves() else "0 1 1",
    ]


def test_a_fork_while_another_thread_builds() -> None:
    """The child has the parent's lock, and not the thread that would release it."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with libraries._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    try:
        in_a_child(lambda tell: assert_flips(torch.arange(3 * 5 * 7, dtype=torch.int16).view(3, 5, 7)), seconds=60)
    finally:
        done.set()
        thread.join()


def assert_flips(image: Tensor) -> None:
    assert torch.equal(binding.resample(image, (AxisMap((Flip(),)),)), image.flip(-1))
    libraries.built_addresses.cache_clear()
    binding.forget()
    assert torch.equal(binding.resample(image, (AxisMap((Flip(),)),)), image.flip(-1))


BYTES = MapsPlan(source=None, sampled=torch.uint8, target=torch.uint8, weighted=False, architecture="portable")


def test_what_a_kernel_is_for() -> None:
    assert purpose(BYTES) == "moves values"
    halves = MapsPlan(
        source=torch.uint8, sampled=torch.float16, target=torch.float32, weighted=True, architecture="portable"
    )
    assert purpose(halves) == "uint8 -> sums of float32 -> float32"


def test_a_source_is_written_where_no_link_of_others_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a name that can be known beforehand, nor where others can write."""
    shared, temporary, victim = tmp_path / "shared", tmp_path / "temporary", tmp_path / "victim"
    for folder in (shared, temporary):
        folder.mkdir()
        folder.chmod(0o1777)
    monkeypatch.setenv("POLYPHASE_CACHE_DIR", str(shared))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    store._private_directory.cache_clear()
    try:
        with pytest.warns(UserWarning, match="other users can write to it"):
            first = store.kept_source(emit.kernel_source(BYTES), "cpp")
        victim.write_text("mine")
        for folder in (shared, temporary):
            (folder / "sources").mkdir()
            for place in (folder, folder / "sources"):
                (place / first.name).symlink_to(victim)
        again = store.kept_source(emit.kernel_source(BYTES), "cpp")
        assert "extern" in again.read_text()
        assert again.parent.stat().st_mode & 0o777 == 0o700
        assert victim.read_text() == "mine"
    finally:
        store._private_directory.cache_clear()


@pytest.fixture
def requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[build.Request]:
    monkeypatch.setenv("POLYPHASE_CACHE_DIR", str(tmp_path / "cache"))
    source = f'extern "C" __attribute__((visibility("default"))) int answer() {{ return 42; }} // {tmp_path}'
    return [build.Request(source, "portable", "answer", ("-O0",))]


def test_what_is_removed_before_it_is_loaded_is_built_again(
    requests: list[build.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, removed = build.libraries, list[Path]()

    def removes_once(requests: list[build.Request]) -> list[Path]:
        paths = found(requests)
        if not removed:
            store.clear()  # as another process would
            removed.extend(paths)
        return paths

    monkeypatch.setattr(build, "libraries", removes_once)
    assert libraries._loaded(requests)[0].answer() == 42
    assert removed


def test_what_cannot_be_loaded(requests: list[build.Request], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has no executables."""
    (tmp_path / "damaged.so").write_text("")
    monkeypatch.setattr(build, "libraries", lambda requests: [tmp_path / "damaged.so"])
    with pytest.raises(BuildFailedError, match=r"cannot be loaded: .*Set POLYPHASE_CACHE_DIR"):
        libraries._loaded(requests)
