"""Tables put into files. Where a file has the marks, only what lies between them is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from polyphase.errors import ResultFileError

BEGIN, END = "<!-- polyphase compare: begin -->", "<!-- polyphase compare: end -->"


def put(text: str, path: Path) -> None:
    """Between the marks, if there are any."""
    with _to_be_named(path):
        before, after = _around(path.read_text(encoding="utf-8") if path.exists() else "")
    write(before + text + after, path)


def write(text: str, path: Path) -> None:
    with _to_be_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@contextmanager
def _to_be_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ResultFileError(f"cannot write {path}: {error.strerror}; name a writable file with -o") from error


def _around(document: str) -> tuple[str, str]:
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    return (f"{before}{begin}\n\n", f"\n{end}{after}") if begin and end else ("", "")
