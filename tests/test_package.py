"""What a user meets first: the import and the README."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import polyphase

ROOT = Path(__file__).parents[1]


def test_import_needs_torch_alone() -> None:
    hidden = ("numpy", "typer", "rich", "hypothesis", "pytest", "PIL", "cv2")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({hidden!r})); import polyphase; polyphase.decompositions.table()"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", polyphase.__version__)


def test_readme_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(block, namespace)


def test_links_in_the_documentation_exist() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
