"""The files that are published. A wheel for a platform is the pure wheel, and libraries."""

from __future__ import annotations

import base64
import hashlib
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from wheels import symbols

ROOT = Path(__file__).parents[1]
PREBUILT = "polyphase/prebuilt/"  # `PREBUILT` of kernels/store.py
#: Of every file in the wheel, so that the same files make the same wheel.
TIME = (1980, 1, 1, 0, 0, 0)


def sdist(out: Path) -> Path:
    return _built("sdist", ROOT, out)


def pure_wheel(out: Path) -> Path:
    """From an sdist, not from the checkout: what is missing in one is missing in the other, and nothing is there that
    an earlier build has left."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist(Path(folder))) as archive:
            archive.extractall(folder, filter="data")
        (unpacked,) = (one for one in Path(folder).iterdir() if one.is_dir())
        return _built("wheel", unpacked, out)


def platform_wheel(pure: Path, libraries: Path, out: Path) -> Path:
    """With all files of a folder. Its libraries know Python by functions that every version has, and are loaded by
    ctypes: one wheel serves all versions."""
    tag = f"py3-none-{symbols.TAG}_{platform.machine()}"
    with zipfile.ZipFile(pure) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files |= {PREBUILT + one.name: one.read_bytes() for one in libraries.iterdir()}
    (info,) = (name for name in files if name.endswith(".dist-info/WHEEL"))
    text = re.sub("(?m)^Root-Is-Purelib: .*$", "Root-Is-Purelib: false", files[info].decode())
    files[info] = re.sub("(?m)^Tag: .*$", f"Tag: {tag}", text).encode()
    record = info.replace("WHEEL", "RECORD")
    del files[record]
    files[record] = _record(files, record).encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / pure.name.replace("py3-none-any", tag)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in [*sorted(files.keys() - {record}), record]:
            entry = zipfile.ZipInfo(name, TIME)
            entry.external_attr, entry.compress_type = 0o100644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return wheel


def _record(files: dict[str, bytes], own: str) -> str:
    lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in sorted(files.items())]
    return "\n".join([*lines, f"{own},,"]) + "\n"


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _built(kind: str, source: Path, out: Path) -> Path:
    """By the build backend that pyproject.toml names, as pip calls it."""
    out.mkdir(parents=True, exist_ok=True)
    code = f"import sys, setuptools.build_meta as backend; print(backend.build_{kind}(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(out.absolute())]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the {kind} could not be built:\n{done.stdout}{done.stderr}")
    return out / done.stdout.splitlines()[-1]


def compressed_megabytes(wheel: Path) -> dict[str, float]:
    """Of the libraries for the CPU, of CUDA's kernels, and of all else."""
    sizes = {"CPU": 0.0, "CUDA": 0.0, "Python": 0.0}
    with zipfile.ZipFile(wheel) as archive:
        for one in archive.infolist():
            kind = "Python" if not one.filename.startswith(PREBUILT) else "CUDA" if "/cuda-" in one.filename else "CPU"
            sizes[kind] += one.compress_size / 1e6
    return sizes
