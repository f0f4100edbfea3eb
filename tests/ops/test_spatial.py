"""Operators that move the elements of images (padding, windows, shuffles, sampling): as on CPU, without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, compare, compare_errors
from gradients import with_gradients
from torch import Tensor

MOVES: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "reflect1": (1, lambda x: F.pad(x, (1, 2), "reflect")),
    "reflect2": (2, lambda x: F.pad(x, (1, 2, 0, 3), "reflect")),
    "reflect3": (3, lambda x: F.pad(x, (1, 2, 0, 3, 1, 1), "reflect")),
    "replicate1": (1, lambda x: F.pad(x, (1, 2), "replicate")),
    "replicate2": (2, lambda x: F.pad(x, (1, 2, -1, 3), "replicate")),
    "replicate3": (3, lambda x: F.pad(x, (1, 2, 0, 3, 1, 1), "replicate")),
    "circular2": (2, lambda x: F.pad(x, (1, 2, 0, 3), "circular")),
    "constant2": (2, lambda x: F.pad(x, (1, -2, 0, 3), value=0.5)),
    "unfold": (2, lambda x: F.unfold(x, (2, 3), dilation=(1, 2), padding=1, stride=2)),
    "fold": (2, lambda x: F.fold(x.flatten(1, 2).view(2, 24, -1)[..., :6], (4, 3), 2)),
    "pixel_shuffle": (2, lambda x: F.pixel_shuffle(x, 2)),
    "pixel_unshuffle": (2, lambda x: F.pixel_unshuffle(x, 2)),
    "channel_shuffle": (2, lambda x: F.channel_shuffle(x, 2)),
    "nearest2": (2, lambda x: F.interpolate(x, scale_factor=2)),
    "bilinear2": (2, lambda x: F.interpolate(x, size=(5, 11), mode="bilinear", align_corners=False)),
    "bicubic2": (2, lambda x: F.interpolate(x, size=(5, 11), mode="bicubic", align_corners=True)),
    "trilinear3": (3, lambda x: F.interpolate(x, size=(5, 3, 7), mode="trilinear")),
}


def image(dims: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(2, 4, *[6, 8, 4][:dims], generator=torch.Generator().manual_seed(dims)).to(dtype)


def check(function: Callable[..., Any], *inputs: Any, tolerance: float = 1e-5) -> None:
    compare(lambda *a: with_gradients(function, *a), *inputs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", MOVES)
def test_values_and_gradients(name: str, dtype: torch.dtype) -> None:
    dims, function = MOVES[name]
    check(function, image(dims, dtype), tolerance=2e-2 if dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("name", [name for name in MOVES if name not in ("fold", "circular2")])
def test_any_strides_and_unbatched(name: str) -> None:
    dims, function = MOVES[name]
    x = image(dims)
    check(lambda x: function(x.flip(0)[:, :, ::1].transpose(0, 1).transpose(0, 1)), x)
    if dims > 1:
        check(function, x.to(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d))
    if name in ("reflect1", "reflect2", "replicate2", "replicate3", "unfold", "pixel_shuffle"):
        check(function, x[0])


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode: str, padding_mode: str, align_corners: bool) -> None:
    kwargs: dict[str, Any] = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    generator = torch.Generator().manual_seed(3)
    grid = torch.rand(2, 5, 7, 2, generator=generator) * 2.4 - 1.2
    check(lambda x, g: F.grid_sample(x, g, **kwargs), image(2), grid, tolerance=1e-4)
    check(lambda x, g: F.grid_sample(x, g.detach(), **kwargs), image(2).to(memory_format=torch.channels_last), grid)
    if mode != "bicubic":
        grid = torch.rand(2, 5, 7, 3, 3, generator=generator) * 2.4 - 1.2
        check(lambda x, g: F.grid_sample(x, g, **kwargs), image(3), grid, tolerance=1e-4)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.pad(x, (8, 0, 0, 0), "reflect"),
        lambda x: F.pad(x, (1, 1, 1), "reflect"),
        lambda x: F.pad(x[:, :, :0], (1, 1, 1, 1), "reflect"),
        lambda x: F.unfold(x, 9),
        lambda x: F.unfold(x, 2, stride=0),
        lambda x: F.fold(x.flatten(1, 2), (4, 3), 2),
        lambda x: F.pixel_shuffle(x[:, :3], 2),
        lambda x: F.pixel_unshuffle(x, 5),
        lambda x: F.channel_shuffle(x, 3),
        lambda x: F.grid_sample(x, x[..., :3], align_corners=False),
        lambda x: F.grid_sample(x, x[..., :2].double(), align_corners=False),
    ],
)
def test_errors(call: Callable[..., Any]) -> None:
    compare_errors(call, image(2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_of_large_images_in_half_precision(dtype: torch.dtype, mode: str) -> None:
    """Against float32. PyTorch's kernel for `cpu` reads outside of images of more than 32,767 pixels."""
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(1, 2, 300, 400, generator=generator).to(dtype)
    grid = (torch.rand(1, 40, 50, 2, generator=generator) * 2 - 1).to(dtype)
    leaves = [t.to(DEVICE).requires_grad_() for t in (image, grid)]
    exact = [t.float().requires_grad_() for t in (image, grid)]
    got, expected = (F.grid_sample(*pair, mode=mode, align_corners=False) for pair in (leaves, exact))
    got.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(got.detach().cpu(), expected.detach().to(dtype))
    for leaf, other in zip(leaves, exact):
        torch.testing.assert_close(leaf.grad.cpu(), other.grad.to(dtype))
