"""A small wheel, made, installed and used where there is neither a compiler nor a home."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from polyphase.cpu import build, isa, libraries
from polyphase.cuda import build as cuda_build
from polyphase.cuda import driver, loading
from polyphase.cuda.ways import Way
from polyphase.errors import DriverError
from polyphase.kernels import store
from polyphase.kernels.plans import MapsPlan, plan_maps
from polyphase.sampling.programs import Program
from wheels import archives, contents, prebuild, symbols

pytestmark = pytest.mark.cpu
on_linux = pytest.mark.skipif(platform.system() != "Linux", reason="wheels are for Linux")
LIBC = tuple(map(int, platform.libc_ver()[1].split("."))) if platform.libc_ver()[0] == "glibc" else (0, 0)
#: From 2.38 on ordinary code asks for versions of its functions that no older system has.
where_wheels_are_built = pytest.mark.skipif(LIBC >= (2, 38), reason="wheels are built where glibc is older")

CALLS = """
import sys, time, warnings
warnings.simplefilter("error")
import torch, polyphase, polyphase.functional as P
image, imported = torch.rand(1, 3, 40, 50), set(sys.modules)
started = time.perf_counter()
ours = P.interpolate(image, (20, 30), mode="bilinear", antialias=True)
took = time.perf_counter() - started
eager = torch.nn.functional.interpolate(image, (20, 30), mode="bilinear", antialias=True)
torch.testing.assert_close(ours, eager)
with polyphase.accelerate():
    torch.testing.assert_close(torch.nn.functional.interpolate(image, (8, 9), mode="bicubic"),
                               P.interpolate(image, (8, 9), mode="bicubic"))
late = [name for name in sys.modules if name.startswith("polyphase") and name not in imported]
stats = polyphase.stats()
print(polyphase.__file__, stats["kernels_built"], stats["kernels_launched"], len(late), took)
"""


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archives.pure_wheel(tmp_path_factory.mktemp("pure"))


def few() -> list[build.Request]:
    """Sums of floats."""
    plan = plan_maps(Program(torch.float32, contents.SUMMING), isa.chosen())
    return [libraries.launcher_request(isa.chosen()), *libraries.requests(plan, moves=True)]


@on_linux
@where_wheels_are_built
def test_it_needs_no_compiler(pure: Path, tmp_path: Path) -> None:
    folder, installed = tmp_path / "prebuilt", tmp_path / "installed"
    prebuild.prebuild(map(prebuild.for_cpu, few()), folder)
    wheel = archives.platform_wheel(pure, folder, tmp_path)
    assert wheel.name.endswith(f"-py3-none-manylinux_2_28_{platform.machine()}.whl")
    again = archives.platform_wheel(pure, folder, pure.parent)
    assert wheel.read_bytes() == again.read_bytes()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--disable-pip-version-check", "--target", str(installed), str(wheel)], check=True)
    environment = {"PYTHONPATH": str(installed), "HOME": "/proc/home", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", CALLS], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    where, built, launched, imported_late, _ = done.stdout.split()
    assert Path(where).is_relative_to(installed)
    assert (int(built), int(launched), int(imported_late)) == (0, 3, 0)


@on_linux
@where_wheels_are_built
def test_libraries_ask_no_more_than_the_tag_says(tmp_path: Path) -> None:
    (ordinary,) = build.libraries([libraries.launcher_request(isa.chosen())])
    if LIBC >= (2, 34):
        assert symbols.too_new(ordinary) == ["GLIBC_2.34"]
    asked = symbols.asked(ordinary)
    assert "libc.so.6" in asked.libraries
    assert any(one.startswith("GLIBC_") for one in asked.versions)
    # `prebuild` raises where a library asks for more.
    assert all(prebuild.for_cpu(one).made() for one in few())


def test_no_other_file_is_read_as_a_library(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    with pytest.raises(ValueError, match="no ELF file"):
        symbols.asked(tmp_path / "text")


# ---- CUDA


@pytest.mark.parametrize(
    ("architecture", "target"),
    [
        ("sm_70", None),
        ("sm_75", "sm_75"),
        ("sm_86", "sm_80"),
        ("sm_89", "sm_80"),
        ("sm_90", "sm_90"),
        ("sm_103", "sm_100"),
        ("sm_110", None),
        ("sm_121", "sm_120"),
        ("sm_130", "compute_120"),
    ],
)
def test_which_machine_code_a_gpu_takes(
    architecture: str, target: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PREBUILT", tmp_path)
    for one in cuda_build.PREBUILT_FOR:
        content = one.encode() + b"\0"
        (tmp_path / cuda_build.prebuilt_name("source", one)).write_bytes(content + store._seal(content))
    found = cuda_build.prebuilt_image("source", architecture)
    assert (None if found is None else found.split(b"\0")[0].decode()) == target
    assert cuda_build.prebuilt_image("another source", architecture) is None


def test_machine_code_that_a_driver_refuses_is_built_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(device: int, image: bytes, name: str, shared_bytes: int) -> int:
        if image != b"built":
            raise DriverError("cuModuleLoadData of the CUDA driver failed")
        return 7

    monkeypatch.setattr(driver, "load", load)
    monkeypatch.setattr(driver, "most_shared_bytes", lambda device: 0)
    monkeypatch.setattr(cuda_build, "prebuilt_image", lambda source, architecture: b"prebuilt")
    monkeypatch.setattr(cuda_build, "image", lambda source, architecture, purpose: b"built")
    plan = MapsPlan(source=None, sampled=torch.uint8, target=torch.uint8, weighted=False, architecture="sm_90")
    way = Way("general", "General", (False, False, 128), 128, moved_bytes=1)
    assert loading._loaded(plan, way, 0) == 7
