"""Samples: images among other things, in tuples, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_Rebuild = Callable[[Iterator[Any]], Any]


@dataclass(frozen=True)
class Tree:
    """What a sample is made of. form: equal where two samples differ in their leaves alone."""

    leaves: list[Any]
    form: Any
    rebuild: _Rebuild

    def with_leaves(self, leaves: list[Any]) -> Any:
        return self.rebuild(iter(leaves))


def tree(sample: Any) -> Tree:
    leaves = list[Any]()
    form, rebuild = _read(sample, leaves)
    return Tree(leaves, form, rebuild)


def _read(sample: Any, leaves: list[Any]) -> tuple[Any, _Rebuild]:
    kind = type(sample)
    if isinstance(sample, dict):
        keys = list(sample)
        parts = [_read(sample[key], leaves) for key in keys]

        def rebuild_dict(rest: Iterator[Any]) -> Any:
            made = sample.copy()  # of its kind: ordered, or with a default
            made.update((key, rebuild(rest)) for key, (_, rebuild) in zip(keys, parts, strict=True))
            return made

        return (kind, tuple(keys), tuple(form for form, _ in parts)), rebuild_dict
    if kind in (list, tuple) or (isinstance(sample, tuple) and hasattr(sample, "_fields")):
        parts = [_read(one, leaves) for one in sample]

        def rebuild_sequence(rest: Iterator[Any]) -> Any:
            values = [rebuild(rest) for _, rebuild in parts]
            return kind(*values) if hasattr(sample, "_fields") else kind(values)

        return (kind, tuple(form for form, _ in parts)), rebuild_sequence
    leaves.append(sample)
    return None, next
