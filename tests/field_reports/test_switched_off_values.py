"""Tests of PyTorch that a mature out-of-tree backend switches off, section N: values, dtypes and errors.

N-17 is a sample here; whole-database conformance is a program of its own. The rest of N is in
test_switched_off_gradients.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "neuron"


def test_N_02_index_put_accumulate(on_both: Callable) -> None:
    n = 10**6
    index = (torch.arange(n) * 7919 % 1000).to(DEVICE)
    x = torch.zeros(1000, device=DEVICE).index_put_((index,), torch.ones((), device=DEVICE), accumulate=True)
    assert x.tolist() == [1000.0] * 1000
    whole = torch.zeros(1000, dtype=torch.int64, device=DEVICE)
    whole.index_put_((index,), torch.arange(n, device=DEVICE), accumulate=True)
    assert whole.sum().item() == n * (n - 1) // 2

    def nothing(device: str) -> torch.Tensor:
        no_index = torch.empty(0, dtype=torch.long, device=device)
        return torch.ones(3, device=device).index_put_((no_index,), torch.ones(0, device=device), accumulate=True)

    on_both(nothing)


def test_N_04_masked_select_and_put(parity: Callable, random_tensor: Callable) -> None:
    x, mask = random_tensor(3, 4), torch.tensor([True, False, True, True])
    parity(lambda x, m: x.masked_select(m.expand(3, 4)), x, mask, grad=True)
    parity(lambda x, m: x.t().masked_select(m.view(4, 1)), x, mask, grad=True)
    indices, values = torch.tensor([0, 5, 5, 11, -1]), random_tensor(5)
    parity(lambda x, i, v: x.put(i, v, accumulate=True), x, indices, values, grad=True)
    parity(lambda x, i, v: x.t().clone().put_(i, v, accumulate=True), x, indices, values)
    parity(lambda x, i: x.take(i), x, indices, grad=True)
    parity(lambda x, m, v: x.clone().masked_scatter_(m, v), x, mask, random_tensor(12))


def test_N_05_copy_of_mathematical_views(parity: Callable, random_tensor: Callable) -> None:
    z, r = random_tensor(3, 4, dtype=torch.complex64), random_tensor(3, 4)
    parity(lambda a, b: torch.zeros_like(a).copy_(b.conj()), z, z)
    parity(lambda a, b: b.clone().copy_(a.imag), z, r)
    parity(lambda a, b: b.clone().copy_(a.conj().imag), z, r)

    def into_parts(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a = a.clone()
        a.real.copy_(a.imag)
        a.imag[1].copy_(b[1])
        a.conj()[2].copy_(a[0])
        return a

    parity(into_parts, z, r)
    host = torch.zeros(3, 4, dtype=torch.complex64)
    host.copy_(z.to(DEVICE).conj())
    assert torch.equal(host, z.conj().resolve_conj())


POINTWISE = [
    *"abs ceil floor neg sign sin cos tan exp expm1 sqrt rsqrt log1p sigmoid tanh relu erf square reciprocal".split(),
    *"round trunc frac isnan isfinite logical_not sgn sinh cosh asinh atan exp2 erfc deg2rad rad2deg positive".split(),
]
WITH_SELF = "add sub mul div pow maximum minimum fmod remainder atan2 hypot eq ne lt le gt ge logical_and".split()
ACTIVATIONS = "gelu silu elu leaky_relu softplus hardswish hardsigmoid hardtanh mish relu6 selu celu logsigmoid".split()


@pytest.mark.parametrize("name", [*POINTWISE, *WITH_SELF, *ACTIVATIONS])
def test_N_07_memory_format_is_kept(name: str, on_both: Callable, random_tensor: Callable) -> None:
    host = random_tensor(2, 3, 4, 5).abs().to(memory_format=torch.channels_last)

    def run(device: str) -> torch.Tensor:
        x = host.to(device)
        assert x.is_contiguous(memory_format=torch.channels_last)
        if name in ACTIVATIONS:
            return getattr(F, name)(x)
        return getattr(torch, name)(x, x) if name in WITH_SELF else getattr(torch, name)(x)

    on_both(run)


def test_N_07_memory_format_of_factories_and_copies(on_both: Callable, random_tensor: Callable) -> None:
    host = random_tensor(2, 3, 4, 5)

    def run(device: str) -> list[tuple[int, ...]]:
        x = host.to(device).to(memory_format=torch.channels_last)
        video = torch.zeros(2, 3, 2, 4, 5, device=device).to(memory_format=torch.channels_last_3d)
        return [
            x.stride(),
            torch.empty_like(x).stride(),
            torch.zeros_like(x.permute(1, 0, 3, 2)).stride(),
            x.clone().stride(),
            x.clone(memory_format=torch.contiguous_format).stride(),
            x.to(torch.float64).stride(),
            x.contiguous().stride(),
            x.new_empty(x.shape).stride(),
            torch.empty(2, 3, 4, 5, device=device, memory_format=torch.channels_last).stride(),
            video.stride(),
            torch.rand_like(x).stride(),
            x[:, :, ::2].clone().stride(),
            F.max_pool2d(x, 2).stride(),
            F.interpolate(x, scale_factor=2).stride(),
            torch.cat([x, x], 1).stride(),
            x.resize_(1, 3, 2, 2, memory_format=torch.channels_last).stride(),
        ]

    on_both(run)
    for make in (lambda: nn.Conv2d(3, 4, 3), lambda: nn.BatchNorm2d(3)):
        module = make().to(memory_format=torch.channels_last)
        x = host.to(memory_format=torch.channels_last)
        expected = module(x)
        module.to(DEVICE)
        assert module(x.to(DEVICE)).stride() == expected.stride()


def test_N_08_multinomial_advances_the_state() -> None:
    weights = torch.ones(100, device=DEVICE)
    torch.manual_seed(0)
    state = torch.neuron.get_rng_state()
    assert state.dtype == torch.uint8 and state.shape == (16,) and state.device.type == "cpu"
    first = torch.multinomial(weights, 10).tolist()
    assert not torch.equal(torch.neuron.get_rng_state(), state)
    assert torch.multinomial(weights, 10).tolist() != first


@pytest.mark.parametrize(
    "operator",
    [
        lambda d: torch.zeros(4, device=d).put_(torch.tensor([0, 0], device=d), torch.ones(2, device=d)),
        lambda d: torch.zeros(4, device=d).index_copy(0, torch.tensor([0, 1], device=d), torch.ones(2, device=d)),
        lambda d: torch.zeros(4, device=d).scatter_add(0, torch.tensor([0, 0], device=d), torch.ones(2, device=d)),
        lambda d: torch.ones(4, device=d).cumsum(0),
        lambda d: torch.ones(9, device=d).median(0).values,
        lambda d: F.max_unpool2d(torch.ones(1, 1, 1, 2, device=d), torch.tensor([[[[0, 3]]]], device=d), 2),
    ],
    ids=["put", "index_copy", "scatter_add", "cumsum", "median", "max_unpool"],
)
def test_N_10_alerts_of_deterministic_mode(operator: Callable, on_both: Callable) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        try:
            operator("cpu")
        except RuntimeError as error:
            on_both(operator, raises=RuntimeError, message=str(error).split(",")[0])
        else:
            on_both(operator)
    finally:
        torch.use_deterministic_algorithms(False)


def test_N_11_cumsum_of_a_million_is_repeatable(random_tensor: Callable) -> None:
    x = random_tensor(10**6).to(DEVICE)
    assert torch.equal(x.cumsum(0).cpu(), x.cumsum(0).cpu())
    assert torch.ones(10**6, dtype=torch.int64, device=DEVICE).cumsum(0)[-1].item() == 10**6


def test_N_14_take_along_dim(parity: Callable, random_tensor: Callable) -> None:
    x = random_tensor(3, 4)
    parity(lambda x, i: torch.take_along_dim(x, i, None), x, torch.tensor([0, 11, 5]), grad=True)
    parity(lambda x, i: torch.take_along_dim(x, i, 1), x, torch.tensor([[3], [0], [1]]), grad=True)
    parity(lambda x, i: torch.take_along_dim(x, i, 0), x, torch.tensor([[2, 1, 0, 0]]), grad=True)
    with pytest.raises(RuntimeError, match="same number of dimensions"):
        torch.take_along_dim(x.to(DEVICE), torch.tensor([0], device=DEVICE), 0)


def test_N_16_unary_operators_promote_integers() -> None:
    for name in ("sin", "exp", "sqrt", "log", "tanh", "sigmoid", "erf", "rsqrt", "atan", "lgamma"):
        for dtype in (torch.bool, torch.uint8, torch.int32, torch.int64):
            host = torch.ones(2, dtype=dtype)
            got = getattr(torch, name)(host.to(DEVICE))
            want = getattr(torch, name)(host)
            assert got.dtype == want.dtype == torch.float32, (name, dtype)
            torch.testing.assert_close(got.cpu(), want)


EXTREMES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 1e-40, -1e-40, 3e38, -3e38, 2.0**31, -(2.0**31), 1e10]
SPECIAL = [float("inf"), float("-inf"), float("nan")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", [*POINTWISE, "log", "log2", "log10", "lgamma", "digamma", "asin", "acosh", "i0"])
def test_N_17_unary_extremal_values(name: str, dtype: torch.dtype) -> None:
    function = getattr(torch, name)
    host = torch.tensor([*EXTREMES, *SPECIAL], dtype=torch.float64).to(dtype).repeat(3)
    on_device = host.to(DEVICE)
    for view in (lambda t: t, lambda t: t[::2], lambda t: t.view(3, -1).t(), lambda t: t[:0], lambda t: t[1]):
        got, want = function(view(on_device)), function(view(host))
        torch.testing.assert_close(got.cpu(), want, equal_nan=True)
        assert torch.equal(torch.signbit(got.cpu()), torch.signbit(want)) or want.isnan().any()


@pytest.mark.parametrize("name", ["sin", "abs", "floor", "sqrt"])
def test_N_17_out_dtypes(name: str, on_both: Callable) -> None:
    for dtype in (torch.float64, torch.float16, torch.complex64, torch.int32, torch.bool):

        def run(device: str) -> torch.Tensor:
            x = torch.tensor([0.25, 1.0, 4.0], device=device)
            return getattr(torch, name)(x, out=torch.empty(3, dtype=dtype, device=device))

        try:
            run("cpu")
        except RuntimeError as error:
            on_both(run, raises=RuntimeError, message=str(error).splitlines()[0])
        else:
            on_both(run)


ERRORS = [
    (lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d), "mat1 and mat2 shapes cannot be multiplied"),
    (lambda d: torch.ones(2, device=d) + torch.ones(3, device=d), "must match the size of tensor b (3)"),
    (lambda d: torch.cat([torch.ones(2, 2, device=d), torch.ones(2, 3, device=d)]), "Sizes of tensors must match"),
    (lambda d: torch.ones(2, 2, device=d).view(3), "shape '[3]' is invalid for input of size 4"),
    (lambda d: torch.ones(2, device=d)[5], "index 5 is out of bounds for dimension 0 with size 2"),
    (lambda d: torch.ones(2, device=d).sum(3), "Dimension out of range"),
    (lambda d: torch.ones(2, device=d).softmax(4), "Dimension out of range"),
    (lambda d: torch.empty(0, device=d).max(), "Specify the reduction dim"),
    (lambda d: torch.ones(2, 3, device=d).bmm(torch.ones(2, 3, device=d)), "batch1 must be a 3D tensor"),
    (lambda d: F.conv2d(torch.ones(1, 3, 4, 4, device=d), torch.ones(2, 4, 3, 3, device=d)), "to have 4 channels"),
    (lambda d: F.layer_norm(torch.ones(2, 3, device=d), (4,)), "normalized_shape"),
    (lambda d: torch.ones(3, dtype=torch.int32, device=d).bernoulli_(1.5), "p"),
    (lambda d: torch.arange(0, 5, -1, device=d), "upper bound and"),
    (lambda d: torch.linalg.inv(torch.zeros(2, 2, device=d)), "singular"),
    (lambda d: torch.ones(2, device=d).gather(0, torch.zeros(1, device=d)), "Expected dtype int"),
    (lambda d: torch.ones(2, device=d).unsqueeze(4), "Dimension out of range"),
    (lambda d: torch.ones(2, 2, device=d).expand(3, 3), "must match the existing size"),
    (lambda d: torch.empty(-1, device=d), "negative dimension -1"),
    (lambda d: torch.ones(2, dtype=torch.bool, device=d) - torch.ones(2, dtype=torch.bool, device=d), "not supported"),
    (lambda d: torch.ones(3, device=d).topk(5), "selected index k out of range"),
]


@pytest.mark.parametrize(("function", "message"), ERRORS, ids=[message[:24] for _, message in ERRORS])
def test_N_22_errors_have_the_text_of_cpu(function: Callable, message: str, on_both: Callable) -> None:
    with pytest.raises(Exception) as on_cpu:
        function("cpu")
    on_both(function, raises=type(on_cpu.value), message=message)


def test_N_22_tensors_on_two_devices() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(2, device=DEVICE) + torch.ones(2)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(2, 2, device=DEVICE) @ torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(2, device="neuron:0") + torch.ones(2, device="neuron:1")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.cat([torch.ones(2, device=DEVICE), torch.ones(2)])


def test_N_23_type_promotion() -> None:
    dtypes = [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16]
    dtypes += [torch.float32, torch.float64, torch.complex64]
    for a in dtypes:
        for b in dtypes:
            host = torch.ones(2, dtype=a), torch.ones(2, dtype=b)
            device = host[0].to(DEVICE), host[1].to(DEVICE)
            assert torch.result_type(*device) == torch.result_type(*host), (a, b)
            assert (device[0] * device[1]).dtype == (host[0] * host[1]).dtype, (a, b)
            assert (device[0] * device[1][0]).dtype == (host[0] * host[1][0]).dtype, (a, b)
            assert torch.true_divide(*device).dtype == torch.true_divide(*host).dtype, (a, b)
        for number in (True, 2, 1.5, 1j):
            assert (torch.ones(2, dtype=a, device=DEVICE) * number).dtype == (torch.ones(2, dtype=a) * number).dtype
            on_host = torch.tensor(number)
            got = torch.ones(2, dtype=a, device=DEVICE) + on_host
            want = torch.ones(2, dtype=a) + on_host
            assert got.dtype == want.dtype, (a, number)
            torch.testing.assert_close(got.cpu(), want)


def test_N_23_results_that_do_not_fit(on_both: Callable) -> None:
    cannot = "can't be cast to the desired output type"

    def into(dtype: torch.dtype) -> Callable:
        return lambda d: torch.add(torch.ones(2, device=d), 1.5, out=torch.empty(2, dtype=dtype, device=d))

    on_both(into(torch.int64), raises=RuntimeError, message=cannot)
    on_both(into(torch.float64))
    on_both(into(torch.bfloat16))
    on_both(lambda d: torch.ones(2, dtype=torch.int32, device=d).add_(1.5), raises=RuntimeError, message=cannot)
    on_both(lambda d: torch.ones(2, dtype=torch.float16, device=d).add_(torch.ones(2, device=d)))
    on_both(lambda d: torch.ones(2, dtype=torch.bool, device=d).add_(1), raises=RuntimeError, message=cannot)
