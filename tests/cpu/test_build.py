"""Every way a build or a cached library can go wrong ends in a sound library or an error that says what to do."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from polyphase.cpu import build, isa
from polyphase.errors import BuildFailedError, CompilerMissingError, PolyphaseError
from polyphase.kernels import store

SOURCE = """
#include "answer.h"
extern "C" __attribute__((visibility("default"))) int answer() { return ANSWER; }
"""
SOMEBODY_ELSE = 54321  # a user id

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
fork = multiprocessing.get_context("fork")
Counting = Callable[[], int]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    monkeypatch.setenv("POLYPHASE_CACHE_DIR", str(directory))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build, "_failures", {})
    store._warn_not_used.cache_clear()
    return directory


@pytest.fixture
def include(tmp_path: Path) -> Path:
    return make_include(tmp_path / "include", 42)


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    """How often the compiler ran so far."""
    log = tmp_path / "log"
    log.touch()
    use_compiler(monkeypatch, tmp_path, f'echo >> {log}; exec g++ "$@"')
    return lambda: len(log.read_text())


def make_include(folder: Path, answer: int) -> Path:
    folder.mkdir()
    (folder / "answer.h").write_text(f"#define ANSWER {answer}\n")
    return folder


def use_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """`$output` is the file the compiler is to make."""
    program = folder / "compiler"
    find_output = 'for word; do test "$last" = -o && output="$word"; last="$word"; done\n'
    program.write_text(f"#!/bin/sh\n{find_output}{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))


def have(include: Path, source: str = SOURCE) -> Path:
    return build.library(source, "portable", stem="answer", options=("-O0",), include=include)


def answer(library: Path) -> int:
    return int(ctypes.CDLL(str(library)).answer())


def start_without_torch(program: str) -> subprocess.Popen[str]:
    """A fresh interpreter. The package's __init__ imports torch, so an empty one stands in for it."""
    package = str(Path(build.__file__).parents[1])
    stand_in = (
        f"import sys, types; sys.modules['polyphase'] = p = types.ModuleType('polyphase'); p.__path__ = [{package!r}]"
    )
    return subprocess.Popen([sys.executable, "-c", f"{stand_in}\n{program}"], stdout=subprocess.PIPE, text=True)


def run_without_torch(program: str) -> str:
    """What it prints."""
    process = start_without_torch(program)
    output, _ = process.communicate()
    assert process.returncode == 0
    return output


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.suffix != ".lock")


def test_builds_once_into_a_private_place(directory: Path, include: Path, compilations: Counting) -> None:
    library = have(include)
    assert answer(library) == 42
    assert compilations() == 1
    assert have(include) == library
    assert compilations() == 1
    assert library.name.startswith("answer-")
    assert names(directory) == [library.name]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(library.stat().st_mode) == 0o600


def test_an_open_umask_does_not_spoil_entries(include: Path, compilations: Counting) -> None:
    before = os.umask(0)
    try:
        assert have(include) == have(include)
    finally:
        os.umask(before)
    assert compilations() == 1


def test_warm_start_runs_no_compiler(include: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = have(include)

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", forbidden)
    assert have(include) == library


def test_our_own_headers_are_found() -> None:
    source = '#include "polyphase/core/abi.h"\nint size() { return sizeof(polyphase::Step); }'
    assert build.library(source, "portable").exists()


def test_side_by_side(include: Path, directory: Path) -> None:
    sources = [SOURCE.replace("ANSWER", str(number)) for number in (1, 2, 2, 3)]
    requests = [build.Request(source, "portable", "answer", ("-O0",), include) for source in sources]
    assert [answer(library) for library in build.libraries(requests)] == [1, 2, 2, 3]
    assert len(store.entries()) == 3


def test_what_changes_the_key(tmp_path: Path, include: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = build.Request(SOURCE, "portable", include=include)
    compiler, flags = ("g++",), ("-O3",)

    def key(
        request: build.Request = request, compiler: tuple[str, ...] = compiler, flags: tuple[str, ...] = flags
    ) -> str:
        return build._key(request, compiler, flags)

    keys = [key(), key(request._replace(source="")), key(flags=("-O2",)), key(compiler=("g++", "-B/"))]
    keys.append(key(request._replace(include=make_include(tmp_path / "changed", 43))))
    use_compiler(monkeypatch, tmp_path, "exit 0")
    keys.append(key(compiler=(os.environ["CXX"],)))
    use_compiler(monkeypatch, tmp_path, "exit 10")
    keys.append(key(compiler=(os.environ["CXX"],)))
    keys.append(key(compiler=("env", os.environ["CXX"])))
    use_compiler(monkeypatch, tmp_path, "exit 100")
    keys.append(key(compiler=("env", os.environ["CXX"])))
    monkeypatch.setattr(isa, "features", lambda: frozenset({"another"}))
    keys.append(key())
    monkeypatch.setattr(build, "__version__", "another")
    keys.append(key())
    assert len(set(keys)) == len(keys)
    assert key(request._replace(include=shutil.copytree(include, tmp_path / "same"))) == key()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags are for x86-64")
def test_options_and_instruction_set_reach_the_compiler(include: Path) -> None:
    source = 'extern "C" __attribute__((visibility("default"))) int answer() { return ANSWER + AVX; }'
    options = ("-DANSWER=1", "-DAVX=__AVX2__")
    assert answer(build.library(source, "avx2", options=options, include=include)) == 2


@pytest.mark.skipif(shutil.which("clang++") is None, reason="there is no clang++")
@pytest.mark.parametrize(
    "forced", [*(pytest.param(name, marks=pytest.mark.full) for name in isa.available()[:-1]), isa.available()[-1]]
)
def test_clang_builds_kernels_too(monkeypatch: pytest.MonkeyPatch, forced: str) -> None:
    program = """
import warnings
import torch
import torch.nn.functional as F
import polyphase.functional as P
from polyphase.errors import NoKernelsWarning
warnings.simplefilter("error", NoKernelsWarning)
for dtype in (torch.float32, torch.uint8):
    image = (torch.rand(1, 3, 40, 50) * 255).to(dtype)
    for size, mode in (((23, 31), "bilinear"), ((70, 20), "bicubic")):
        ours, eager = (f(image, size=size, mode=mode, antialias=True) for f in (P.interpolate, F.interpolate))
        torch.testing.assert_close(ours, eager, rtol=0, atol=0 if dtype == torch.uint8 else 1e-3)
    assert P.flip(image, (-1,)).equal(image.flip(-1))
image, grid = torch.rand(1, 3, 40, 50), torch.rand(1, 20, 30, 2) * 2 - 1
for mode in ("nearest", "bilinear", "bicubic"):
    ours, eager = (f(image, grid, mode=mode, align_corners=False) for f in (P.grid_sample, F.grid_sample))
    torch.testing.assert_close(ours, eager, rtol=0, atol=1e-4)
"""
    monkeypatch.setenv("CXX", "clang++")
    monkeypatch.setenv("POLYPHASE_ISA", forced)
    subprocess.run([sys.executable, "-c", program], check=True)


def truncate(entry: Path) -> None:
    os.truncate(entry, entry.stat().st_size // 2)


def empty(entry: Path) -> None:
    os.truncate(entry, 0)


def cut_the_seal(entry: Path) -> None:
    os.truncate(entry, entry.stat().st_size - store.SEAL_BYTES)


def flip_a_bit(entry: Path) -> None:
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes(content)


def fill_with_garbage(entry: Path) -> None:
    entry.write_bytes(os.urandom(entry.stat().st_size))


def replace_by_a_link(entry: Path) -> None:
    target = entry.parent.parent / "target.so"
    entry.rename(target)
    entry.symlink_to(target)


def replace_by_a_pipe(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry)


def let_others_write(entry: Path) -> None:
    entry.chmod(0o620)


def give_away(entry: Path) -> None:
    os.chown(entry, SOMEBODY_ELSE, -1)


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        empty,
        cut_the_seal,
        flip_a_bit,
        fill_with_garbage,
        replace_by_a_link,
        replace_by_a_pipe,
        let_others_write,
        pytest.param(give_away, marks=as_root),
    ],
)
def test_a_bad_entry_is_built_again(damage: Callable[[Path], None], include: Path, compilations: Counting) -> None:
    entry = have(include)
    damage(entry)
    assert not store.is_sound(entry)
    assert have(include) == entry
    assert store.is_sound(entry)
    assert not entry.is_symlink()
    assert compilations() == 2
    assert answer(entry) == 42


def test_an_entry_that_cannot_be_replaced(include: Path, directory: Path) -> None:
    entry = have(include)
    entry.unlink()
    entry.mkdir()
    with pytest.warns(UserWarning, match=r"does not keep kernels in .*: Is a directory.*The fix: "):
        library = have(include)
    assert library.parent != directory
    assert answer(library) == 42
    assert have(include) == library  # built once, warned once
    assert names(directory) == [entry.name]


@pytest.mark.parametrize("place", ["file", "below a file", "proc"])
def test_a_cache_directory_that_cannot_be(
    place: str, include: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    where = {"file": file, "below a file": file / "cache", "proc": Path("/proc/polyphase")}[place]
    monkeypatch.setenv("POLYPHASE_CACHE_DIR", str(where))
    with pytest.warns(UserWarning, match="set POLYPHASE_CACHE_DIR to a directory of your own"):
        library = have(include)
    assert stat.S_IMODE(library.parent.stat().st_mode) == 0o700
    assert have(include) == library
    assert store.entries() == []
    store.clear()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_cache_directory_others_can_write(mode: int, include: Path, directory: Path) -> None:
    directory.mkdir()
    directory.chmod(mode)
    with pytest.warns(UserWarning, match=r"other users can write to it.*chmod go-w"):
        assert have(include).parent != directory
    assert names(directory) == []


@as_root
def test_a_cache_directory_of_somebody_else(include: Path, directory: Path) -> None:
    directory.mkdir(mode=0o755)
    os.chown(directory, SOMEBODY_ELSE, -1)
    with pytest.warns(UserWarning, match=f"belongs to user {SOMEBODY_ELSE}.*chown"):
        assert have(include).parent != directory
    assert names(directory) == []


def test_a_linked_cache_directory_is_followed(include: Path, directory: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    directory.symlink_to(elsewhere)
    assert have(include).parent == elsewhere


def test_the_private_directory_ends_with_its_process(include: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
import os, warnings
from pathlib import Path
from polyphase.cpu import build
warnings.simplefilter("ignore")
def directory():
    return build.library("int x;", "portable", options=("-O0",)).parent
parents = directory()
if os.fork() == 0:
    assert directory() != parents
    print(directory(), flush=True)
    sys.exit()
os.wait()
assert parents.is_dir()
print(parents)
"""
    monkeypatch.setenv("POLYPHASE_CACHE_DIR", "/proc/polyphase")
    directories = run_without_torch(program).split()
    assert len(set(directories)) == 2
    assert not any(map(os.path.exists, directories))


def build_in_a_worker(include: Path, barrier: Barrier | None, results: Path, number: int = 0) -> None:
    """Three libraries, in whatever order."""
    sources = [f"{SOURCE}// {n}" for n in range(3)]
    requests = [build.Request(source, "portable", "answer", ("-O0",), include) for source in sources]
    if barrier is not None:
        barrier.wait()
    found = build.libraries(requests[number % 3 :] + requests[: number % 3])
    (results / str(os.getpid())).write_text(f"{sorted(found)} {[answer(one) for one in found]}")


def test_killed_half_way(include: Path, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killing:
        use_compiler(killing, tmp_path, 'printf half > "$output"; kill -KILL $PPID')
        worker = fork.Process(target=build_in_a_worker, args=(include, None, tmp_path))
        worker.start()
        worker.join()
    assert worker.exitcode == -9
    (abandoned,) = names(directory)
    assert store.entries() == []
    library = have(include)
    assert answer(library) == 42
    assert names(directory) == [abandoned, library.name]

    make_old(directory / abandoned)
    library.unlink()
    assert have(include) == library
    assert names(directory) == [library.name]


def make_old(path: Path, seconds: float = 2 * store.RECENT_SECONDS) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_what_a_living_process_builds_is_not_swept(include: Path, directory: Path) -> None:
    directory.mkdir(mode=0o700)
    with store._scratch(directory) as scratch:
        make_old(scratch, 2 * store.ABANDONED_SECONDS)
        have(include)
        store.clear()
        assert scratch.is_dir()
    assert names(directory) == []


def test_a_child_that_ends_leaves_its_parents_build(directory: Path) -> None:
    """As one that is forked while another thread builds."""
    directory.mkdir(mode=0o700)
    with store._scratch(directory) as scratch:
        child = os.fork()
        if child == 0:
            try:
                import atexit

                atexit._run_exitfuncs()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert scratch.is_dir()


def test_sixteen_processes_start_cold(include: Path, directory: Path, tmp_path: Path, compilations: Counting) -> None:
    results = tmp_path / "results"
    results.mkdir()
    barrier = fork.Barrier(16)
    workers = [fork.Process(target=build_in_a_worker, args=(include, barrier, results, n)) for n in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seen = [result.read_text() for result in results.iterdir()]
    assert len(seen) == 16
    assert set(seen) == {f"{sorted(one.path for one in store.entries())} [42, 42, 42]"}
    assert compilations() == 3
    assert len(list(directory.iterdir())) == 3  # no lock is left


def test_a_stuck_holder_of_the_lock_is_not_waited_for(include: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock

    entry = have(include)
    entry.unlink()
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.1)
    with FileLock(entry.with_suffix(".lock")):
        assert have(include) == entry


def test_no_compiler(include: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompilerMissingError, match=r"looked for g\+\+, c\+\+, clang\+\+; install g\+\+"):
        have(include)
    assert issubclass(CompilerMissingError, PolyphaseError)


def test_an_error_in_the_source(include: Path, directory: Path) -> None:
    with pytest.raises(BuildFailedError) as caught:
        have(include, "int x = no_such_name;")
    message = str(caught.value)
    assert "no_such_name" in message
    assert "g++ -std=c++17 -O1 " in message
    (kept,) = directory.glob("*.cpp")
    assert f"The source is kept in {kept}" in message
    assert kept.read_text() == "int x = no_such_name;"
    assert store.entries() == []


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ('printf half > "$output"; seq 1 100 >&2; exit 3', "exit status 3\n71\n"),
        ("exit 0", "it made no library"),
        (': > "$output"', "it made no library"),
        ("kill -KILL $$", "exit status -9"),
        ("sleep 60 & sleep 60", "no end after 0.3 s"),
    ],
)
def test_a_failing_compiler(
    script: str, complaint: str, include: Path, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "COMPILER_SECONDS", 0.3)
    use_compiler(monkeypatch, tmp_path, script)
    with pytest.raises(BuildFailedError, match=complaint):
        have(include)
    assert [Path(name).suffix for name in names(directory)] == [".cpp"]


def a_minute_later(monkeypatch: pytest.MonkeyPatch) -> None:
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)


@pytest.mark.parametrize(
    ("script", "again"),
    [
        ('echo "$output: no" >&2; exit 3', False),
        ("kill -KILL $$", True),
        ("exit 137", True),
        ("echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1", True),
        ("echo 'cc1plus: out of memory allocating 65536 bytes' >&2; exit 1", True),
    ],
)
def test_what_failed_is_not_tried_at_every_call(
    script: str, again: bool, include: Path, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, complaints = tmp_path / "log", []
    use_compiler(monkeypatch, tmp_path, f"echo >> {log}; {script}")
    for tried in (1, 1, 2 if again else 1):
        with pytest.raises(BuildFailedError) as caught:
            have(include)
        complaints.append(str(caught.value))
        assert len(log.read_text()) == tried
        if len(complaints) == 2:
            a_minute_later(monkeypatch)
    assert len(set(complaints)) == 1
    assert ("it is tried again" in complaints[0]) == again
    (kept,) = directory.glob("*.cpp")
    assert f" {kept}\n" in complaints[0]  # what can be run again


def test_one_failure_of_several(include: Path, directory: Path, compilations: Counting) -> None:
    """What could be built is kept, though all are needed."""
    sources = (SOURCE, "int x = no_such_name;")
    requests = [build.Request(source, "portable", "answer", ("-O0",), include) for source in sources]
    with pytest.raises(BuildFailedError, match="no_such_name"):
        build.libraries(requests)
    assert compilations() == 2
    assert answer(have(include)) == 42
    assert compilations() == 2


def test_a_failure_that_passed(include: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = tmp_path / "once"
    use_compiler(monkeypatch, tmp_path, f'mkdir {once} && kill -KILL $$; exec g++ "$@"')
    with pytest.raises(BuildFailedError, match="That may pass: it is tried again"):
        have(include)
    a_minute_later(monkeypatch)
    assert answer(have(include)) == 42


INTERRUPTED = """
import signal
from polyphase.cpu import build
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started this may ignore it
requests = [build.Request(f"int x = {n};", "portable", "answer", ("-O0",)) for n in range(2)]
try:
    build.libraries(requests)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    print(len(build.libraries(requests)))
"""


def test_ctrl_c(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends compilers and their children at once, and leaves neither locks nor files."""
    log = tmp_path / "log"
    wait = f'sleep 600 & touch "$output" "$TMPDIR/half"; echo $$ $! >> {log}; wait'
    use_compiler(monkeypatch, tmp_path, f'test -e {tmp_path}/done && exec g++ "$@"; {wait}')
    process = start_without_torch(INTERRUPTED)
    try:
        until(lambda: log.exists() and len(log.read_text().splitlines()) == 2)
        (tmp_path / "done").touch()
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert output.split() == ["interrupted", "2"]
    started = list(map(int, log.read_text().split()))
    until(lambda: not any(map(is_running, started)))
    assert [Path(name).suffix for name in sorted(os.listdir(directory))] == [".so", ".so"]


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_running(process: int) -> bool:
    """A zombie, whom nobody waits for, is not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_a_full_disk(include: Path, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_compiler(
        monkeypatch, tmp_path, f'case "$output" in {directory}/*) cat $0 > /dev/full || exit 1;; esac; exec g++ "$@"'
    )
    with pytest.warns(UserWarning, match=r"does not keep kernels in .*: No space left on device.*make room"):
        library = have(include)
    assert answer(library) == 42
    assert library.parent != directory
    assert names(directory) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_no_room_anywhere(include: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_compiler(monkeypatch, tmp_path, "cat $0 > /dev/full || exit 1")
    with (
        pytest.warns(UserWarning, match="No space left on device"),
        pytest.raises(BuildFailedError, match=r"no room to build in.*No space left on device.*tried again"),
    ):
        have(include)


def test_a_compiler_that_does_not_start(include: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "compiler"
    program.write_bytes(b"\0")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    with pytest.raises(BuildFailedError, match="Exec format error"):
        have(include)


def test_cxx_with_arguments(include: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "env LC_ALL=C g++ -DEXTRA=1")
    assert answer(have(include, SOURCE.replace("ANSWER", "ANSWER + EXTRA"))) == 43


def test_clear_leaves_what_is_not_ours(include: Path, directory: Path) -> None:
    library = have(include)
    with pytest.raises(BuildFailedError):
        have(include, "int x = no_such_name;")
    (directory / ".building-abandoned").mkdir()
    (directory / "notes.so").touch()
    assert [one[:2] for one in store.entries()] == [(library, library.stat().st_size)]
    store.clear()
    assert [path.name for path in directory.iterdir()] == ["notes.so"]


def test_a_text_is_kept_where_no_link_leads(directory: Path, tmp_path: Path) -> None:
    name, victim = f"source-{'0' * store.KEY_DIGITS}.cpp", tmp_path / "victim"
    victim.write_text("mine")
    directory.mkdir(mode=0o700)
    (directory / name).symlink_to(victim)
    kept = store.keep(name, "text")
    assert (kept.read_text(), stat.S_IMODE(kept.stat().st_mode)) == ("text", 0o600)
    assert victim.read_text() == "mine"
    store.clear()
    assert names(directory) == []


@as_root
def test_a_link_of_somebody_else_to_a_directory_of_ours(include: Path, directory: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir(mode=0o700)
    directory.symlink_to(ours)
    os.chown(directory, SOMEBODY_ELSE, -1, follow_symlinks=False)
    with pytest.warns(UserWarning, match=f"is a link of user {SOMEBODY_ELSE}"):
        assert have(include).parent != ours
    assert names(ours) == []


def test_a_library_says_what_it_is_for(include: Path) -> None:
    (path,) = build.libraries([build.Request(SOURCE, "portable", "answer", ("-O0",), include, "to answer")])
    assert store.purpose(path) == "to answer, portable"
    flip_a_bit(path)
    assert store.purpose(path) is None


@pytest.fixture
def prebuilt(include: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library of `have(include)`, as a wheel has it; from here on there is no compiler."""
    made = have(include)
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    entry = folder / build.prebuilt_name(build.Request(SOURCE, "portable", "answer", ("-O0",), include))
    shutil.copyfile(made, entry)
    store.clear()
    monkeypatch.setattr(store, "PREBUILT", folder)
    monkeypatch.setenv("CXX", "no-compiler")
    return entry


@pytest.mark.filterwarnings("error")
def test_what_came_with_the_package_needs_neither_compiler_nor_cache(
    prebuilt: Path, include: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYPHASE_CACHE_DIR", "/proc/polyphase")
    assert have(include) == prebuilt
    assert answer(prebuilt) == 42
    assert store.prebuilt_targets() == {"portable": [prebuilt.stat().st_size]}


@as_root
def test_what_came_with_the_package_may_be_of_another_user(prebuilt: Path, include: Path) -> None:
    os.chown(prebuilt, SOMEBODY_ELSE, -1)
    assert have(include) == prebuilt


def test_what_came_with_the_package_is_for_its_very_source(prebuilt: Path, include: Path, tmp_path: Path) -> None:
    with pytest.raises(CompilerMissingError):
        have(include, SOURCE + "//")
    with pytest.raises(CompilerMissingError):
        have(make_include(tmp_path / "edited", 43))
    with pytest.raises(CompilerMissingError):
        build.library(SOURCE, "portable", stem="answer", options=("-O1",), include=include)


def test_what_came_with_the_package_and_is_damaged(
    prebuilt: Path, include: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip_a_bit(prebuilt)
    with pytest.raises(CompilerMissingError):
        have(include)
    monkeypatch.delenv("CXX")
    assert have(include).parent == directory


def test_the_least_recently_used_goes_first(
    include: Path, directory: Path, compilations: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (have(include, f"{SOURCE}// {n}") for n in range(3))
    for age, path in ((4, first), (3, second), (2, third)):
        make_old(path, age * store.RECENT_SECONDS)
    assert have(include, f"{SOURCE}// 0") == first  # used again
    room = sum(one.size for one in store.entries()) / 1e6
    monkeypatch.setenv("POLYPHASE_CACHE_MAX_MB", str(room))
    fourth = have(include, f"{SOURCE}// 3")
    assert [one.path for one in store.entries()] == [fourth, first, third]
    assert have(include, f"{SOURCE}// 1") == second
    assert compilations() == 5
    assert [one.path for one in store.entries()] == [second, fourth, first]


def test_what_was_just_used_stays(include: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the limit: its process may not have loaded it yet."""
    monkeypatch.setenv("POLYPHASE_CACHE_MAX_MB", "0")
    both = {have(include, f"{SOURCE}// {n}") for n in range(2)}
    assert {one.path for one in store.entries()} == both


def test_importing_loads_the_standard_library_alone() -> None:
    program = """
import polyphase.settings, polyphase.cpu.isa, polyphase.kernels.store, polyphase.cpu.build
print(*{name.partition(".")[0] for name in sys.modules} & {"torch", "filelock", "multiprocessing"})
"""
    assert run_without_torch(program).split() == []
