from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from polyphase import settings
from polyphase.errors import (
    CompilerMissingError,
    NoKernelsWarning,
    PolyphaseError,
    UnknownNameError,
    WrongSettingError,
)

VARIABLES = (
    *("POLYPHASE_CACHE_DIR", "POLYPHASE_CACHE_MAX_MB", "XDG_CACHE_HOME"),
    *("POLYPHASE_DEVICES", "POLYPHASE_ISA", "POLYPHASE_CUDA_ARCH", "POLYPHASE_HUGE_PAGES", "CXX"),
)


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def make_program(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_cache_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert settings.cache_dir() == Path("/home/somebody/.cache/polyphase")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert settings.cache_dir() == Path("/home/somebody/.cache/polyphase")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert settings.cache_dir() == Path("/xdg/polyphase")
    monkeypatch.setenv("POLYPHASE_CACHE_DIR", "~/kernels")
    assert settings.cache_dir() == Path("/home/somebody/kernels")
    monkeypatch.setenv("POLYPHASE_CACHE_DIR", "kernels")
    assert settings.cache_dir() == Path.cwd() / "kernels"


def test_cache_dir_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert settings.cache_dir().parent == Path(tempfile.gettempdir())


def test_cache_max_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.cache_max_bytes() == 512e6
    for text, expected in (("0", 0), ("1.5", 1.5e6), ("inf", float("inf")), ("", 512e6)):
        monkeypatch.setenv("POLYPHASE_CACHE_MAX_MB", text)
        assert settings.cache_max_bytes() == expected
    for text in ("much", "-1", "nan"):
        monkeypatch.setenv("POLYPHASE_CACHE_MAX_MB", text)
        with pytest.raises(WrongSettingError, match=f"POLYPHASE_CACHE_MAX_MB={text}; it is a number of megabytes"):
            settings.cache_max_bytes()


def test_forced_isa(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.forced_isa() is None
    monkeypatch.setenv("POLYPHASE_ISA", "")
    assert settings.forced_isa() is None
    monkeypatch.setenv("POLYPHASE_ISA", "avx2")
    assert settings.forced_isa() == "avx2"
    monkeypatch.setenv("POLYPHASE_ISA", "sse2")
    with pytest.raises(UnknownNameError, match=r"choose one of: avx2, avx512, avx512vbmi, portable"):
        settings.forced_isa()


def test_compilers_are_looked_for_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in reversed(settings.COMPILERS):
        program = make_program(tmp_path / name)
        assert settings.compiler() == (str(program),)


def test_cxx_may_have_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    make_program(tmp_path / "ccache")
    monkeypatch.setenv("CXX", "ccache g++ -B '/a b'")
    assert settings.compiler() == (str(tmp_path / "ccache"), "g++", "-B", "/a b")


def test_relative_cxx_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    make_program(tmp_path / "mine")
    monkeypatch.setenv("CXX", "./mine")
    assert settings.compiler() == (str(tmp_path / "mine"),)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerMissingError, match=r"looked for g\+\+, c\+\+, clang\+\+; install g\+\+, or set CXX"):
        settings.compiler()


@pytest.mark.parametrize("cxx", ["no-such-compiler", "no such 'quotation"])
def test_cxx_that_does_not_exist(monkeypatch: pytest.MonkeyPatch, cxx: str) -> None:
    monkeypatch.setenv("CXX", cxx)
    with pytest.raises(PolyphaseError, match=f"looked for CXX={cxx};"):
        settings.compiler()


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.devices() == {"cpu", "cuda"}
    for text, expected in (("cpu", {"cpu"}), ("cuda, cpu", {"cpu", "cuda"}), ("none", set()), ("", {"cpu", "cuda"})):
        monkeypatch.setenv("POLYPHASE_DEVICES", text)
        assert settings.devices() == expected
    monkeypatch.setenv("POLYPHASE_DEVICES", "cpu,gpu")
    with pytest.raises(UnknownNameError, match="unknown device in POLYPHASE_DEVICES 'gpu'"):
        settings.devices()


def test_forced_cuda_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.forced_cuda_architecture() is None
    for forced in ("sm_75", "sm_90a", "sm_120"):
        monkeypatch.setenv("POLYPHASE_CUDA_ARCH", forced)
        assert settings.forced_cuda_architecture() == forced
    monkeypatch.setenv("POLYPHASE_CUDA_ARCH", "hopper")
    with pytest.raises(UnknownNameError, match="POLYPHASE_CUDA_ARCH 'hopper'"):
        settings.forced_cuda_architecture()


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "platform", "win32")
    settings._devices.cache_clear()
    yield
    settings._devices.cache_clear()


@pytest.mark.usefixtures("on_windows")
def test_windows_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYPHASE_DEVICES", "none")
    assert settings.devices() == frozenset()
    for chosen in ("", "cpu"):
        monkeypatch.setenv("POLYPHASE_DEVICES", chosen)
        with pytest.warns(NoKernelsWarning, match="no kernels for Windows yet.* WSL 2"):
            assert settings.devices() == frozenset()
        assert settings.devices() == frozenset()


def test_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.huge_pages()
    for chosen, whether in {"on": True, "off": False, "": True}.items():
        monkeypatch.setenv("POLYPHASE_HUGE_PAGES", chosen)
        assert settings.huge_pages() == whether
    monkeypatch.setenv("POLYPHASE_HUGE_PAGES", "no")
    with pytest.raises(UnknownNameError, match="POLYPHASE_HUGE_PAGES 'no'"):
        settings.huge_pages()
