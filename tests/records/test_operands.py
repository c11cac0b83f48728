"""What a program reads besides its image is checked before a kernel sees it, for maps and for warps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from polyphase.calls import binding
from polyphase.errors import WrongInputError
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import VALUE, Binary, Channel, Number, Operand
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.steps import Resize
from polyphase.sampling.warps import Warp

IMAGE = torch.rand(1, 3, 6, 6)
ARITHMETIC = Binary("add", Binary("mul", VALUE, Channel(0, torch.float32)), Operand(1, torch.float32))


def resized(**given: dict[int, Tensor]) -> Tensor:
    maps = Axes((AxisMap((Resize(8, "bilinear"),)), AxisMap((Resize(8, "bilinear"),))))
    return binding.run(Program(torch.float32, maps, epilogue=ARITHMETIC), IMAGE, **given)


def warped(**given: dict[int, Tensor]) -> Tensor:
    program = Program(torch.float32, Warp("affine", size=(8, 8)), epilogue=ARITHMETIC)
    return binding.run(program, IMAGE, torch.eye(2, 3)[None], **given)


@pytest.mark.parametrize("run", [resized, warped])
def test_operands(run: Callable[..., Tensor]) -> None:
    vector, tensor = torch.rand(3), torch.rand(1, 3, 8, 8)
    plain = run(channels={0: torch.ones(3)}, tensors={1: torch.zeros(1, 3, 8, 8)})
    torch.testing.assert_close(run(channels={0: vector}, tensors={1: tensor}), plain * vector[:, None, None] + tensor)
    for wrong in (torch.rand(1), torch.rand(4), torch.rand(1, 3), torch.rand(3).double()):
        with pytest.raises(WrongInputError, match="vector 0 of the program is"):
            run(channels={0: wrong}, tensors={1: tensor})
    for wrong in (torch.rand(1, 1, 2, 2), torch.rand(1, *tensor.shape), tensor.double(), tensor.to("meta")):
        with pytest.raises(WrongInputError, match="tensor 1 of the program is"):
            run(channels={0: vector}, tensors={1: wrong})
    rows = torch.rand(8, 1)
    torch.testing.assert_close(
        run(channels={0: vector[:, None, None]}, tensors={1: rows}), plain * vector[:, None, None] + rows
    )
    strided = torch.rand(3, 2)[:, 0]
    torch.testing.assert_close(run(channels={0: strided}, tensors={1: rows}), plain * strided[:, None, None] + rows)
    with pytest.raises(WrongInputError, match="tensor 1 of the program is missing"):
        run(channels={0: vector})


def test_coordinates_of_another_dtype() -> None:
    grid = torch.zeros(1, 2, 2, 2)
    for image, wrong in ((IMAGE, grid.double()), (IMAGE.double(), grid), (IMAGE.half(), grid.bfloat16())):
        with pytest.raises(WrongInputError, match="convert them"):
            binding.warp(image, wrong, Warp("grid"))
    with pytest.raises(WrongInputError, match=r"int64 coordinates"):
        binding.warp(IMAGE, grid.long(), Warp("grid", "nearest"))


def test_a_scalar_is_no_image() -> None:
    with pytest.raises(WrongInputError):
        binding.warp(torch.tensor(1.0), torch.zeros(1, 2, 2, 2), Warp("grid"))


def test_planes_of_more_than_32_bits() -> None:
    far = torch.empty(2**31 + 64, dtype=torch.uint8).as_strided((1, 1, 2, 2), (0, 0, 2**31, 1))
    far.copy_(torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8))
    grid = torch.tensor([[[[-0.5, 0.5], [0.5, 0.5]]]])
    assert binding.warp(far, grid, Warp("grid")).flatten().tolist() == [3, 4]
    shown = binding.run(Program(torch.uint8, Warp("grid"), epilogue=Binary("add", VALUE, Number(1))), far, grid)
    assert shown.flatten().tolist() == [4, 5]
