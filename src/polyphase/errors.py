"""One class per mistake a user can make. Each message says what was seen, what is allowed, and the fix."""

from __future__ import annotations


class PolyphaseError(Exception):
    """Base of every error that is ours."""


class UnknownNameError(PolyphaseError, ValueError):
    """A filter, mode or operation that does not exist."""

    def __init__(self, kind: str, seen: object, allowed: object) -> None:
        names = ", ".join(sorted(map(str, allowed)))  # type: ignore[call-overload]
        super().__init__(f"unknown {kind} {seen!r}; choose one of: {names}")


class InvalidStepError(PolyphaseError, ValueError):
    """A step whose numbers make no sense, alone or for the axis it meets."""


class NotNormalFormError(PolyphaseError, ValueError):
    """A chain of steps that is not one axis map; `reason` is the typed "not merged"."""

    def __init__(self, reason: object) -> None:
        super().__init__(
            f"{reason}; compose() returns this reason instead of raising: keep the two as separate programs"
        )
        self.reason = reason


class InvalidProgramError(PolyphaseError, ValueError):
    """A program whose parts contradict each other."""


class ProgramSyntaxError(PolyphaseError, ValueError):
    """Text that is not a program."""


class WrongInputError(PolyphaseError, ValueError):
    """Tensors that do not fit the program they are given to."""
