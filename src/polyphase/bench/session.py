"""From the options of `polyphase bench` to a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from polyphase.bench import columns, environment, gpu, measure, workloads
from polyphase.bench.columns.base import Column, Options
from polyphase.bench.measure import QUICK, THOROUGH, Effort
from polyphase.bench.operations import Resize, Shape
from polyphase.bench.results import Environment, Run
from polyphase.bench.workloads import OWN, Case, Wanted
from polyphase.errors import UnknownNameError, WrongCommandError

DEVICES = ("cpu", "cuda")
# Modes of a case of one's own, and what may go with them.
ANTIALIASED = ("bilinear", "bicubic", "lanczos")
ALIGNED = ("bilinear", "bicubic")
MODES = ("nearest", "nearest-exact", "bilinear", "bicubic", "area", "lanczos")


@dataclass(frozen=True)
class Request:
    """The options, as they were given."""

    suite: str = workloads.ALL
    quick: bool = False
    device: str = "cpu"
    threads: int = 1
    mode: str | None = None
    dtype: str | None = None
    format: str | None = None
    columns: str | None = None
    fusion: bool = True
    dynamic: bool | None = None
    recompile_limit: int | None = None
    tag: str = ""
    input: str | None = None
    size: str | None = None
    antialias: bool = False
    align_corners: bool = False

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise UnknownNameError("device", self.device, DEVICES)
        for name, number in (("--threads", self.threads), ("--recompile-limit", self.recompile_limit)):
            if number is not None and number < 1:
                raise WrongCommandError(f"{name} {number}; it must be 1 or more")
        if self.input is None and (self.size or self.antialias or self.align_corners):
            raise WrongCommandError(
                "--size, --antialias and --align-corners are for a case of your own; give its --input too: 1,3,480,640"
            )
        gpu.check_available(self.device)

    @property
    def given(self) -> dict[str, str]:
        """What is not as it is by itself, for the record."""
        fields = [(field, getattr(self, field.name)) for field in dataclasses.fields(self)]
        return {field.name: str(value) for field, value in fields if value != field.default}


@dataclass(frozen=True)
class Plan:
    request: Request
    cases: list[Case]
    columns: dict[str, Column]
    effort: Effort
    environment: Environment

    @property
    def steps(self) -> int:
        return len(self.cases) * self.effort.passes


def plan(request: Request) -> Plan:
    options = Options(request.device, request.threads, request.dynamic, request.tag)
    names = columns.names(request.columns, request.quick, request.fusion)
    # On a GPU, times scatter little, and there are two clocks.
    effort = QUICK if request.quick or request.device != "cpu" else THOROUGH
    found = environment.gather(request.device, request.threads)
    return Plan(request, _cases(request), columns.made(names, options), effort, found)


def execute(plan: Plan, progress: Callable[[str], None]) -> Run:
    request = plan.request
    created = datetime.now().astimezone().isoformat(timespec="seconds")
    with measure.settings(request.threads, request.recompile_limit):
        rows, complete = measure.measure(plan.cases, plan.columns, plan.effort, request.device, progress)
    if complete:
        progress("done")
    suite = request.suite if request.input is None else OWN
    return Run(created, suite, request.tag, request.given, plan.environment, rows, complete)


def _cases(request: Request) -> list[Case]:
    if request.input is None:
        wanted = Wanted(request.suite, request.device, request.quick, request.mode, request.dtype, request.format)
        return workloads.chosen(wanted)
    if request.size is None:
        raise WrongCommandError(f"--input {request.input} without --size; give the size to resize to: --size 224,224")
    shape = numbers("--input", request.input, "1,3,480,640")
    height, width = numbers("--size", request.size, "224,224")
    return workloads.own_cases(shape, _own_resize(request, (height, width)), request.dtype, request.format)


def _own_resize(request: Request, size: tuple[int, int]) -> Resize:
    mode = request.mode or "bilinear"
    if mode not in MODES:
        raise UnknownNameError("mode", mode, MODES)
    if request.antialias and mode not in ANTIALIASED:
        raise WrongCommandError(f"--antialias with --mode {mode}; it goes with {', '.join(ANTIALIASED)}")
    if request.align_corners and (request.antialias or mode not in ALIGNED):
        raise WrongCommandError(
            f"--align-corners with --mode {mode}{' --antialias' if request.antialias else ''}; it goes with "
            f"{', '.join(ALIGNED)}, not antialiased"
        )
    if mode == "lanczos" and not request.antialias:
        raise WrongCommandError("--mode lanczos without --antialias; add it")
    return Resize(size, mode, request.antialias, request.align_corners if mode in ALIGNED else None)


def numbers(option: str, text: str, example: str) -> Shape:
    """Positive integers with commas between, as many as in the example."""
    words = text.split(",")
    if len(words) == len(example.split(",")) and all(word.strip().isdecimal() and int(word) > 0 for word in words):
        return tuple(map(int, words))
    raise WrongCommandError(f"{option} {text}; it must be positive numbers, such as {example}")
