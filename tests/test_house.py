"""Imports point one way, and nothing but the registry leads into a wing."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import polyphase

PACKAGE = Path(polyphase.__file__).parent

#: What is on a line may import what is on the lines before it, and itself.
ORDER = [
    ("version", "errors", "importing", "torch_versions"),
    ("settings", "torch_private"),
    ("sampling",),
    ("records",),
    ("kernels",),
    ("calls",),
    ("arguments", "decompositions"),
    ("ops",),
    ("functional",),
    ("pipelines",),
    ("transforms",),
    ("compile",),
    ("explaining",),
    ("bench",),
    ("trying",),
    ("cli",),
]
#: A device's own folder: what it may import, and who may import it besides the registry, which does so by name.
_FOR_WINGS = ("version", "errors", "importing", "settings", "torch_private", "sampling", "records", "kernels", "calls")
WINGS = {"cpu": _FOR_WINGS, "cuda": (*_FOR_WINGS, "cpu")}  # what launches CUDA kernels is a library for the CPU
MAY_ENTER_A_WING = {
    "bench/environment.py",  # says which processor this is, and which instruction sets it has
}
PUBLIC = {"accelerate", "explain", "fuse", "stats", "__version__"}  # what the package itself has for its users
WHOLE = ("__init__.py", "__main__.py")  # the package itself has everything


def modules() -> Iterator[tuple[str, str, set[str]]]:
    """The file, its room, and the rooms it imports from."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name not in WHOLE:
            yield name, name.split("/")[0].removesuffix(".py"), imported(path)


def imported(path: Path) -> set[str]:
    rooms: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            rooms |= {one.name.split(".")[1] for one in node.names if one.name.startswith("polyphase.")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "polyphase":
            parts = (node.module or "").split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {one.name for one in node.names if one.name not in PUBLIC}
    return rooms


def test_every_room_is_on_the_list() -> None:
    rooms = {room for _, room, _ in modules()}
    assert rooms == {room for line in ORDER for room in line} | set(WINGS)


def test_imports_point_one_way() -> None:
    place = {room: number for number, line in enumerate(ORDER) for room in line}
    for name, room, others in modules():
        if room in WINGS:
            assert others <= {room, *WINGS[room]}, name
            continue
        for other in others - set(WINGS) - {room}:
            assert place[other] < place[room] or other in ORDER[place[room]], f"{name} imports {other}"


def test_only_the_registry_leads_into_a_wing() -> None:
    entered = {name for name, room, others in modules() if room not in WINGS and others & set(WINGS)}
    assert entered == MAY_ENTER_A_WING


#: A file of ours, in a comment. Where one has a `*`, an underscore before it, or capitals, it is a form of names.
_FILE = re.compile(r"(?<![\w*.])[a-z]\w*\.(?:py|h|cpp)\b(?!\.)")
_OTHERS = {"arm_neon.h"}  # compilers' own


def test_files_that_comments_name_are_there() -> None:
    files = [path for kind in ("py", "h", "cpp") for path in PACKAGE.rglob(f"*.{kind}")]
    there = {path.name for path in (*files, *Path(__file__).parent.rglob("*.py"))} | _OTHERS
    lines = [(path, line) for path in files for line in _comments(path)]
    assert len(lines) > 1000
    assert [(path.name, one) for path, line in lines for one in _FILE.findall(line) if one not in there] == []


def test_docstrings_begin_with_what_a_thing_is_or_does() -> None:
    texts = [
        text for path in PACKAGE.rglob("*.py") for text in _docstrings(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(texts) > 1000
    assert [text for text in texts if text.split()[0].rstrip(",:") in ("Of", "And", "Likewise", "Then")] == []


def _docstrings(tree: ast.Module) -> list[str]:
    nodes = [one for one in ast.walk(tree) if isinstance(one, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    return [text for one in nodes if (text := ast.get_docstring(one))]


def _comments(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return re.findall(r"//.*", text)
    found = [one.string for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type == tokenize.COMMENT]
    return found + _docstrings(ast.parse(text))
