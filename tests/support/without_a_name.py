"""A process that has imported torch and, for every line it is given, tries Polyphase in a fork of itself, where torch
lacks private names. `tests/test_torch_private.py` reads what it says.

A line is JSON: which trial, and the places of the names. So is the answer: whether and how the trial failed, and what
was warned of before and after the import. Names are hidden from the package alone: a torch that has one no longer does
not use it either.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode


class Hidden:
    """An object without what lies at the end of paths of attributes."""

    def __init__(self, of: Any, paths: list[str]) -> None:
        self._of, self._paths = of, paths

    def __getattr__(self, name: str) -> Any:
        if name in self._paths:
            raise AttributeError(f"{name} is hidden")
        further = [path.removeprefix(f"{name}.") for path in self._paths if path.startswith(f"{name}.")]
        found = getattr(self._of, name)
        return Hidden(found, further) if further else found


def hide(*places: str) -> None:
    hidden: dict[str, list[str]] = {}
    for place in places:
        module, _, path = place.partition(":")
        hidden.setdefault(module, []).append(path)
    real = importlib.import_module

    def import_module(name: str, package: str | None = None) -> Any:
        if name not in hidden or sys._getframe(1).f_globals["__name__"] != "polyphase.torch_private":
            return real(name, package)
        if "" in hidden[name]:
            raise ModuleNotFoundError(f"{name} is hidden")
        return Hidden(real(name, package), hidden[name])

    importlib.import_module = import_module


# ---- trials, after the import


def functions() -> None:
    """Every function, with and without gradients, against eager."""
    import polyphase.functional as P

    torch.manual_seed(0)
    image, grid = torch.rand(2, 3, 9, 11), torch.rand(2, 5, 6, 2) * 2 - 1
    theta, size = torch.tensor([[[0.9, 0.1, 0.0], [-0.1, 0.8, 0.1]]]).repeat(2, 1, 1), [2, 3, 6, 7]
    calls: dict[str, Callable[..., Any]] = {
        "antialias": lambda f, x: f.interpolate(x, (5, 6), mode="bilinear", antialias=True),
        "bicubic": lambda f, x: f.interpolate(x, scale_factor=1.5, mode="bicubic"),
        "nearest": lambda f, x: f.interpolate(x, 4),
        "flip": lambda f, x: f.flip(x, (-1,)),
        "pad": lambda f, x: f.pad(x, (1, 2, 3, -1), value=0.5),
        "reflect": lambda f, x: f.pad(x, (1, 2, 3, 0), mode="reflect"),
    }
    warps: dict[str, Callable[..., Any]] = {
        "grid": lambda f, x, at: f.grid_sample(x, at, align_corners=False),
        "nearest": lambda f, x, at: f.grid_sample(x, at, mode="nearest", align_corners=False),
    }
    for x in (image, image.to(memory_format=torch.channels_last), torch.nn.Parameter(image), image.double()):
        for call in calls.values():
            agree(lambda f, *t, call=call: call(f, *t), P, x)
    for call in calls.values():
        agree(lambda f, *t, call=call: call(f, *t), P, (image * 255).byte())
    for call in warps.values():
        for x in (image, torch.nn.Parameter(image), image.double()):
            agree(lambda f, *t, call=call: call(f, *t), P, x, grid.to(x.dtype))
    agree(lambda f, at: f.affine_grid(at, size, align_corners=False), P, theta)
    wanted = F.grid_sample(image, F.affine_grid(theta, size, align_corners=False), align_corners=False)
    torch.testing.assert_close(P.affine_sample(image, theta, size), wanted)
    assert torch.equal(P.crop(image, 1, 2, 3, 4), image[..., 1:4, 2:6])
    assert torch.equal(P.crop(image, -1, 0, 5, 11)[..., 1:, :], image[..., :4, :])
    for x in (torch.complex(image, image), image.to(torch.int16)):
        assert torch.equal(P.flip(x, (0, 3)), torch.flip(x, (0, 3)))
    assert torch.autograd.gradgradcheck(
        lambda x: P.interpolate(x, 3, mode="bicubic"), leaf(image[:1, :1].double()), fast_mode=True
    )
    tangents(P, image, grid)
    with Watching() as mode:
        P.flip(image, (-1,))
    assert mode.seen, "a call went past a mode"


class Watching(TorchDispatchMode):
    """A mode of the kind that Dynamo's guards overlook."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Any] = []

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Eager:
    """`torch.flip` is no function of torch.nn.functional."""

    flip = staticmethod(torch.flip)

    def __getattr__(self, name: str) -> Any:
        return getattr(F, name)


def leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_()


def agree(call: Callable[..., Tensor], ours: Any, *tensors: Tensor) -> None:
    eager = Eager()
    try:
        wanted = call(eager, *tensors)
    except RuntimeError:
        return  # ours takes more
    torch.testing.assert_close(call(ours, *tensors), wanted, rtol=1e-4, atol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(call(ours, *tensors), wanted, rtol=1e-4, atol=1e-5)
    if wanted.is_floating_point():
        leaves = [[leaf(one) for one in tensors] for _ in range(2)]
        results = call(ours, *leaves[0]), call(eager, *leaves[1])
        gradient = torch.rand_like(results[1])
        found = [torch.autograd.grad(*pair, gradient) for pair in zip(results, leaves, strict=True)]
        torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


def tangents(ours: Any, image: Tensor, grid: Tensor) -> None:
    """Forward mode: maps are linear, and so is a warp in its image."""
    direction = torch.rand_like(image)
    functions: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda x: ours.interpolate(x, 4, mode="bilinear"),
        lambda x: ours.grid_sample(x, grid),
    )
    for function in functions:
        wanted = function(direction)
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(image, direction))).tangent
            torch.testing.assert_close(tangent, wanted, rtol=1e-4, atol=1e-5)


def loading() -> None:
    """A batch of a DataLoader's worker is in shared memory, arithmetic has its dtypes, and draws are torch's."""
    from unittest import mock

    import polyphase
    from polyphase import transforms

    image = torch.randint(0, 256, (3, 9, 11), dtype=torch.uint8)
    with mock.patch("polyphase.pipelines.pipeline.get_worker_info"):
        chain = [transforms.CenterCrop(5), transforms.ToDtype(torch.float32)]
        made = polyphase.fuse(chain).collate([image, image])
    assert made.is_shared()
    fused = polyphase.fuse(transforms.RandomRotation(30))
    torch.manual_seed(3)
    found = fused(image), torch.get_rng_state()
    torch.manual_seed(3)
    angle = torch.empty(1).uniform_(-30, 30).item()
    assert torch.equal(found[1], torch.get_rng_state())
    assert torch.equal(found[0], polyphase.fuse(transforms.RandomRotation((angle, angle)))(image))
    assert torch.equal(made[1], image[:, 2:7, 3:8].float())


def tracing() -> None:
    """Decompositions, what goes before them, and accelerate(): right, or an error of ours."""
    from torch.fx.experimental.proxy_tensor import make_fx

    import polyphase

    image = torch.rand(2, 3, 9, 11)

    def function(x: Tensor) -> Tensor:
        return torch.flip(F.interpolate(x, (4, 5), mode="bilinear"), (-1,))

    wanted = function(image)

    def traced() -> Tensor:
        with polyphase.decompositions.preferred():
            graph = make_fx(function, polyphase.decompositions.table(), tracing_mode="symbolic")(image)
        result: Tensor = graph(image)
        return result

    def accelerated() -> Tensor:
        with polyphase.accelerate():
            return function(image)

    complaints = []
    for way in (traced, accelerated):
        try:
            torch.testing.assert_close(way(), wanted)
        except polyphase.errors.MissingTorchInternalsError as error:
            complaints.append(str(error))
    assert torch.equal(function(image), wanted), "acceleration was not switched off again"
    if complaints:
        raise RuntimeError(complaints[0])


def compiling() -> None:
    """Everything but Inductor's own work: Dynamo, the backend, and the pass over a graph."""
    from polyphase import torch_private

    image = torch.rand(2, 3, 9, 11)

    def function(x: Tensor) -> Tensor:
        return torch.flip(F.interpolate(x, (4, 5), mode="bilinear", antialias=True) * 2, (-1,))

    assert torch_private.compile_fx  # it is tried, then replaced
    torch_private.compile_fx = lambda graph, inputs, config_patches: graph.forward
    torch.testing.assert_close(torch.compile(function, backend="polyphase")(image), function(image))

    from tests.compile.graphs import fused

    report, result = fused(function, image)
    assert len(report.kernels) == 1
    torch.testing.assert_close(result, function(image), rtol=1e-4, atol=1e-5)


def source_tree() -> None:
    """The backend's name, where no installed package brings it."""
    from polyphase.compile import registration

    registration._is_installed = lambda: False
    registration.register()


def explaining() -> None:
    import polyphase
    from polyphase.torch_private import tree_leaves

    assert callable(polyphase.explain)
    assert list(tree_leaves({"a": [1, (2, {"b": 3})]})) == [1, 2, 3]


def measuring() -> None:
    from polyphase.bench import environment, measure

    assert environment.where_it_runs()
    with measure.settings(1, None):
        pass


TRIALS = {
    trial.__name__: trial for trial in (functions, loading, tracing, compiling, source_tree, explaining, measuring)
}


def tried(trial: str, *places: str) -> dict[str, Any]:
    hide(*places)
    with warnings.catch_warnings(record=True) as at_import:
        warnings.simplefilter("always")
        import polyphase  # noqa: F401
        from polyphase.errors import MissingTorchInternalsWarning, PolyphaseError
    failed, text = "", ""
    with warnings.catch_warnings(record=True) as later:
        warnings.simplefilter("always")
        try:
            TRIALS[trial]()
        except Exception as error:
            ours = isinstance(error, (PolyphaseError, RuntimeError)) and "that Polyphase knows" in str(error)
            failed, text = "said" if ours else "crashed", str(error) if ours else traceback.format_exc()
    said = [
        [str(one.message) for one in seen if isinstance(one.message, MissingTorchInternalsWarning)]
        for seen in (at_import, later)
    ]
    return {"failed": failed, "text": text, "at_import": said[0], "later": said[1]}


#: What trials import of torch, which takes longer than they do.
PRELOADED = (
    "torch._decomp.decompositions_for_jvp",
    "torch._dynamo.backends.registry",
    "torch._inductor.codegen.cpp",
    "torch._inductor.compile_fx",
    "torch.distributed.tensor",
    "torch.fx.experimental.proxy_tensor",
)


def main() -> None:
    for module in PRELOADED:
        importlib.import_module(module)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                answer = tried(*json.loads(line))
            except BaseException:
                answer = {"failed": "crashed", "text": traceback.format_exc(), "at_import": [], "later": []}
            print(json.dumps(answer), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            print(
                json.dumps({"failed": "crashed", "text": f"status {status}", "at_import": [], "later": []}), flush=True
            )


if __name__ == "__main__":
    main()
