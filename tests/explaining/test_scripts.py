"""`polyphase explain SCRIPT.py:FUNCTION`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polyphase.cli import app

SCRIPT = """
import torch
import helper_beside

def mirrored(image):
    return torch.flip(image, (-1,)) * helper_beside.FACTOR

def make_inputs():
    return (torch.rand(1, 3, 40, 50),)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "helper_beside.py").write_text("FACTOR = 3")
    path = tmp_path / "augment.py"
    path.write_text(SCRIPT)
    return path


def invoke(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["explain", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.inductor
def test_a_function(script: Path, tmp_path: Path) -> None:
    code, out, _ = invoke(f"{script}:mirrored")
    assert code == 0
    assert "1 kernel of ours" in out
    assert "epilogue=mul(x, 3)" in out
    code, out, err = invoke(f"{script}:mirrored", "--json", "--save", tmp_path / "saved")
    assert json.loads(out)["backend"] == "polyphase"
    assert "graph0_kernel0.py" in err
    assert (tmp_path / "saved" / "graph0_kernel0.cpp").is_file()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("augment.py", "names no function; give SCRIPT.py:FUNCTION"),
        ("{folder}/missing.py:f", "there is no file"),
        ("{folder}/augment.py:flipped", "has no function 'flipped'; it has mirrored, make_inputs"),
        ("{folder}/helper_beside.py:f", "has no function 'f'; it has none"),
        ("{folder}/no_inputs.py:f", "write one beside f that returns a tuple"),
    ],
)
def test_mistakes(script: Path, target: str, message: str) -> None:
    (script.parent / "no_inputs.py").write_text("def f(): pass")
    code, _, err = invoke(target.format(folder=script.parent))
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def f(:", "SyntaxError"),
        ("import no_such_module", "import no_such_module"),
        ("def f(): pass\n\ndef make_inputs():\n    return 1 / 0", "return 1 / 0"),
    ],
)
def test_a_script_that_fails_is_told_as_python_tells_it(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(text)
    code, _, err = invoke(f"{path}:f")
    assert code == 2
    assert told in err
    assert f'"{path}", line {text.count(chr(10)) + 1}' in err
    assert "importlib" not in err
    assert "explaining" not in err
    assert len(err.strip().splitlines()) < 8


def test_an_unknown_backend(script: Path) -> None:
    code, _, err = invoke(f"{script}:mirrored", "--backend", "eager")
    assert code == 2
    assert "choose one of: inductor, polyphase" in err
