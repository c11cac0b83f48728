"""Each private name of torch, taken away: what is left works, and says what does not."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch

from polyphase import torch_private
from polyphase.decompositions.memory_order import stride_order
from polyphase.errors import MissingTorchInternalsError
from polyphase.torch_private import (
    ALL,
    COMPILING,
    EXPLAINING,
    FUNCTIONS,
    LOADING,
    MEASURING,
    ON_CUDA,
    TESTED_TORCH,
    TRACING,
    Private,
)

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "polyphase"

Answer: TypeAlias = dict[str, Any]
Try: TypeAlias = Callable[..., Answer]


def places(table: dict[str, Private]) -> list[Any]:
    """What can be missing: the names, and the attributes they need."""
    found = []
    for name, private in table.items():
        found.append(pytest.param(name, private.place, id=name))
        colon = "." if ":" in private.place else ":"
        found += [pytest.param(name, f"{private.place}{colon}{need}", id=f"{name}-{need}") for need in private.needs]
    return found


@pytest.fixture(scope="module")
def without() -> Iterator[Try]:
    """Tries something without a private name, in a process of its own."""
    command = [sys.executable, "-m", "tests.support.without_a_name"]
    without_gpu = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # which no fork of this process could use
    process = subprocess.Popen(
        command, cwd=ROOT, env=without_gpu, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def trial(kind: str, *places: str) -> Answer:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([kind, *places]) + "\n")
        process.stdin.flush()
        answer: Answer = json.loads(process.stdout.readline())
        return answer

    with process:
        yield trial
        process.stdin.close()  # type: ignore[union-attr]


QUIET: Answer = {"failed": "", "text": "", "at_import": [], "later": []}


def check(answer: Answer, name: str, place: str) -> None:
    """An error where the name is required, else one warning, of this name."""
    private, missing = ALL[name], place.replace(":", ".")
    assert answer["failed"] == ("said" if private.is_required else ""), answer["text"]
    said = [answer["text"]] if private.is_required else answer["at_import"] + answer["later"]
    assert len(said) == bool(private.without)
    for text in said:
        assert missing in text
        assert torch.__version__ in text
        assert "Tested with torch 2.11 to 2.15" in text


@pytest.mark.parametrize("name", [name for name, private in ALL.items() if private.without])
def test_this_torch_has_it(name: str) -> None:
    if name in ON_CUDA and torch.version.cuda is None:
        pytest.skip("a build without CUDA")
    private = ALL[name]
    assert getattr(torch_private, name) is not private.instead


@pytest.mark.parametrize(("name", "place"), places(FUNCTIONS))
def test_functions_without_it(name: str, place: str, without: Try) -> None:
    check(without("functions", place), name, place)


#: From a source tree, `import polyphase` registers the backend itself, for which it imports Dynamo.
IS_INSTALLED = bool(importlib.metadata.entry_points(group="torch_dynamo_backends", name="polyphase"))
installed = pytest.mark.skipif(not IS_INSTALLED, reason="the package is not installed")


@installed
def test_what_functions_do_not_need_is_not_spoken_of(without: Try) -> None:
    others = LOADING | TRACING | COMPILING | EXPLAINING | MEASURING
    assert without("functions", *(private.place for private in others.values())) == QUIET


@pytest.mark.parametrize(("name", "place"), places(LOADING))
def test_loading_without_it(name: str, place: str, without: Try) -> None:
    check(without("loading", place), name, place)


@pytest.mark.parametrize(("name", "place"), places(TRACING))
def test_tracing_without_it(name: str, place: str, without: Try) -> None:
    check(without("tracing", place), name, place)


@pytest.mark.parametrize(("name", "place"), places(COMPILING))
def test_compiling_without_it(name: str, place: str, without: Try) -> None:
    check(without("source_tree" if name == "register_backend" else "compiling", place), name, place)


@pytest.mark.parametrize(("name", "place"), places(EXPLAINING))
def test_explaining_without_it(name: str, place: str, without: Try) -> None:
    check(without("explaining", place), name, place)


@pytest.mark.parametrize(("name", "place"), places(MEASURING))
def test_measuring_without_it(name: str, place: str, without: Try) -> None:
    check(without("measuring", place), name, place)


@installed
@pytest.mark.parametrize(
    "trial", ["functions", "loading", "tracing", "compiling", "source_tree", "explaining", "measuring"]
)
def test_nothing_is_said_where_nothing_is_missing(trial: str, without: Try) -> None:
    assert without(trial, "torch:nothing") == QUIET


# ---- what is used instead


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_memory_formats_are_torch_s(rank: int) -> None:
    from torch._prims_common import suggest_memory_format

    last = (0, rank - 1, *range(1, rank - 1))
    for shape in product((1, 2, 3), repeat=rank):
        dense = torch.empty(shape)
        for image in (dense, torch.empty([shape[d] for d in last]).permute(_inverse(last)), dense[..., ::2], dense.mT):
            assert torch_private._suggest_memory_format(image) == suggest_memory_format(image), image.stride()
    for image in (torch.empty([0] * rank), torch.empty([1] * rank).expand([2] * rank)):
        assert torch_private._suggest_memory_format(image) == suggest_memory_format(image), image.stride()


def test_orders_of_strides_are_torch_s() -> None:
    for order in ((0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 3, 2)):
        image = torch.empty(2, 3, 4, 5).permute(order)
        assert torch_private._order_of_strides(image) == stride_order(image)


def _inverse(order: tuple[int, ...]) -> list[int]:
    return [order.index(dim) for dim in range(len(order))]


def test_options_of_inductor_are_refused_where_they_cannot_be_read() -> None:
    assert torch_private._no_options(None, {}, None).config == {}
    with pytest.raises(MissingTorchInternalsError, match="takes none of Inductor's modes"):
        torch_private._no_options("max-autotune", {}, None)


# ---- one file


def private_names(path: Path) -> Iterator[str]:
    """Of torch, in a source file: imported, or attributes of anything that is not ours."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "torch":
                yield from (f"{module}.{one.name}" for one in names if _is_private(f"{module}.{one.name}"))
            case ast.Import(names=names):
                yield from (one.name for one in names if one.name.startswith("torch.") and _is_private(one.name))
            case ast.Attribute(value=value, attr=name) if _is_private(name) and ast.unparse(value) not in OURS:
                if name not in (*NAMED_TUPLES, *OF_PILLOW):
                    yield ast.unparse(node)


#: Whose private attributes are ours to use; ATen's operators have names of their own.
OURS = ("self", "cls", "aten")
NAMED_TUPLES = ("_replace", "_asdict")
#: What subclasses of Pillow's images set.
OF_PILLOW = ("_mode", "_size")


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def test_private_names_are_in_one_file() -> None:
    found = {
        str(path.relative_to(SOURCES)): names
        for path in SOURCES.rglob("*.py")
        if path.name != "torch_private.py" and (names := list(private_names(path)))
    }
    assert found == {}


def test_what_is_imported_from_it_is_there() -> None:
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            match node:
                case ast.ImportFrom(module="polyphase.torch_private"):
                    names = [one.name for one in node.names]
                case ast.Attribute(value=ast.Name(id="torch_private")):
                    names = [node.attr]
            for name in names:
                assert name in ALL or name in vars(torch_private), f"{path.name}: {name}"


def test_every_name_is_used() -> None:
    text = "\n".join(path.read_text() for path in SOURCES.rglob("*.py") if path.name != "torch_private.py")
    assert [name for name in ALL if name not in text] == []


def test_the_range_of_torch_is_the_project_s() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert tuple(project["tool"]["polyphase"]["tested-torch"]) == TESTED_TORCH
    assert f"torch>={TESTED_TORCH[0]}" in project["project"]["dependencies"]
