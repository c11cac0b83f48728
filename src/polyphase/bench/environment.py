"""What a measurement depends on, as text, and what will run where. Results name no machine, user or directory."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

import torch

from polyphase import settings
from polyphase.bench.columns.compiled import backend_missing
from polyphase.bench.gpu import missing
from polyphase.bench.results import Environment
from polyphase.calls import devices
from polyphase.cpu import isa
from polyphase.cuda import driver, launch
from polyphase.errors import PolyphaseError
from polyphase.kernels import store
from polyphase.torch_private import TESTED_TORCH
from polyphase.version import __version__

#: Of 64-bit ARM, whose /proc/cpuinfo has numbers only: (implementer, part).
ARM_PARTS = {
    ("0x41", "0xd03"): "Cortex-A53",
    ("0x41", "0xd05"): "Cortex-A55",
    ("0x41", "0xd07"): "Cortex-A57",
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd09"): "Cortex-A73",
    ("0x41", "0xd0a"): "Cortex-A75",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd42"): "Cortex-A78AE",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x41", "0xd84"): "Neoverse-V3",
    ("0x41", "0xd8e"): "Neoverse-N3",
    ("0x46", "0x001"): "Fujitsu A64FX",
    ("0x48", "0xd01"): "Kunpeng 920",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1a",
}

#: What every processor of a kind has, which portable kernels use.
PORTABLE = {"x86_64": "SSE2", "aarch64": "NEON", "arm64": "NEON"}
PEERS = ("opencv-python-headless", "opencv-python", "pillow", "pillow-simd", "torchvision", "numpy")


def load() -> float:
    """How many processes wanted to run, on average of the last minute; 0 where the system does not say."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0


def gather(device: str, threads: int) -> Environment:
    return Environment(
        python=platform.python_version(),
        torch=str(torch.__version__),
        torch_config=torch.__config__.show(),
        polyphase=__version__,
        commit=commit(),
        system=f"{platform.system()} {platform.machine()}",
        cpu=cpu_model(),
        cpu_features=tuple(sorted(isa.features())),
        instruction_set=instruction_set(),
        compiler=compiler(),
        cores=os.cpu_count() or 0,
        threads=threads,
        device=device,
        gpu=gpu(),
        triton=triton(),
        peers={name: found for name in PEERS if (found := installed(name))},
        load=load(),
    )


def instruction_set() -> str:
    try:
        return isa.chosen()
    except PolyphaseError as error:
        return f"none: {error}"


def compiler() -> str:
    try:
        command = settings.compiler()
    except PolyphaseError as error:
        return f"none: {error}"
    return _said(*command, "--version") or Path(command[0]).name


def commit() -> str:
    """Gives the commit of the source tree that the package is used from; empty where it is installed. A change since is
    marked +.
    """
    here = Path(__file__).parent
    if not (found := _said("git", "-C", str(here), "rev-parse", "--short=12", "HEAD")):
        return ""
    if not _said("git", "-C", str(here), "ls-files", "--", str(Path(__file__))):
        return ""  # a repository around an installed package
    return found + ("+" if _said("git", "-C", str(here), "status", "--porcelain", "--", "..") else "")


def cpu_model() -> str:
    try:
        return _named_cpu(Path("/proc/cpuinfo").read_text()) or platform.processor() or "unknown"
    except OSError:
        return platform.processor() or "unknown"


def _named_cpu(cpuinfo: str) -> str:
    """The processor's name, or of ARM the names of its kinds of cores, as Linux tells them; empty where it does not."""
    told = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in cpuinfo.splitlines())]
    if model := next((value for name, value in told if name == "model name"), ""):
        return model
    implementers = [value for name, value in told if name == "CPU implementer"]
    parts = [value for name, value in told if name == "CPU part"]
    cores = dict.fromkeys(zip(implementers, parts, strict=False))  # each kind once, in order
    return " and ".join(ARM_PARTS.get(core, f"ARM implementer {core[0]} part {core[1]}") for core in cores)


def gpu() -> str:
    """The current one, and what a program for it depends on."""
    if not torch.cuda.is_available():
        return f"none: {missing()}"
    major, minor = torch.cuda.get_device_capability()
    release = _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "of unknown release"
    others = torch.cuda.device_count() - 1
    return (
        f"{torch.cuda.get_device_name()}{f' and {others} more' if others else ''}, compute capability {major}.{minor}, "
        f"driver {release}, CUDA {torch.version.cuda}"
    )


def cuda_kernels() -> str:
    """What they are built for, and by what; or why there are none."""
    if not devices.has_kernels("cuda"):
        return f"switched off by POLYPHASE_DEVICES={os.environ.get('POLYPHASE_DEVICES')}"
    forced = " (forced by POLYPHASE_CUDA_ARCH)" if os.environ.get("POLYPHASE_CUDA_ARCH") else ""
    try:
        if not torch.cuda.is_available() and not forced:
            return f"none: {missing()}; {nvrtc()} is there"
        return f"{launch.architecture()}{forced}, built by {nvrtc()}"
    except PolyphaseError as error:
        return f"none: {error}"


def nvrtc() -> str:
    major, minor = driver.nvrtc_version()
    return f"NVRTC {major}.{minor} ({driver.nvrtc_found()})"


def prebuilt() -> str:
    """What came with the package, and for what."""
    found = store.prebuilt_targets()
    if not found:
        return "none: no wheel for a platform is installed"
    for_each = ", ".join(f"{target} {len(sizes)}" for target, sizes in found.items())
    sizes = [size for some in found.values() for size in some]
    return f"{len(sizes)} libraries, {megabytes(sizes)}: {for_each}"


def triton() -> str:
    return installed("triton") or "none"


def installed(name: str) -> str:
    """A distribution's version."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _said(*command: str) -> str:
    """The first line a program prints; nothing where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""


def where_it_runs() -> dict[str, str]:
    """What will run where, and why: for `polyphase env`."""
    entries = store.entries()
    better = settings.ISAS if platform.machine() == "x86_64" else ()  # which is where all of them are from
    lacking = [f"; {name} needs {', '.join(isa.missing(name))}" for name in better if isa.missing(name)]
    meaning = PORTABLE.get(platform.machine(), "plain C++") if instruction_set() == "portable" else ""
    portable = f" ({meaning})" if meaning else ""
    forced = " (forced by POLYPHASE_ISA)" if os.environ.get("POLYPHASE_ISA") else ""
    return {
        "polyphase": " ".join(part for part in (__version__, commit()) if part),
        "torch": f"{torch.__version__} (tested: {TESTED_TORCH[0]} to {TESTED_TORCH[1]})",
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "CPU": f"{cpu_model()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "CPU kernels": f"{instruction_set()}{forced}{portable}, of {', '.join(isa.available())}{''.join(lacking)}",
        "C++ compiler": compiler(),
        "devices": ", ".join(device for device in devices.MODULES if devices.has_kernels(device)) or "none",
        "kernel cache": f"{settings.cache_dir()}, {len(entries)} libraries, {megabytes(one.size for one in entries)} "
        f"of at most {settings.cache_max_bytes() / 1e6:g} MB",
        "prebuilt kernels": prebuilt(),
        "GPU": gpu(),
        "CUDA kernels": cuda_kernels(),
        "Triton": triton(),
        "torch.compile backend": backend_missing() or "registered",
        "peers": ", ".join(f"{name} {found}" for name in PEERS if (found := installed(name))) or "none",
    }


def megabytes(sizes: Iterable[int]) -> str:
    return f"{sum(sizes) / 1e6:.1f} MB"
