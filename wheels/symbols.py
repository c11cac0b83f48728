"""What a library asks of the system that loads it, read from its ELF file: other libraries, and versions of symbols."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

#: What a system that takes manylinux_2_28 has: libraries, and the newest version of each family of symbols.
TAG = "manylinux_2_28"
LOADERS = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}  # they have what threads have of their own
LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libstdc++.so.6", "libgcc_s.so.1", *LOADERS}
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}

_DYNAMIC, _NEEDS_VERSIONS = 6, 0x6FFFFFFE  # SHT_...
_NEEDED = 1  # DT_NEEDED


class Asked(NamedTuple):
    libraries: frozenset[str]
    versions: frozenset[str]


class _Section(NamedTuple):
    """As ELF64 has it, in its order."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def asked(library: Path) -> Asked:
    data = library.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{library} is no ELF file of 64 bits, least byte first")
    (offset,), (size, count) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<HH", data, 0x3A)
    sections = [_Section(*struct.unpack_from("<IIQQQQIIQQ", data, offset + size * i)) for i in range(count)]
    libraries: set[str] = set()
    versions: set[str] = set()
    for section in sections:
        texts = sections[section.link].offset if section.link < count else 0
        if section.type == _DYNAMIC:
            entries = struct.iter_unpack("<QQ", data[section.offset : section.offset + section.size])
            libraries |= {_text(data, texts + value) for tag, value in entries if tag == _NEEDED}
        if section.type == _NEEDS_VERSIONS:
            versions |= _versions(data, section, texts)
    return Asked(frozenset(libraries), frozenset(versions))


def too_new(library: Path) -> list[str]:
    """What a system that takes manylinux_2_28 need not have."""
    libraries, versions = asked(library)
    return sorted(libraries - LIBRARIES) + sorted(one for one in versions if not _is_known(one))


def _is_known(version: str) -> bool:
    family, _, number = version.rpartition("_")
    return family in NEWEST and tuple(map(int, number.split("."))) <= NEWEST[family]


def _versions(data: bytes, section: _Section, texts: int) -> set[str]:
    """A list of libraries, each with a list of versions; both are linked by offsets."""
    found, of_library = set(), section.offset
    for _ in range(section.info):
        _, count, _, first, next_library = struct.unpack_from("<HHIII", data, of_library)
        of_version = of_library + first
        for _ in range(count):
            _, _, _, name, next_version = struct.unpack_from("<IHHII", data, of_version)
            found.add(_text(data, texts + name))
            of_version += next_version
        of_library += next_library
    return found


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
