"""What must hold before a release: `make release-check`, or a part of it: `make release-check ONLY="version docs"`.

Each check is a function that returns, or raises `ReleaseError` with what is wrong. The others go on, and the end lists
all that was found. Wheel and sdist are installed into environments of their own, under build/release/.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST, WORK = ROOT / "dist", ROOT / "build" / "release"
#: What the README's blocks and the test that runs them need besides the package.
FOR_THE_README = ("pytest", "numpy", "pillow")
LINES_SHOWN = 20
NOT_IN_THE_SDIST = (".ci/run", ".gitignore")


class ReleaseError(Exception):
    """What is wrong, and the fix."""


def tree_is_clean() -> None:
    changed = _output("git", "status", "--porcelain")
    if changed:
        raise ReleaseError(f"not committed:\n{changed}\nCommit it, or put it aside")


def version_and_changelog_agree() -> None:
    version, changelog = (ROOT / one for one in ("src/polyphase/version.py", "CHANGELOG.md"))
    disagreement = disagrees(version.read_text(encoding="utf-8"), changelog.read_text(encoding="utf-8"))
    if disagreement:
        raise ReleaseError(disagreement)


def disagrees(version_file: str, changelog: str) -> str | None:
    """A version is in development while its section of the changelog is unreleased, and has a date from then on."""
    version = re.search(r'__version__ = "([^"]+)"', version_file)
    section = re.search(r"^## (\S+) \(([^)]+)\)", changelog, re.MULTILINE)
    if version is None or section is None:
        return "version.py has no __version__, or CHANGELOG.md no section '## VERSION (DATE)'"
    base, dev, _ = version[1].partition(".dev")
    if base != section[1]:
        return f"the version is {version[1]}, and the changelog begins with {section[1]}"
    if dev and section[2] != "unreleased":
        return (
            f"the changelog has {section[0][3:]}, and the version is {version[1]}: take .dev off, or write (unreleased)"
        )
    if not dev and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", section[2]):
        return f"the version is {version[1]}, and the changelog has {section[0][3:]}: write the date, as (2026-12-31)"
    return None


def documentation_builds() -> None:
    shutil.rmtree(ROOT / "build" / "docs", ignore_errors=True)
    _make("docs")


def wheel_is_built() -> None:
    """With all files of the package."""
    _make("wheel")
    with zipfile.ZipFile(_newest("*.whl")) as archive:
        _has_all(archive.namelist(), {one.removeprefix("src/") for one in _committed() if one.startswith("src/")})


def sdist_is_built() -> None:
    """With all files of the repository but those that only it needs."""
    _make("sdist")
    with tarfile.open(_newest("*.tar.gz")) as archive:
        names = [one.partition("/")[2] for one in archive.getnames()]
    _has_all(names, {one for one in _committed() if one not in NOT_IN_THE_SDIST})


def wheel_installs() -> None:
    """And is used where there is neither a compiler nor a home."""
    python = _installed("wheel", _newest("*.whl"))
    _use(python, _USE_WITHOUT_BUILDING, {"PATH": "", "HOME": "/proc/home"})


def sdist_installs() -> None:
    _use(_installed("sdist", _newest("*.tar.gz")), _USE)


def readme_runs_on_the_wheel() -> None:
    """By the test that runs it from the sources, which imports what is installed: they lie in a folder of their own."""
    python = _python(WORK / "wheel")
    if not python.exists():
        wheel_installs()
    _run(python, "-m", "pip", "install", *_QUIETLY, *FOR_THE_README)
    _run(python, "-m", "pip", "install", *_QUIETLY, "--no-deps", "torchvision")
    _run(python, "-m", "pytest", "tests/test_package.py", "-k", "readme", "-p", "no:cacheprovider")


CHECKS: dict[str, Callable[[], None]] = {
    "tree": tree_is_clean,
    "version": version_and_changelog_agree,
    "docs": documentation_builds,
    "wheel": wheel_is_built,
    "sdist": sdist_is_built,
    "wheel-installs": wheel_installs,
    "sdist-installs": sdist_installs,
    "readme": readme_runs_on_the_wheel,
}

_QUIETLY = ("--quiet", "--disable-pip-version-check", "-c", "constraints.txt")
#: Prints where the package lies; fails where a kernel gives another result than eager.
_USE = """
import torch, torch.nn.functional as F, polyphase, polyphase.functional as P
print(polyphase.__file__)
photo = torch.randint(0, 256, (1, 3, 60, 80), dtype=torch.uint8)
arguments = dict(size=(20, 30), mode="bilinear", antialias=True)
assert torch.equal(P.interpolate(photo, **arguments), F.interpolate(photo, **arguments))
assert polyphase.stats()["kernels_launched"] == 1, "no kernel ran"
"""
#: What a wheel has kernels for, a call of each kind.
_USE_WITHOUT_BUILDING = f"""
import warnings
warnings.filterwarnings("error", ".*polyphase", UserWarning)
{_USE}
from polyphase import transforms as T
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    image = torch.rand(2, 3, 17, 19).to(dtype).requires_grad_()
    grid = (torch.rand(2, 8, 9, 2) * 2 - 1).to(dtype)
    with polyphase.accelerate():
        resized = [F.interpolate(image, (30, 11), mode=mode) for mode in ("nearest", "bilinear", "bicubic")]
        moved = [F.pad(image, (1, 2, 3, 4), mode="reflect"), image.flip(-1)]
        warped = [F.grid_sample(image, grid, mode, align_corners=False) for mode in ("nearest", "bilinear", "bicubic")]
        sum(one.float().sum() for one in (*resized, *moved, *warped)).backward()
P.affine_sample(photo, torch.eye(2, 3)[None], (1, 3, 20, 20))
chain = [T.Resize(20), T.CenterCrop(16), T.ToDtype(torch.float32, scale=True), T.Normalize([0.5] * 3, [0.2] * 3)]
polyphase.fuse(chain)(photo[0])
stats = polyphase.stats()
assert stats["kernels_built"] == 0 and stats["kernels_launched"] > 40, stats
"""


def _installed(name: str, package: Path) -> Path:
    """The Python of a new environment that has a package, and what it depends on."""
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    _run(_python(folder), "-m", "pip", "install", *_QUIETLY, str(package))
    return _python(folder)


def _use(python: Path, code: str, environment: dict[str, str] | None = None) -> None:
    lies_in = _output(python, "-c", code, within=WORK, environment=environment).splitlines()[-1]
    if not Path(lies_in).is_relative_to(WORK):
        raise ReleaseError(f"another polyphase was imported, {lies_in}: unset PYTHONPATH")


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"


def _committed() -> list[str]:
    return _output("git", "ls-files").splitlines()


def _has_all(names: Iterable[str], wanted: set[str]) -> None:
    if lacking := sorted(wanted - set(names)):
        raise ReleaseError(f"it lacks {', '.join(lacking)}: name them in MANIFEST.in, or as package data")


def _newest(pattern: str) -> Path:
    found = sorted(DIST.glob(pattern), key=lambda one: one.stat().st_mtime)
    if not found:
        raise ReleaseError(f"there is no {pattern} in dist/: make it first (checks 'wheel' and 'sdist')")
    return found[-1]


def _make(target: str) -> None:
    _run("make", "--no-print-directory", target)


def _run(*command: str | Path) -> None:
    _output(*command)


def _output(*command: str | Path, within: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=within, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-LINES_SHOWN:])
        raise ReleaseError(f"exit status {done.returncode} of {' '.join(map(str, command))[:200]}:\n{last}")
    return done.stdout.strip()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="What must hold before a release.")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"of {', '.join(CHECKS)}; all, if none is named")
    chosen = parser.parse_args(arguments).checks or list(CHECKS)
    if unknown := set(chosen) - set(CHECKS):
        parser.error(f"no check {', '.join(sorted(unknown))}; choose of: {', '.join(CHECKS)}")
    WORK.mkdir(parents=True, exist_ok=True)
    faults: dict[str, str] = {}
    for number, name in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {CHECKS[name].__name__.replace('_', ' ')} ... ", end="", flush=True)
        started = time.monotonic()
        try:
            CHECKS[name]()
        except ReleaseError as error:
            faults[name] = str(error)
        print(f"{'NO' if name in faults else 'ok'} ({time.monotonic() - started:.0f} s)", flush=True)
    for name, fault in faults.items():
        print(f"\n{name}: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
