"""`SCRIPT.py:FUNCTION`: a function in a file, with inputs from a `make_inputs` beside it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polyphase.errors import ScriptError

_PACKAGE = Path(__file__).parents[1]


def load(target: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function, and the arguments to explain it with."""
    path, _, name = target.rpartition(":")
    if not path or not name:
        raise ScriptError(f"{target!r} names no function; give SCRIPT.py:FUNCTION")
    with mistakes_told(Path(path)):
        found = module(Path(path))
    function, make_inputs = (getattr(found, one, None) for one in (name, "make_inputs"))
    if not callable(function):
        raise ScriptError(f"{path} has no function {name!r}; it has {', '.join(_functions(found)) or 'none'}")
    if not callable(make_inputs):
        raise ScriptError(f"{path} has no make_inputs(); write one beside {name} that returns a tuple of arguments")
    with mistakes_told(Path(path)):
        inputs = make_inputs()
    return function, inputs if isinstance(inputs, tuple) else (inputs,)


@contextmanager
def mistakes_told(path: Path) -> Iterator[None]:
    """Errors of a script are told as Python tells them when the script is run: from its own frames on, without ours."""
    try:
        yield
    except ScriptError:
        raise
    except Exception as error:
        raise ScriptError(f"{path} fails; run it with python first, and mend it:\n{told(error)}") from None


def told(error: BaseException) -> str:
    """An error of the user's code, as Python tells it, without the frames before the user's first: ours, and those that
    import modules."""
    frame = error.__traceback__
    while frame is not None and _is_no_users(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame)).rstrip()


def _is_no_users(file: str) -> bool:
    return file.startswith("<frozen importlib") or file == importlib.__file__ or _PACKAGE in Path(file).parents


def module(path: Path) -> Any:
    """A file as a module, with what lies beside it to be imported."""
    if not path.is_file():
        raise ScriptError(f"there is no file {str(path)!r}; give SCRIPT.py:FUNCTION")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ScriptError(f"{str(path)!r} is no Python file; give SCRIPT.py:FUNCTION")
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made  # Dynamo looks its functions' globals up
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(made)
    finally:
        sys.path.remove(str(path.parent))
    return made


def _functions(module: Any) -> list[str]:
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
