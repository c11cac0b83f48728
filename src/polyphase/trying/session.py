"""A whole run of `polyphase try`: what was asked for, what that is, and every trial of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from polyphase.bench import libraries
from polyphase.errors import TransformFailedError, UnknownNameError, WrongCommandError
from polyphase.trying import chains, found, trial
from polyphase.trying.found import Samples
from polyphase.trying.trial import Trial


@dataclass(frozen=True)
class Request:
    """The command line's words."""

    transform: str | None = None
    pictures: str | None = None
    kind: str = found.PILLOW
    most: int = 12
    threads: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    transforms: dict[str, Any]
    samples: Samples
    tensors: Samples | None  # what a GPU is given, where there is one
    request: Request

    @property
    def steps(self) -> int:
        return trial.STEPS * len(self.transforms) * (1 if self.tensors is None else 2)


def plan(request: Request) -> Plan:
    libraries.define_missing_operators()  # before the user's code imports torchvision
    for option, number in (("--threads", request.threads), ("--most", request.most)):
        if number < 1:
            raise WrongCommandError(f"{option} {number}; it must be 1 or more")
    if request.kind not in found.KINDS:
        raise UnknownNameError("kind of images", request.kind, found.KINDS)
    wanted = request.transform
    transforms = chains.chains() if wanted is None else {wanted: found.transform(wanted)}
    samples = _samples(request, request.kind)
    on_gpu = torch.cuda.is_available()
    return Plan(transforms, samples, _samples(request, found.TENSOR) if on_gpu else None, request)


def execute(plan: Plan, tell: Callable[[str], None]) -> list[Trial]:
    """All trials, or those until an interruption."""
    trials, request = list[Trial](), plan.request
    given: dict[str, Any] = {"threads": request.threads, "seed": request.seed, "tell": tell}
    for title, transform in plan.transforms.items():
        trials.append(trial.run(title, transform, plan.samples, **given))
        if plan.tensors is not None and trials[-1].complete:
            trials.append(_on_the_gpu(title, transform, plan.tensors, given))
        if not trials[-1].complete:
            return trials
    tell("done")
    return trials


def _samples(request: Request, kind: str) -> Samples:
    if request.pictures is None:
        return found.drawn_samples(request.most, kind)
    return found.samples(request.pictures, kind, request.most)


def _on_the_gpu(title: str, transform: Any, samples: Samples, given: dict[str, Any]) -> Trial:
    """A transform that is for Pillow images alone has no trial there, but the reason."""
    title = f"{title}, on {torch.cuda.get_device_name()}"
    try:
        return trial.run(title, transform, samples, device="cuda", **given)
    except TransformFailedError as error:
        notes = [f"not tried: on tensors, your transform fails: {str(error).splitlines()[-1]}"]
        return Trial(title, samples.said, samples.taking, "cuda", given["threads"], notes=notes, complete=True)
