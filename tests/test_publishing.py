"""What a public repository and a package index read: metadata, the workflow, the changelog, the site."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tools import release_check, shown

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()


def project() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return found


def workflow() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    return found


def pythons() -> list[str]:
    named = (
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one) for one in project()["project"]["classifiers"]
    )
    return [found[1] for found in named if found]


def test_python_versions_agree() -> None:
    settings = project()
    oldest = pythons()[0]
    assert settings["project"]["requires-python"] == f">={oldest}"
    assert settings["tool"]["mypy"]["python_version"] == oldest
    assert settings["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")


def test_the_repository_is_said_once() -> None:
    """Other addresses lie within it."""
    urls = project()["project"]["urls"]
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        for found in re.findall(r"https://github\.com/[\w-]*polyphase[\w-]*/[\w-]+", page.read_text()):
            assert found == urls["Repository"], page.name
    assert urls["Changelog"].startswith(urls["Repository"])


def test_the_workflow_calls_the_makefile() -> None:
    for name, job in workflow()["jobs"].items():
        commands = [step["run"] for step in job["steps"] if "run" in step]
        assert commands, name
        for command in commands:
            target = re.fullmatch(r"make ([\w-]+)( .*)?", command)
            assert target is not None, command
            assert re.search(rf"^{target[1]}:", MAKEFILE, re.MULTILINE), command


def test_the_workflow_has_every_version() -> None:
    matrix = workflow()["jobs"]["test"]["strategy"]["matrix"]
    oldest, newest = project()["tool"]["polyphase"]["tested-torch"]
    assert matrix["python"] == pythons()
    pinned = re.search(r"^torch==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    assert matrix["torch"] == [pinned[1]]
    others = {(one["runner"], one["torch"]) for one in matrix["include"]}
    assert others >= set(itertools.product(matrix["runner"], (oldest, "nightly")))
    minors = range(int(oldest.split(".")[1]), int(newest.split(".")[1]) + 1)
    assert {torch for _, torch in others} | {pinned[1]} == {*(f"2.{minor}" for minor in minors), "nightly"}


def test_release_checks_of_the_workflow_exist() -> None:
    said = re.findall(r'ONLY="([^"]+)"', (ROOT / ".github/workflows/ci.yml").read_text())
    assert {name for words in said for name in words.split()} <= set(release_check.CHECKS)


@pytest.mark.parametrize(
    ("version", "section", "fault"),
    [
        ("0.1.0.dev0", "0.1.0 (unreleased)", None),
        ("0.1.0", "0.1.0 (2026-12-31)", None),
        ("0.1.0", "0.1.0 (unreleased)", "write the date"),
        ("0.1.0.dev0", "0.1.0 (2026-12-31)", "take .dev off"),
        ("0.2.0.dev0", "0.1.0 (unreleased)", "the changelog begins with 0.1.0"),
    ],
)
def test_version_and_changelog(version: str, section: str, fault: str | None) -> None:
    found = release_check.disagrees(f'__version__ = "{version}"', f"# Changelog\n\n## {section}\n\n- A line.\n")
    assert (found is None) if fault is None else (found is not None and fault in found)


def test_version_and_changelog_agree_now() -> None:
    release_check.version_and_changelog_agree()


def test_the_kernels_page_shows_what_is_generated() -> None:
    program, source = shown.program(), shown.source()
    assert "".join(program.split()).startswith("program(uint8,axes([axismap([resize(256,bilinear")
    assert "channel1" in source
    assert source.startswith("#include")


@pytest.mark.parametrize("section", shown.SECTIONS)
def test_the_gallery(section: str) -> None:
    for picture in shown.gallery(section).values():
        assert (picture.dtype, picture.shape[0]) == (torch.uint8, 3)
        assert picture.unique().numel() > 16
    assert f"```{{gallery}} {section}\n" in (ROOT / "docs/gallery.md").read_text()


@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="make docs installs Sphinx")
def test_the_site_builds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", "-c", "docs", ".", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": "src"}, check=True)
    assert (tmp_path / "index.html").exists()
    assert "RandomResizedCrop" in (tmp_path / "docs/api/transforms.html").read_text()
