"""Built libraries on disk, private to the user: published by one rename, used only if whole, the least used removed.

An entry is a library, with what it is for and a seal behind it: a NUL, a line of text, a mark, and the SHA-256 of all
that precedes the mark. Loading a damaged library can kill the process, so whatever the seal does not vouch for is made
again. Locks only save work; what keeps entries whole is the rename. An entry was last used when it was last modified.

Where the cache directory cannot be used, or is full, libraries go to a temporary directory that ends with the process.

A wheel brings libraries of its own, in `PREBUILT`, sealed likewise: they are looked for first, and never written.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from polyphase import settings
from polyphase.errors import warn

MARK = b"polyphase seal 2"
SEAL_BYTES = len(MARK) + hashlib.sha256().digest_size
KEY_DIGITS = 32
LIBRARIES = (".so", ".cubin")
#: Where a wheel has libraries; a checkout has no such folder. Names are `prebuilt_name`'s.
PREBUILT = Path(__file__).parents[1] / "prebuilt"

LOCK_SECONDS = 150  # longer than a compiler may take: a holder that keeps it longer is stuck
LOOK_AGAIN_SECONDS = 0.02
STARTING_SECONDS = 10  # a younger scratch directory may belong to a process that is about to lock it
ABANDONED_SECONDS = 3600  # where a file system has no locks, an older one belongs to nobody
#: What was used since then is not evicted: somebody may be about to load it.
RECENT_SECONDS = 300

_SCRATCH = ".building-"
_OURS = f"*-{'[0-9a-f]' * KEY_DIGITS}.*"

#: A scratch directory and the names of what is to be made there -> the names of what was made.
Make: TypeAlias = Callable[[Path, list[str]], Iterable[str]]
Result = TypeVar("Result")


class Entry(NamedTuple):
    """used: when, in seconds since the epoch."""

    path: Path
    size: int
    used: float


def obtain(wanted: Mapping[str, str], make: Make) -> dict[str, Path]:
    """Entries by name, each wanted for a purpose that is kept with it; `make` makes those that are missing. An OSError
    of its own says that a place cannot be used. Left out are those it could not make."""
    directory = trusted_directory()
    found = _find(directory, wanted) if directory else {}
    missing = {name: purpose for name, purpose in wanted.items() if name not in found}
    return found | _somewhere(lambda place: _find_or_make(place, missing, make)) if missing else found


def prebuilt(name: str) -> Path | None:
    """A library that came with the package, if it is whole. Whoever can write there can write our code as well, so
    nobody asks whose it is."""
    entry = PREBUILT / name
    with contextlib.suppress(OSError):
        if _unsealed(entry.read_bytes()) is not None:
            return entry
    return None


def prebuilt_name(stem: str, target: str, facts: object, suffix: str) -> str:
    """Names a library by what it computes, not by what built it. `facts`: its source, and all else that it is made
    from. `target`: the instruction set or architecture that it is for.
    """
    return f"{stem}-{target}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:KEY_DIGITS]}{suffix}"


def prebuilt_targets() -> dict[str, list[int]]:
    """The sizes of the libraries that came with the package, by what they are for."""
    found: dict[str, list[int]] = {}
    for path in sorted(PREBUILT.glob(_OURS)):
        found.setdefault(path.name.split("-")[1], []).append(path.stat().st_size)
    return found


def keep(name: str, text: str) -> Path:
    """A text for people to read, among the entries."""

    def write(directory: Path) -> Path:
        with _scratch(directory) as scratch:
            written = scratch / name
            written.write_text(text, encoding="utf-8")
            written.chmod(0o600)
            return written.replace(directory / name)  # which follows no link

    return _somewhere(write)


def kept_source(source: str, suffix: str) -> Path:
    """What a kernel was generated from, to be read: kernels are kept without it."""
    return keep(f"source-{hashlib.sha256(source.encode()).hexdigest()[:KEY_DIGITS]}.{suffix}", source)


def entries() -> list[Entry]:
    """The cached libraries, the latest used first."""
    directory = trusted_directory()
    found = [one for one in _files(directory) if one.path.suffix in LIBRARIES] if directory else []
    return sorted(found, key=lambda one: one.used, reverse=True)


def purpose(entry: Path) -> str | None:
    """What a library is for; None if it is not sound."""
    content = _vouched_for(entry)
    return None if content is None else content[content.rfind(b"\0") + 1 :].decode()


def clear() -> None:
    """Removes what we put into the cache directory, and nothing else."""
    directory = trusted_directory()
    if directory is not None:
        for one in _files(directory):
            one.path.unlink(missing_ok=True)
        _sweep(directory, age=0)


def trusted_directory() -> Path | None:
    """The cache directory, if nobody else can put libraries there for us to run."""
    directory = settings.cache_dir()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        given = directory.lstat()
        directory = directory.resolve()  # a link that is turned elsewhere after the check changes nothing
        status = directory.stat()
    except OSError as error:
        _warn_not_used(directory, f"{error.strerror}", "make it a writable directory")
        return None
    if stat.S_ISLNK(given.st_mode) and given.st_uid not in (0, os.geteuid()):
        _warn_not_used(settings.cache_dir(), f"it is a link of user {given.st_uid}", "remove the link")
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
    return _vouched_for(entry) is not None


def _vouched_for(entry: Path) -> bytes | None:
    """A sound entry's content without its seal."""
    with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
        descriptor = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        opened.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not _others_can_write(status):
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read()
            return _unsealed(content)
    return None


def _unsealed(entry: bytes) -> bytes | None:
    """A whole entry's content without its seal."""
    content = entry[:-SEAL_BYTES]
    return content if entry[-SEAL_BYTES:] == _seal(content) else None


def _seal(content: bytes) -> bytes:
    return MARK + hashlib.sha256(content).digest()


def _somewhere(act: Callable[[Path], Result]) -> Result:
    """Acts in the cache directory, or else in a private one."""
    directory = trusted_directory()
    if directory is not None:
        try:
            return act(directory)
        except OSError as error:
            _warn_not_used(directory, f"{error.strerror}", "make room in it and make it writable")
    return act(_private_directory(os.getpid()))


def _find(directory: Path, names: Iterable[str]) -> dict[str, Path]:
    """Finds those that are there, and marks them as used."""
    found = {name: directory / name for name in names if is_sound(directory / name)}
    for entry in found.values():
        with contextlib.suppress(OSError):  # a cache that cannot be written, or an entry removed just now
            os.utime(entry)
    return found


def _find_or_make(directory: Path, wanted: Mapping[str, str], make: Make) -> dict[str, Path]:
    most = settings.cache_max_bytes()
    with _locked((directory / name).with_suffix(".lock") for name in wanted):
        found = _find(directory, wanted)  # by now: somebody may have made them while we waited
        missing = [name for name in wanted if name not in found]
        if missing:
            with _scratch(directory) as scratch:
                for name in make(scratch, missing):
                    found[name] = _publish(scratch / name, directory / name, wanted[name])
            _evict(directory, most)
    return found


def _publish(library: Path, entry: Path, purpose: str) -> Path:
    library.chmod(0o600)  # with some umasks the group could write it, and it would never be trusted
    described = b"\0" + purpose.encode()
    seal = _seal(library.read_bytes() + described)
    with library.open("ab") as file:
        file.write(described + seal)
    return library.replace(entry)


def _evict(directory: Path, most: float) -> None:
    """Removes what was not used for the longest time, until the rest takes no more than so many bytes."""
    files = sorted(_files(directory), key=lambda one: one.used)
    excess = sum(one.size for one in files) - most
    for one in files:
        if excess <= 0 or time.time() - one.used < RECENT_SECONDS:
            return
        one.path.unlink(missing_ok=True)
        excess -= one.size


@contextlib.contextmanager
def _locked(locks: Iterable[Path]) -> Iterator[None]:
    """Alone with these, unless the file system has no locks or a holder is stuck: then work is repeated.

    All take them in one order, or two processes could wait for each other. A lock is let go explicitly: a child that
    was forked meanwhile has its descriptor too.
    """
    with contextlib.ExitStack() as held:
        for lock in sorted(locks):
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            held.callback(os.close, descriptor)
            end = time.monotonic() + LOCK_SECONDS
            while _taken(descriptor) and time.monotonic() < end:
                time.sleep(LOOK_AGAIN_SECONDS)
            held.callback(_let_go, descriptor)
            held.callback(lock.unlink, missing_ok=True)
        yield


def _taken(descriptor: int) -> bool | None:
    """Whether another has locked this; if not, we have now. None where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _let_go(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextlib.contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    """A directory that is locked while its process lives. Not a TemporaryDirectory: a forked child that ends would
    remove its parent's."""
    _sweep(directory, STARTING_SECONDS)
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=directory))
    descriptor = os.open(scratch, os.O_RDONLY)
    try:
        _taken(descriptor)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        _let_go(descriptor)
        os.close(descriptor)


def _sweep(directory: Path, age: float) -> None:
    """Removes scratch directories that killed processes left, if they have not changed for so many seconds."""
    for scratch in directory.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                unchanged = time.time() - os.fstat(descriptor).st_mtime
                taken = _taken(descriptor) if unchanged >= age else True
                if taken is False or (taken is None and unchanged >= ABANDONED_SECONDS):
                    shutil.rmtree(scratch)
            finally:
                os.close(descriptor)


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
    warn(
        f"polyphase does not keep kernels in {directory}: {reason}. Each process builds its own. "
        f"The fix: {fix}, or set POLYPHASE_CACHE_DIR to a directory of your own"
    )


def _files(directory: Path) -> list[Entry]:
    found = []
    for path in directory.glob(_OURS):
        with contextlib.suppress(OSError):  # removed just now
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                found.append(Entry(path, status.st_size, status.st_mtime))
    return found
