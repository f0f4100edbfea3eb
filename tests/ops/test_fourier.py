"""Fourier transforms: values and strides of the CPU, whatever the layout of the input, without waiting."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import comparison
import pytest
import torch
from comparison import compare_errors
from gradients import with_gradients
from torch import Tensor

# MKL's rounding depends on where in memory a tensor lies.
compare = functools.partial(comparison.compare, rtol=1e-6, atol=1e-6)

X = torch.randn(3, 4, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Z = torch.complex(X, X.flip(0))

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "permuted": lambda x: x.permute(2, 0, 3, 1),
    "strided": lambda x: x[:, 1:, ::2, ::3],
    "expanded": lambda x: x[:, :1].expand(-1, 2, -1, -1),
    "channels-last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "flipped": lambda x: x.transpose(0, 3).flip(1),
    "halved": lambda x: x[1:].narrow(3, 1, 2),
}
DIMS = [dims for n in (1, 2, 3, 4) for dims in itertools.permutations(range(4), n)][::3]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_transforms(layout: str) -> None:
    def all_of(x: Tensor, z: Tensor) -> list[Tensor]:
        x, z = LAYOUTS[layout](x), LAYOUTS[layout](z)
        results = []
        for dims in DIMS:
            results += [torch.fft.fftn(z, dim=dims), torch.fft.ifftn(z, dim=dims, norm="ortho")]
            results += [torch.fft.rfftn(x, dim=dims), torch.fft.irfftn(z, dim=dims), torch.fft.fftn(x, dim=dims)]
        return results

    compare(all_of, X, Z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_dimension(dtype: torch.dtype) -> None:
    x = X.to(dtype)
    for n in (3, 8, None):
        compare(lambda x: torch.fft.rfft(x, n=n), x)
        compare(lambda x: torch.fft.irfft(torch.complex(x, -x), n=n), x)
        compare(lambda x: torch.fft.hfft(torch.complex(x, -x), n=n), x)
        compare(lambda x: torch.fft.ihfft(x, n=n, dim=1), x)


def test_dimensions_of_one_element() -> None:
    for dims in ((0, 1), (1, 3), (2, 0, 1)):
        compare(lambda z: torch.fft.fftn(z[:, :1].transpose(0, 2), dim=dims), Z)
        compare(lambda x: torch.fft.rfftn(x[:1, :, :, :1].transpose(1, 3), dim=dims), X)


def test_gradients() -> None:
    compare(lambda x: with_gradients(lambda x: torch.fft.rfft2(x).abs(), x, twice=True), X, rtol=1e-9, atol=1e-9)
    compare(lambda x: with_gradients(lambda x: torch.fft.irfft(x + 1j * x, n=7), x, twice=True), X, atol=1e-9)
    compare(lambda x: with_gradients(lambda x: torch.fft.fftn(x + 0j, dim=(1, 3)).abs(), x), X, rtol=1e-9, atol=1e-9)


def test_out() -> None:
    for size in ((0,), (3, 4, 6, 3)):
        compare(lambda x: torch.fft.rfft(x, out=torch.empty(size, dtype=torch.cdouble, device=x.device)), X)
    compare(lambda z: torch.fft.fft2(z, out=torch.empty_like(z).transpose(2, 3).contiguous().transpose(2, 3)), Z)
    compare(lambda z: torch.fft.irfft(z, out=torch.empty(0, dtype=torch.double, device=z.device)), Z)


def test_short_time_transforms() -> None:
    wave, window = torch.randn(2, 500, generator=torch.Generator().manual_seed(1)), torch.hann_window(64)
    for options in ({}, {"onesided": False}, {"center": False}, {"normalized": True}, {"hop_length": 10}):
        compare(lambda x, w: torch.stft(x, 64, window=w, return_complex=True, **options), wave, window)
    spectrum = torch.stft(wave, 64, window=window, return_complex=True)
    compare(lambda s, w: torch.istft(s, 64, window=w, length=500), spectrum, window, waits=True)


def test_errors() -> None:
    compare_errors(lambda x: torch.fft.fft(x), X.half())
    compare_errors(lambda x: torch.fft.fft(x, n=0), X)
    compare_errors(lambda x: torch.fft.rfft(x), Z)
    compare_errors(lambda x: torch.fft.fftn(x, dim=(1, 1)), X)
    compare_errors(lambda x: torch.fft.fft(x), torch.tensor(1.0))
    compare_errors(lambda x: torch.fft.fft(x[:0]), X)
