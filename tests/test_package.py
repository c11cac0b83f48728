"""What a user meets first: the import, the README and the guides."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import polyphase
from tests.support.vision import torchvision
from tests.test_torch_private import IS_INSTALLED

ROOT = Path(__file__).parents[1]
GUIDES = sorted(ROOT.glob("docs/guides/*.md"))
PAGES = (ROOT / "README.md", ROOT / "docs/kernels.md", *GUIDES)


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


BLOCKS = {f"{page.stem} {place}": text for page in PAGES for place, text in enumerate(blocks(page), 1)}


WITH_TORCH_ALONE = """
import os, sys
import torch
hidden = ("numpy", "typer", "rich", "hypothesis", "pytest", "PIL", "cv2", "torchvision", "fcntl")
sys.modules.update(dict.fromkeys(hidden))
for name in ("register_at_fork", "geteuid", "uname", "killpg"):
    delattr(os, name)
import polyphase, polyphase.functional as P
from polyphase import transforms as T
polyphase.decompositions.table()
photo = torch.randint(0, 256, (3, 40, 50), dtype=torch.uint8)
pipeline = polyphase.fuse([T.Resize(20), T.CenterCrop(10), T.ToDtype(torch.float32, scale=True)])
assert pipeline.batch([photo] * 2).shape == (2, 3, 10, 10)
assert P.interpolate(photo[None], (20, 20), mode="bicubic", antialias=True).shape == (1, 3, 20, 20)
with polyphase.accelerate():
    torch.nn.functional.interpolate(photo[None], (20, 20), mode="bilinear")
"""


def test_torch_alone_is_needed() -> None:
    """And nothing of Unix where there are no kernels, as on Windows."""
    without = {**os.environ, "POLYPHASE_DEVICES": "none"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", WITH_TORCH_ALONE], env=without, check=True)


IMPORT = """
import sys
import polyphase
print(*sys.modules)
from polyphase.calls import plain
print(len(plain._SEEN), len(plain._CHECKS), len(plain._USUAL))
"""


def test_the_import() -> None:
    """It brings nothing that takes long, and touches no device: only the CPU's wing comes with it, and is used when a
    tensor first comes by. Nothing is made before it is needed."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", IMPORT], check=True, stdout=subprocess.PIPE, text=True)
    modules, made = done.stdout.splitlines()
    too_much = {"polyphase.cuda", "polyphase.bench"}
    if IS_INSTALLED:
        too_much |= {"torch._dynamo", "torch._inductor", "sympy"}
    assert too_much & set(modules.split()) == set()
    assert made == "0 0 0"


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", polyphase.__version__)


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_of_readme_and_guides_runs_alone(name: str) -> None:
    if "torchvision" in BLOCKS[name]:
        torchvision()
    exec(BLOCKS[name], {})


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_every_guide_has_something_to_run(page: Path) -> None:
    assert blocks(page)


def test_the_readme_begins_with_the_shortest_way_to_a_result() -> None:
    first, *others = blocks(ROOT / "README.md")
    assert all(len(first.splitlines()) <= len(other.splitlines()) for other in others)


def test_links_in_the_documentation_exist() -> None:
    """Those of the README are whole addresses, for package indexes."""
    (repository,) = re.findall('^Repository = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")):
        text = page.read_text()
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
            assert page.name != "README.md", f"{target} is no address"
        for target in re.findall(rf"{repository}/(?:blob|raw)/main/([^)#\s]+)", text):
            assert (ROOT / target).exists(), f"{page.name}: {target}"
