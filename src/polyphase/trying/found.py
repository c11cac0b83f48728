"""Finds what the user names: a transform or a dataset in the user's own code, and files of pictures."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from polyphase.errors import ScriptError, WrongCommandError
from polyphase.explaining import scripts
from polyphase.trying import drawn

PILLOW, TENSOR, ARRAY = KINDS = ("pillow", "tensor", "array")


@dataclass(frozen=True)
class Samples:
    """What is given to a transform. names: one for each sample. take: makes the sample with a number anew, decoding it.
    left_out: files that cannot be decoded, and why."""

    said: str
    names: tuple[str, ...]
    take: Callable[[int], Any]
    taking: str = "decoding"
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)


def transform(target: str) -> Any:
    """The transform that `package.module:name` or `FILE.py:name` is, or makes when it is called without arguments."""
    found = _object(target)
    if not callable(found):
        raise ScriptError(f"{target} is a {type(found).__name__}; name a transform: something to call with an image")
    return _made(found, target) if inspect.isclass(found) or inspect.isfunction(found) else found


def samples(target: str, kind: str, most: int) -> Samples:
    """Takes pictures from a folder or a file, or from a dataset in the user's code; at most so many."""
    path = Path(target)
    if path.exists():
        files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        return _decodable({_told(one, path): one.read_bytes for one in files}, target, kind, most)
    if ":" not in target:
        raise WrongCommandError(f"there is no file or folder {target!r}; name one, or a dataset as MODULE:NAME")
    dataset = _object(target)
    dataset = _made(dataset, target) if inspect.isclass(dataset) or inspect.isfunction(dataset) else dataset
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__") or not len(dataset):
        raise ScriptError(
            f"{target} is a {type(dataset).__name__}; a dataset has a length above 0, and items by number"
        )
    count = min(most, len(dataset))
    names = tuple(f"{target}[{number}]" for number in range(count))
    return Samples(f"{count} samples of {target}", names, lambda number: dataset[number], "reading a sample")


def drawn_samples(count: int, kind: str = PILLOW) -> Samples:
    """Landscapes, as JPEG files in memory."""
    files = {f"landscape {number}": _jpeg_of(number) for number in range(count)}
    return _decodable(files, "landscapes drawn by a seeded generator", kind, count)


def as_kind(image: Any, kind: str) -> Any:
    """A Pillow image as one of the kinds."""
    if kind == PILLOW:
        return image
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(image.height, image.width, 3)
    return pixels.permute(2, 0, 1).contiguous() if kind == TENSOR else pixels.numpy()


def _decodable(files: dict[str, Callable[[], bytes]], where: str, kind: str, most: int) -> Samples:
    contents, sizes, left_out = dict[str, bytes](), list[tuple[int, int]](), list[str]()
    for name, read in files.items():
        if len(contents) == most:
            break
        try:
            data = read()
            sizes.append(_decoded(data).size)
            contents[name] = data
        except (OSError, ValueError, SyntaxError) as error:  # Pillow's, of files that are broken or no pictures
            left_out.append(f"{name}: {type(error).__name__}")
    if not contents:
        why = f": {left_out[0]}" if left_out else ""
        raise WrongCommandError(f"none of {len(files)} files in {where} is a picture that Pillow decodes{why}")
    (least, *_, largest), kept = (
        sorted([min(sizes), *sizes, max(sizes)], key=lambda one: one[0] * one[1]),
        [*contents.values()],
    )
    between = "x".join(map(str, least)) + ("" if least == largest else " to " + "x".join(map(str, largest)))
    said = f"{len(kept)} {'picture' if len(kept) == 1 else 'pictures'} of {between} pixels, {where}"
    return Samples(
        said, tuple(contents), lambda number: as_kind(_decoded(kept[number]), kind), left_out=tuple(left_out)
    )


def _decoded(data: bytes) -> Any:
    return _pillow().open(io.BytesIO(data)).convert("RGB")


def _jpeg_of(number: int) -> Callable[[], bytes]:
    def encoded() -> bytes:
        pixels = drawn.picture(number).permute(1, 2, 0).contiguous()
        file = io.BytesIO()
        _pillow().frombytes("RGB", (pixels.shape[1], pixels.shape[0]), pixels.numpy().tobytes()).save(
            file, "JPEG", quality=90
        )
        return file.getvalue()

    return encoded


def _pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise WrongCommandError("pictures are decoded by Pillow, which is not installed: pip install pillow") from None
    return Image


def _told(file: Path, folder: Path) -> str:
    return file.name if file == folder else str(file.relative_to(folder))


def _object(target: str) -> Any:
    """What `package.module:name` or `FILE.py:name` names, in the user's code."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise ScriptError(f"{target!r} names nothing; give package.module:name, or FILE.py:name")
    if place.endswith(".py"):
        with scripts.mistakes_told(Path(place)):
            found = scripts.module(Path(place))
    else:
        found = _imported(place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ScriptError(f"{place} has no {name!r}; it has {', '.join(_names(found)) or 'nothing'}")
        found = getattr(found, part)
    return found


def _imported(name: str) -> Any:
    """A module, as `python -m` finds it: in the current folder too."""
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise ScriptError(f"{name} fails when it is imported:\n{scripts.told(error)}") from None
        raise ScriptError(
            f"there is no module {error.name!r} here; run this in the folder that has it, or give FILE.py:name"
        ) from None
    except Exception as error:
        raise ScriptError(f"{name} fails when it is imported:\n{scripts.told(error)}") from None
    finally:
        sys.path.remove(os.getcwd())


def _made(found: Any, target: str) -> Any:
    """Functions and classes that need no argument are called; a function of one is a transform itself."""
    try:
        needed = [
            one
            for one in inspect.signature(found).parameters.values()
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
    except ValueError:  # built in, and says nothing
        needed = []
    if needed and inspect.isclass(found):
        names = ", ".join(one.name for one in needed)
        raise ScriptError(f"{target} is a class that needs {names}; name an object, or a function that makes one")
    if needed:
        return found
    try:
        return found()
    except Exception as error:
        raise ScriptError(f"{target}() fails:\n{scripts.told(error)}") from None


def _names(holder: Any) -> Sequence[str]:
    module = getattr(holder, "__name__", None)
    own = [name for name, one in vars(holder).items() if getattr(one, "__module__", module) == module]
    return [name for name in own if not name.startswith("_")][:20]
