"""What a column of the tables is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyphase.bench.checks import EXACT, Tolerance
from polyphase.bench.work import Call, Work, tensors_of
from polyphase.bench.workloads import Case


@dataclass(frozen=True)
class Options:
    """What columns are to respect. `dynamic` is torch.compile's; None leaves it to torch."""

    device: str = "cpu"
    threads: int = 1
    dynamic: bool | None = None
    tag: str = ""


class Column:
    """A way to run cases. Derived classes are all there is to write for a new one, and a line in `COLUMNS`."""

    heading: str
    tolerance: Tolerance = EXACT
    yardstick = False
    on_host = False  # never on a GPU

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def version(self) -> str:
        return torch_version()

    @property
    def title(self) -> str:
        return f"{self.heading} ({self.version}) {self.options.tag}".strip()

    def can_run(self, case: Case) -> str | None:
        """Why not, or None."""
        return None

    def make(self, work: Work) -> Call:
        """What is to be timed; whatever need not be in the time is done here."""
        raise NotImplementedError

    def tensors(self, result: object) -> tuple[Tensor, ...]:
        """The result of a call, to be checked."""
        return tensors_of(result)

    def disproof(self, work: Work, call: Call) -> str | None:
        """What speaks against a call running as the title says. Asked after the first calls, without timing."""
        return None


def torch_version() -> str:
    """The version of torch without what kind of build it is: `2.13.0` of `2.13.0+cpu`, but all of
    `2.14.0a0+git1234567`."""
    version, _, build = str(torch.__version__).partition("+")
    return f"{version}+{build}" if build.startswith("git") else version
