"""The backend's name and options, and passes that users have of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._subclasses import FakeTensorMode
from torch.fx import Graph

from polyphase.compile.backend import Fuse
from polyphase.compile.whole import kept_whole
from polyphase.errors import WrongOptionError
from polyphase.torch_private import InferenceAwareGraphPass
from tests.compile.running import compiled, launches

IMAGE = torch.rand(1, 3, 20, 22)


def two_steps(image: Tensor) -> Tensor:
    return torch.flip(F.interpolate(image, size=(11, 12), mode="bilinear", antialias=True) * 2, (-1,))


def test_it_has_a_name() -> None:
    assert "polyphase" in torch._dynamo.list_backends(exclude_tags=())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"polyphase.fision": True}, "polyphase.fusion"), ({"polyphase.fusion": 0}, "value 0.*polyphase.fusion.*bool")],
)
def test_a_wrong_option(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message) as found:
        compiled(two_steps, options=options)(IMAGE)
    assert isinstance(found.value.__cause__ or found.value, (WrongOptionError, RuntimeError))


def test_a_wrong_option_of_inductor_s_is_inductor_s_to_refuse() -> None:
    with pytest.raises(Exception, match="Unexpected optimization option max_autotun"):
        compiled(two_steps, options={"max_autotun": True})(IMAGE)


def test_without_fusion_each_operator_is_a_kernel() -> None:
    fused, apart = compiled(two_steps), compiled(two_steps, options={"polyphase.fusion": False})
    with torch.no_grad():
        fused(IMAGE), apart(IMAGE)
        (one, kernels), (other, more) = launches(fused, IMAGE), launches(apart, IMAGE)
    assert (kernels, more) == (1, 2)
    torch.testing.assert_close(one, other, rtol=0, atol=0)


class Counting(CustomGraphPass):  # type: ignore[misc]
    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, graph: Graph) -> None:
        self.seen += sum(node.target is torch.ops.aten.flip.default for node in graph.nodes)

    def uuid(self) -> str:
        return "counting"


class InferenceAware(InferenceAwareGraphPass or object):  # type: ignore[misc]
    def __init__(self) -> None:
        self.seen: list[bool] = []

    def __call__(self, graph: Graph, is_inference: bool) -> None:
        self.seen.append(is_inference)

    def uuid(self) -> str:
        return "aware"


NEWER = pytest.mark.skipif(InferenceAwareGraphPass is None, reason="this torch has no passes that are so told")


@pytest.mark.parametrize("in_a_list", [False, pytest.param(True, marks=NEWER)])
def test_passes_of_the_user_s_run_first(in_a_list: bool) -> None:
    counting, aware = Counting(), InferenceAware()
    given: Any = [counting, aware] if in_a_list else counting
    with torch._inductor.config.patch(post_grad_custom_pre_pass=given, force_disable_caches=True), torch.no_grad():
        result, kernels = launches(compiled(two_steps), IMAGE)
    assert (counting.seen, kernels) == (1, 1)
    assert aware.seen == ([True] if in_a_list else [])
    torch.testing.assert_close(result, two_steps(IMAGE))


def test_a_pass_without_a_uuid_is_not_cached() -> None:
    assert Fuse(True).uuid() != Fuse(False).uuid()
    assert Fuse(True, [Counting()]).uuid() not in (None, Fuse(True).uuid())
    assert Fuse(True, [lambda graph: None]).uuid() is None


def test_few_channels_on_a_gpu_lie_as_eagers() -> None:
    """While a graph is traced; torch's own shapes for it are those of its decompositions."""
    with FakeTensorMode(), kept_whole():
        x = torch.empty(2, 3, 8, 9, device="cuda").to(memory_format=torch.channels_last)
        for mode in ("bilinear", "bicubic", "nearest", "nearest-exact"):
            resized = F.interpolate(x, size=(12, 13), mode=mode)
            assert resized.is_contiguous(memory_format=torch.channels_last), mode
