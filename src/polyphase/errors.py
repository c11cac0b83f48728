"""One class per mistake a user can make. Each message says what was seen, what is allowed, and the fix."""

from __future__ import annotations

import inspect
import warnings

_NOT_THE_USER = ("polyphase", "torch", "importlib")


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line that led here: the nearest frame that is neither ours nor torch's, nor torch's generated
    code."""
    frame = inspect.currentframe()
    assert frame is not None, "CPython has frames"
    while frame.f_back and frame.f_globals.get("__name__", "torch").split(".")[0] in _NOT_THE_USER:
        frame = frame.f_back
    name, registry = frame.f_globals.get("__name__"), frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno, name, registry)


class PolyphaseError(Exception):
    """The base class of all our errors."""


class UnknownNameError(PolyphaseError, ValueError):
    """A filter, mode or operation that does not exist."""

    def __init__(self, kind: str, seen: object, allowed: object) -> None:
        names = ", ".join(sorted(map(str, allowed)))  # type: ignore[call-overload]
        super().__init__(f"unknown {kind} {seen!r}; choose one of: {names}")


class WrongSettingError(PolyphaseError):
    """An environment variable that has a value it cannot have."""


class UnknownSettingError(UnknownNameError, WrongSettingError):
    """An environment variable that names something that does not exist."""


class InvalidStepError(PolyphaseError, ValueError):
    """A step whose numbers make no sense, alone or for the axis it meets."""


class NotNormalFormError(PolyphaseError, ValueError):
    """A chain of steps that is not one axis map; `reason` is the `NotMerged` that says why."""

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


class NoKernelError(PolyphaseError, ValueError):
    """A call that the device has no kernel for, as with too many dimensions; plain PyTorch operations do the work."""


class ForkedProcessError(PolyphaseError, RuntimeError):
    """A device that cannot be used in a forked process whose parent used it."""


class MissingCpuFeaturesError(WrongSettingError, RuntimeError):
    """An instruction set was forced that this CPU does not have."""


class CompilerMissingError(PolyphaseError, RuntimeError):
    """There is no C++ compiler to build kernels with."""


class NvrtcMissingError(CompilerMissingError):
    """There is no NVRTC to build CUDA kernels with."""


class DriverError(PolyphaseError, RuntimeError):
    """The CUDA driver is missing, or refused something."""


class BuildFailedError(PolyphaseError, RuntimeError):
    """The C++ compiler did not make a library of the source it was given."""


# Mistakes on the command line.


class NothingToMeasureError(PolyphaseError, ValueError):
    """Options that leave no workload or no column."""


class WrongCommandError(PolyphaseError, ValueError):
    """An option's value that makes no sense, alone or with the others."""


class DeviceMissingError(PolyphaseError, RuntimeError):
    """A device was asked for that this machine, or this build of torch, does not have."""


class ResultFileError(PolyphaseError, ValueError):
    """A file of results that cannot be read or written, or is of another kind or version."""


class NoColumnError(PolyphaseError, ValueError):
    """A comparison that names no column, or more than one."""


# Mistakes in a call of `polyphase.functional`: each is also the exception eager raises for the same call.


class WrongArgumentError(PolyphaseError, ValueError):
    """An argument that no call can have, or arguments that contradict each other."""


class WrongArgumentTypeError(PolyphaseError, TypeError):
    """An argument of another type than the function takes."""


class NotATensorError(PolyphaseError, TypeError, AttributeError):
    """An argument that should be a tensor and is not. Eager raises TypeError or AttributeError, depending on the
    function: this is both."""


class WrongSizeError(PolyphaseError, RuntimeError):
    """Numbers that do not fit the image: its sizes, its dimensions or its dtype."""


class TooWidePadError(WrongSizeError, IndexError):
    """A symmetric pad that is wider than the image, or crops more, for which torchvision raises IndexError."""


class MismatchedTensorsError(PolyphaseError, RuntimeError):
    """Tensors that do not go together: of other batches, dtypes or devices."""


class WrongDimensionError(PolyphaseError, IndexError):
    """A dimension the image does not have."""


class WrongImageError(PolyphaseError, ValueError):
    """One of the images of a batch; the message says which."""


class DiffersFromEagerError(PolyphaseError, AssertionError):
    """Under `accelerate(check=True)`: a result that differs from that of PyTorch's own kernel."""


class NotSupportedError(PolyphaseError, NotImplementedError):
    """A mode, rank, dtype or device that has no kernel, neither ours nor PyTorch's."""


class ScriptError(PolyphaseError, ValueError):
    """A file or function that `polyphase explain` cannot find, or that fails or lacks its inputs."""


class TransformFailedError(PolyphaseError, RuntimeError):
    """A transform given to `polyphase try` that fails as it is, before Polyphase has touched it."""

    def __init__(self, sample: str, given: str, told: str) -> None:
        super().__init__(
            f"your transform fails, without us, on {sample}, given {given} (--as gives pictures as pillow, tensor or "
            f"array; samples with boxes or labels come from a dataset, FILE.py:DATASET):\n{told}"
        )


class WrongOptionError(PolyphaseError, RuntimeError):
    """An option of `torch.compile(backend="polyphase")` that does not exist, or a value it cannot have."""


class MissingTorchInternalsError(PolyphaseError, RuntimeError):
    """The call needs a private name of torch that this version no longer has (`torch_private.py`)."""


class MissingTorchInternalsWarning(UserWarning):
    """This version of torch no longer has a private name: something is slower, or cannot be done."""


class NoKernelsWarning(UserWarning):
    """Nothing can be built on this machine; plain PyTorch operations do the work."""
