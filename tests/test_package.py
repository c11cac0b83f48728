"""What a user meets first: the import and the README."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import polyphase
from tests.support.vision import torchvision

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_import_needs_torch_alone() -> None:
    hidden = ("numpy", "typer", "rich", "hypothesis", "pytest", "PIL", "cv2", "torchvision")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({hidden!r})); import polyphase; polyphase.decompositions.table()"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", polyphase.__version__)


@pytest.mark.parametrize("place", range(len(BLOCKS)))
def test_every_block_of_the_readme_runs_alone(place: int) -> None:
    if "torchvision" in BLOCKS[place]:
        torchvision()
    exec(BLOCKS[place], {})


def test_the_readme_begins_with_the_shortest_way_to_a_result() -> None:
    assert len(BLOCKS[0].splitlines()) == min(len(block.splitlines()) for block in BLOCKS)


def test_links_in_the_documentation_exist() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
