"""The documentation, by Sphinx: `make docs`.

Its source folder is the whole repository, so that a link between two files is the same on the site, on a disk and where
the repository is hosted. The README is the first page.
"""

from __future__ import annotations

import dataclasses
import html
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.util.inspect import signature, stringify_signature

from polyphase.version import __version__

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for tools/
REPOSITORY = re.findall('^Repository = "(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)[0]
HOSTED, RAW = f"{REPOSITORY}/blob/main/", f"{REPOSITORY}/raw/main/"

project, release, version = "Polyphase", __version__, __version__
html_title = f"Polyphase {__version__}"
html_theme = "furo"
html_theme_options = {"source_repository": REPOSITORY, "source_branch": "main", "source_directory": ""}
html_static_path, html_css_files = ["static"], ["page.css"]
html_extra_path = ["redirect"]  # from the site's root to its first page
extensions = ["myst_parser", "sphinx.ext.autodoc"]

root_doc = "README"
include_patterns = ["*.md", "docs/**", "benchmarks/*.md"]
exclude_patterns = [".*", "build", "dist", "src", "tests", "examples", "wheels", "tools", "bench-results"]

default_role = "code"  # docstrings have `names` as Markdown has them
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
html_show_copyright = False

CHAPTERS = {
    "Guides": (
        "docs/install",
        "docs/guides/loading",
        "docs/guides/gpu",
        "docs/guides/models",
        "docs/guides/reproducible",
        "docs/guides/compilers",
        "docs/guides/measuring",
        "docs/guides/scale",
        "docs/guides/coming-from",
        "docs/kernels",
        "docs/gallery",
    ),
    "Reference": (
        "docs/api/package",
        "docs/api/functional",
        "docs/api/transforms",
        "docs/api/explain",
        "docs/api/decompositions",
        "docs/api/settings",
        "docs/api/errors",
        "docs/api/cli",
        "docs/where-eager-is-wrong",
        "docs/proofs",
    ),
    "Figures": (
        "benchmarks/quick",
        "benchmarks/cpu",
        "benchmarks/h200",
        "benchmarks/warps",
        "benchmarks/warps-h200",
        "benchmarks/decomposition",
    ),
    "Inside": ("ARCHITECTURE", "CONTRIBUTING", "docs/tuning-cpu", "docs/tuning-cuda", "SECURITY", "CHANGELOG"),
}


def adapt_the_readme(app: Any, name: str, source: list[str]) -> None:
    """Its links are whole addresses, for package indexes; here they lead to pages. And it has the table of contents."""
    if name == root_doc:
        text = source[0].replace(HOSTED, "").replace(RAW, "")
        for chapter, pages in CHAPTERS.items():
            text += "\n".join(["\n```{toctree}", ":hidden:", f":caption: {chapter}", "", *pages, "```", ""])
        source[0] = text


def leave_out_how_transforms_work(app: Any, what: str, name: str, what_it_is: Any, skip: bool, options: Any) -> bool:
    """Users give their arguments; `why_not`, `draws`, `params` and `apply` are for pipelines."""
    module = getattr(getattr(what_it_is, "fget", what_it_is), "__module__", None) or ""
    ours = re.fullmatch(r"polyphase\.pipelines\.(sizes|vocabulary|warps)", module)
    return skip or (what == "class" and ours is not None)


def leave_out_what_v1_needs(
    app: Any, what: str, name: str, cls: Any, options: Any, shown: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Fields that `fuse` sets when it reads torchvision's objects, and that a repr does not have either."""
    if what != "class" or not dataclasses.is_dataclass(cls):
        return None
    hidden = {field.name for field in dataclasses.fields(cls) if not field.repr}
    whole = signature(cls)
    kept = [one for one in whole.parameters.values() if one.name not in hidden]
    return stringify_signature(whole.replace(parameters=kept), unqualified_typehints=True), returns


class CommandHelp(Directive):
    """What `polyphase COMMAND --help` says."""

    optional_arguments = 2

    def run(self) -> list[nodes.Node]:
        from typer.testing import CliRunner

        from polyphase.cli import app

        plain = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
        shown = CliRunner().invoke(app, [*self.arguments, "--help"], env=plain, prog_name="polyphase")
        assert shown.exit_code == 0, shown.output
        return [nodes.literal_block(shown.output, shown.output, language="none")]


class KernelOfAPhoto(Directive):
    """The program, or the generated source, of the chain that is the kernels' page's example."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        from tools import shown

        of_program = self.arguments[0] == "program"
        text = shown.program() if of_program else shown.source()
        return [nodes.literal_block(text, text, language="none" if of_program else "c++")]


class Gallery(Directive):
    """The pictures of one section, which are within the page: no file is needed beside it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        from polyphase.bench.pictures import png, uri_of_png
        from tools import shown

        figures = "".join(
            f"<figure><img src='{uri_of_png(png(picture))}' alt='{html.escape(name, quote=True)}'>"
            f"<figcaption>{html.escape(name)}</figcaption></figure>"
            for name, picture in shown.gallery(self.arguments[0]).items()
        )
        return [nodes.raw("", f"<div class='gallery'>{figures}</div>", format="html")]


def setup(app: Any) -> None:
    app.connect("source-read", adapt_the_readme)
    app.connect("autodoc-skip-member", leave_out_how_transforms_work)
    app.connect("autodoc-process-signature", leave_out_what_v1_needs)
    app.add_directive("command-help", CommandHelp)
    app.add_directive("kernel-of-a-photo", KernelOfAPhoto)
    app.add_directive("gallery", Gallery)
