"""Built libraries on disk, private to the user: published by one rename, and used only if whole.

An entry is a shared library with a seal behind it: a mark, then the SHA-256 of all that precedes the mark. Loading
a damaged library can kill the process, so whatever the seal does not vouch for is built again. The lock only saves
work; what keeps entries whole is the rename.

Where the cache directory cannot be used, libraries go to a temporary directory that ends with the process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from polyphase import settings

MARK = b"polyphase seal 1"
SEAL_BYTES = len(MARK) + hashlib.sha256().digest_size
KEY_DIGITS = 32

LOCK_SECONDS = 150  # longer than a compiler may take: a holder that keeps it longer is stuck
ABANDONED_SECONDS = 3600

_SCRATCH = ".building-"
_OURS = f"*-{'[0-9a-f]' * KEY_DIGITS}.*"


def obtain(name: str, make: Callable[[Path], Path]) -> Path:
    """The entry `name`. Where no sound one exists, `make` gets a scratch directory and returns the library it made."""
    directory = trusted_directory()
    if directory is not None:
        try:
            return _find_or_make(directory / name, make)
        except OSError as error:
            _warn_not_used(directory, f"{error.strerror}", "make room in it and make it writable")
    return _find_or_make(_private_directory(os.getpid()) / name, make)


def find(name: str) -> Path | None:
    """The entry `name`, if there is a sound one in the cache directory."""
    directory = trusted_directory()
    return directory / name if directory is not None and is_sound(directory / name) else None


def entries() -> list[tuple[Path, int]]:
    """The cached libraries and their sizes in bytes."""
    return [(path, path.stat().st_size) for path in _files() if path.suffix == ".so"]


def clear() -> None:
    """Removes what we put into the cache directory, and nothing else."""
    for path in _files():
        path.unlink(missing_ok=True)
    _sweep(trusted_directory(), age=0)


def trusted_directory() -> Path | None:
    """The cache directory, if nobody else can put libraries there for us to run."""
    directory = settings.cache_dir()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = directory.resolve()  # a link that is turned elsewhere after the check changes nothing
        status = directory.stat()
    except OSError as error:
        _warn_not_used(directory, f"{error.strerror}", "make it a writable directory")
        return None
    if status.st_uid != os.geteuid():
        _warn_not_used(directory, f"it belongs to user {status.st_uid}", f"chown it to user {os.geteuid()}")
        return None
    if _others_can_write(status):
        _warn_not_used(directory, "other users can write to it", "chmod go-w it")
        return None
    return directory


def is_sound(entry: Path) -> bool:
    """Whether this is a file of ours, no link, that only we can write and that is as it was when it was sealed."""
    try:
        descriptor = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or _others_can_write(status):
            return False
        content = memoryview(file.read())
    return content[-SEAL_BYTES:] == _seal(content[:-SEAL_BYTES])


def _find_or_make(entry: Path, make: Callable[[Path], Path]) -> Path:
    if is_sound(entry):
        return entry
    with _locked(entry):
        if not is_sound(entry):  # nobody made it while we waited
            _make(entry, make)
    return entry


def _make(entry: Path, make: Callable[[Path], Path]) -> None:
    _sweep(entry.parent, ABANDONED_SECONDS)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=entry.parent, ignore_cleanup_errors=True) as scratch:
        library = make(Path(scratch))
        library.chmod(0o600)  # with some umasks the group could write it, and it would never be trusted
        seal = _seal(library.read_bytes())
        with library.open("ab") as file:
            file.write(seal)
        library.replace(entry)


def _seal(content: bytes | memoryview) -> bytes:
    return MARK + hashlib.sha256(content).digest()


@contextlib.contextmanager
def _locked(entry: Path) -> Iterator[None]:
    """Alone with this entry, unless the file system has no locks or the holder is stuck: then work is repeated."""
    from filelock import FileLock

    lock = FileLock(entry.with_suffix(".lock"))
    with contextlib.suppress(OSError, NotImplementedError):
        lock.acquire(timeout=LOCK_SECONDS)
    try:
        yield
    finally:
        lock.release()


@functools.cache
def _private_directory(process: int) -> Path:
    """One per process: a forked child must not lose its libraries when its parent ends."""
    from multiprocessing.util import Finalize  # unlike atexit: in workers too, and not for the parent's directory

    directory = Path(tempfile.mkdtemp(prefix="polyphase-"))
    Finalize(None, shutil.rmtree, args=(directory,), kwargs={"ignore_errors": True}, exitpriority=0)
    return directory


def _others_can_write(status: os.stat_result) -> bool:
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


@functools.cache  # says it once
def _warn_not_used(directory: Path, reason: str, fix: str) -> None:
    warnings.warn(
        f"polyphase does not keep kernels in {directory}: {reason}. Each process builds its own. "
        f"The fix: {fix}, or set POLYPHASE_CACHE_DIR to a directory of your own",
        stacklevel=2,
    )


def _files() -> list[Path]:
    directory = trusted_directory()
    return sorted(directory.glob(_OURS)) if directory else []


def _sweep(directory: Path | None, age: float) -> None:
    """Removes scratch directories that killed processes left."""
    for scratch in directory.glob(f"{_SCRATCH}*") if directory else ():
        with contextlib.suppress(OSError):
            if time.time() - scratch.stat().st_mtime >= age:
                shutil.rmtree(scratch)
