from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from polyphase import settings
from polyphase.cpu import isa
from polyphase.errors import MissingCpuFeaturesError, PolyphaseError

AVX2 = frozenset(isa.NEEDED["avx2"])
AVX512 = frozenset(isa.NEEDED["avx512"])
VBMI = frozenset(isa.NEEDED["avx512vbmi"])


@pytest.fixture(autouse=True)
def _nothing_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLYPHASE_ISA", raising=False)


def pretend(monkeypatch: pytest.MonkeyPatch, features: frozenset[str]) -> None:
    monkeypatch.setattr(isa, "features", lambda: features)


@pytest.mark.parametrize(
    ("features", "best"),
    [
        (frozenset(), "portable"),
        (AVX2 - {"f16c"}, "portable"),
        (AVX2, "avx2"),
        (AVX512 - {"avx512bw"}, "avx2"),
        (AVX512, "avx512"),
        (VBMI - {"avx512_vnni"}, "avx512"),
        (VBMI, "avx512vbmi"),
        (AVX512 - {"fma"}, "portable"),
        (frozenset({"asimd", "neon"}), "portable"),
    ],
)
def test_the_best_is_chosen(monkeypatch: pytest.MonkeyPatch, features: frozenset[str], best: str) -> None:
    pretend(monkeypatch, features)
    assert isa.chosen() == best


def test_a_lesser_one_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, VBMI)
    for forced in settings.ISAS:
        monkeypatch.setenv("POLYPHASE_ISA", forced)
        assert isa.chosen() == forced


@pytest.mark.parametrize(("features", "best"), [(AVX2, "avx2"), (AVX512, "avx2"), (VBMI, "avx512vbmi")])
def test_what_moves_is_shuffled_by_avx2_without_vbmi(
    monkeypatch: pytest.MonkeyPatch, features: frozenset[str], best: str
) -> None:
    pretend(monkeypatch, features)
    assert isa.chosen_for_moves() == best


def test_forcing_what_the_cpu_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, AVX512)
    monkeypatch.setenv("POLYPHASE_ISA", "avx512vbmi")
    with pytest.raises(MissingCpuFeaturesError, match="lacks avx512vbmi, avx512_vnni; choose one of: portable, avx2"):
        isa.chosen()
    assert issubclass(MissingCpuFeaturesError, PolyphaseError)


def test_every_level_has_its_features() -> None:
    assert tuple(isa.NEEDED) == settings.ISAS
    assert isa.flags("portable") == ()
    assert isa.flags("avx2") == ("-mavx2", "-mfma", "-mf16c")
    assert isa.flags("avx512")[-1:] == ("-mavx512dq",)
    assert isa.flags("avx512vbmi")[-2:] == ("-mavx512vbmi", "-mavx512vnni")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags are for x86-64")
@pytest.mark.parametrize("name", settings.ISAS)
def test_the_compiler_knows_the_flags(name: str, tmp_path: Path) -> None:
    command = [*settings.compiler(), *isa.flags(name), "-fsyntax-only", "-x", "c++", "/dev/null"]
    subprocess.run(command, check=True, cwd=tmp_path)


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="features are read on Linux only")
def test_agrees_with_torch() -> None:
    capability = torch.backends.cpu.get_cpu_capability()
    if capability == "AVX512":
        assert "avx2" in isa.available()
    if "avx512" in isa.available():
        assert capability == "AVX512"


OTHER_PROCESSORS = """
import torch
from torch.nn.functional import interpolate
import polyphase
import polyphase.functional as P

for channels, width in ((1, 40), (3, 61), (4, 9), (7, 30)):
    for mode in ("bilinear", "bicubic"):
        for size in ((5, 70), (30, 4), (9, width)):
            image = torch.randint(0, 256, (1, channels, 12, width), dtype=torch.uint8)
            for picture in (image, image.contiguous(memory_format=torch.channels_last)):
                expected = interpolate(picture, size, mode=mode, antialias=True)
                assert torch.equal(P.interpolate(picture, size, mode=mode, antialias=True), expected), (channels, size)
                assert torch.equal(P.flip(picture, (-1,)), picture.flip(-1))
assert polyphase.stats()["kernels_launched"] > 0
"""


def test_processors_of_no_known_instructions() -> None:
    """Plain loops over bytes, which no x86 has use for."""
    compiler = " ".join([*settings.compiler(), "-DPOLYPHASE_PLAIN"])
    environment = {**os.environ, "POLYPHASE_ISA": "portable", "CXX": compiler}
    done = subprocess.run([sys.executable, "-c", OTHER_PROCESSORS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
