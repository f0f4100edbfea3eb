"""What users of AWS's TorchNeuron met, section T: values, dtypes, shapes and gradients of operators in eager mode.

Left to torch.compile: T-02, T-42, T-44, T-49, and the compiled halves of T-16 and T-31. Left to torch.distributed:
T-04, T-21, T-26, T-34, T-36, T-51, T-56, T-57, T-61, T-62. Left to NKI: T-29. The rest of T is in
test_torchneuron_runtime.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "neuron"

ALL_DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


def test_T_01_strided_slice_assignment_is_exact_and_not_slow(parity: Callable, random_tensor: Callable) -> None:
    a, b = random_tensor(4, 256, 16, 64), random_tensor(4, 256, 16, 64)

    def by_lanes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = torch.empty(*a.shape[:-1], 2 * a.shape[-1], device=a.device)
        y[..., ::2] = a
        y[..., 1::2] = b
        return y

    def by_stack(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.stack((a, b), -1).flatten(-2)

    parity(by_lanes, a, b)
    parity(by_stack, a, b)

    device_a, device_b = a.to(DEVICE), b.to(DEVICE)
    best = {by_lanes: float("inf"), by_stack: float("inf")}
    for _ in range(10):
        for way in best:
            start = time.perf_counter()
            way(device_a, device_b)
            torch.neuron.synchronize()
            best[way] = min(best[way], time.perf_counter() - start)
    assert best[by_lanes] < 6 * best[by_stack]


def test_T_06_int64_is_exact() -> None:
    assert (torch.tensor([2**40 + 1], device=DEVICE) + 1).item() == 2**40 + 2
    assert (torch.arange(3, device=DEVICE) * 3_000_000_000).tolist() == [0, 3_000_000_000, 6_000_000_000]
    assert torch.tensor([2**62, 2**62 - 1], device=DEVICE).sum().item() == 2**63 - 1
    assert torch.tensor(2**53 + 1, device=DEVICE).item() == 2**53 + 1


def test_T_06_float64_is_exact() -> None:
    one_and_a_bit = torch.tensor(1.0 + 2**-40, dtype=torch.float64, device=DEVICE)
    assert one_and_a_bit.dtype == torch.float64
    assert (one_and_a_bit - 1).item() == 2**-40


@pytest.mark.parametrize("vocabulary", [2**15, 2**16, 2**17, 151936, 2**18])
def test_T_09_gather_over_a_vocabulary(vocabulary: int) -> None:
    logits = (torch.arange(8 * vocabulary) % 1000003).to(torch.float32).view(8, vocabulary)
    index = torch.tensor([0, 1, vocabulary - 1, 32767, 32766, vocabulary // 2, 12345, vocabulary - 2])
    expected = [float((row * vocabulary + int(i)) % 1000003) for row, i in enumerate(index)]
    picked = logits.to(DEVICE).gather(-1, index.to(DEVICE).unsqueeze(-1))
    assert picked.shape == (8, 1)
    assert picked.flatten().tolist() == expected


def test_T_11_clamp_then_one_hot() -> None:
    classes = torch.tensor([-1, 5], device=DEVICE).clamp(0, 3)
    assert F.one_hot(classes, 4).tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    with pytest.raises((RuntimeError, IndexError)):
        F.one_hot(torch.tensor([4], device=DEVICE), 4)
        torch.neuron.synchronize()
    assert F.one_hot(torch.tensor([2], device=DEVICE)).tolist() == [[0, 0, 1]]


@pytest.mark.parametrize("width", [1, 3, 127, 1537])
def test_T_12_odd_widths(width: int, parity: Callable, random_tensor: Callable) -> None:
    parity(
        lambda x, w: F.softmax(x @ w, -1) @ w.t(),
        random_tensor(5, width),
        random_tensor(width, width) / width**0.5,
        grad=True,
        rtol=1e-4,
        atol=1e-5,
    )
    parity(lambda x: x.softmax(-1).sum(0), random_tensor(7, width), grad=True)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_T_14_multihead_attention_backward_with_mask(kind: str, need_weights: bool, on_both: Callable) -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(64, 4, batch_first=True)
    x = torch.randn(2, 9, 64)
    mask = torch.ones(9, 9).triu(1).bool()
    if kind == "float":
        mask = torch.zeros(9, 9).masked_fill(mask, float("-inf"))

    def run(device: str) -> list[torch.Tensor]:
        module = nn.MultiheadAttention(64, 4, batch_first=True)
        module.load_state_dict(attention.state_dict())
        module.to(device)
        inputs = x.clone().to(device).requires_grad_()
        output, weights = module(inputs, inputs, inputs, attn_mask=mask.to(device), need_weights=need_weights)
        output.sum().backward()
        grads = [parameter.grad for parameter in module.parameters()]
        return [output.detach(), inputs.grad, *grads] + ([weights.detach()] if need_weights else [])

    on_both(run, rtol=1e-4, atol=1e-5)


def test_T_16_fft_and_complex_maths(parity: Callable, random_tensor: Callable) -> None:
    x = random_tensor(3, 16)
    parity(lambda x: torch.fft.irfft(torch.fft.rfft(x)), x, grad=True)
    parity(lambda x: torch.fft.fft2(x).abs(), x, grad=True)
    parity(
        lambda x, r, angle: torch.view_as_real(torch.view_as_complex(x) * torch.polar(r, angle)),
        random_tensor(5, 2),
        random_tensor(5).abs(),
        random_tensor(5),
        grad=True,
    )
    z = random_tensor(4, 3, dtype=torch.complex64)
    parity(lambda z: z.abs(), z, grad=True)
    parity(lambda z: (z.conj() @ z.t()).real, z, grad=True)
    parity(lambda z: z.conj().imag * 2, z, grad=True)


def test_T_16_conjugate_and_negative_stay_lazy(random_tensor: Callable) -> None:
    host = random_tensor(4, dtype=torch.complex64)
    z = host.to(DEVICE)
    assert z.conj().is_conj() and z.conj().data_ptr() == z.data_ptr()
    assert z.conj().imag.is_neg()
    torch.testing.assert_close(z.conj().cpu(), host.conj().resolve_conj())
    torch.testing.assert_close(z.conj().imag.cpu(), -host.imag)
    torch.testing.assert_close(z.conj().resolve_conj().cpu(), host.conj().resolve_conj())


def ties_and_nans(random_tensor: Callable, dtype: torch.dtype) -> torch.Tensor:
    x = random_tensor(4, 33, dtype=dtype)
    x[:, 5:9] = x[:, :4]
    if dtype.is_floating_point:
        x[1, 7] = x[2, 0] = float("nan")
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_T_17_sorting(dtype: torch.dtype, parity: Callable, random_tensor: Callable) -> None:
    x = ties_and_nans(random_tensor, dtype)
    parity(lambda x: tuple(x.sort(dim=-1, descending=True, stable=True)), x)
    parity(lambda x: tuple(x.sort(dim=0, stable=True)), x)
    parity(lambda x: x.argsort(dim=-1, stable=True), x)
    parity(torch.msort, x)
    parity(lambda x: torch.unique(x[0], return_inverse=True, return_counts=True), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_T_17_order_statistics(dtype: torch.dtype, parity: Callable, random_tensor: Callable) -> None:
    x = ties_and_nans(random_tensor, dtype)
    parity(lambda x: x.median(), x)
    parity(lambda x: x.median(-1).values, x)
    parity(lambda x: x.kthvalue(3, -1).values, x)
    parity(lambda x: torch.quantile(x.float(), torch.tensor([0.1, 0.5], device=x.device), -1), x)
    parity(lambda x: x.float().nanquantile(0.25), x)
    parity(lambda x: x.topk(5, -1).values, x)


def test_T_24_bf16_arithmetic_rounds_once_per_operator(parity: Callable, random_tensor: Callable) -> None:
    state, velocity = random_tensor(1000, dtype=torch.bfloat16), random_tensor(1000, dtype=torch.bfloat16)

    def steps_with_a_number(s: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            s = s + 0.0213 * v
        return s

    def steps_with_a_tensor(s: torch.Tensor, v: torch.Tensor, dt: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            s = s + dt * v
        return torch.add(s, v, alpha=0.3)

    exact = {"rtol": 0, "atol": 0}
    parity(steps_with_a_number, state, velocity, **exact)
    parity(steps_with_a_tensor, state, velocity, torch.tensor(0.0213), **exact)
    with_host_scalar = torch.tensor(0.0213)
    parity(lambda s, v: steps_with_a_tensor(s, v, with_host_scalar), state, velocity, **exact)


def test_T_31_rotary_embedding_by_complex_numbers(parity: Callable, random_tensor: Callable) -> None:
    angles = torch.outer(torch.arange(6.0), 1e4 ** -torch.linspace(0, 1, 8))
    rotation = torch.polar(torch.ones_like(angles), angles)[None, :, None, :]

    def rotate(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * rotation).flatten(-2)

    parity(rotate, random_tensor(2, 6, 3, 16), rotation, grad=True)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_T_39_fp8_casts(dtype: torch.dtype, parity: Callable) -> None:
    x = torch.tensor([0.0, -0.0, 0.1, 1.0, -3.7, 300.0, 448.0, 449.0, 500.0, -1e6, 1e-9, float("inf"), float("nan")])
    parity(lambda x: x.to(dtype).view(torch.uint8), x)
    parity(lambda x: x.to(dtype).to(torch.float32), x)
    parity(lambda x: x.bfloat16().to(dtype).to(torch.bfloat16), x)


def test_T_39_int8_and_fp8_products(on_both: Callable, parity: Callable, random_tensor: Callable) -> None:
    a = random_tensor(32, 64, dtype=torch.int8) - 5
    b = random_tensor(64, 16, dtype=torch.int8) - 5
    parity(torch._int_mm, a, b)
    parity(torch.matmul, a, b)
    assert torch._int_mm(a.to(DEVICE), b.to(DEVICE)).tolist() == (a.long() @ b.long()).tolist()

    x = random_tensor(32, 64).to(torch.float8_e4m3fn)
    w = random_tensor(16, 64).to(torch.float8_e4m3fn)

    def scaled(device: str, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(
            x.to(device), w.to(device).t(), scale_a.to(device), scale_b.to(device), out_dtype=torch.float32
        )

    truth = x.float() @ w.float().t()
    result = scaled(DEVICE, torch.tensor(0.5), torch.tensor(3.0))
    torch.testing.assert_close(result.cpu(), truth * 1.5, rtol=1e-3, atol=1e-3)
    rows, columns = random_tensor(32, 1).abs() + 0.1, random_tensor(1, 16).abs() + 0.1
    result = scaled(DEVICE, rows, columns)
    torch.testing.assert_close(result.cpu(), truth * rows * columns, rtol=1e-3, atol=1e-3)


def test_T_41_index_and_index_add_run_on_the_device(parity: Callable, random_tensor: Callable) -> None:
    atoms, index = random_tensor(50, 8), torch.arange(200) * 7 % 50
    torch.neuron.clear_op_tracking()
    parity(
        lambda x, i: torch.zeros_like(x).index_add(0, i, x[i]),
        atoms,
        index,
        grad=True,
    )
    assert not [name for name in torch.neuron.get_fallback_ops() if "index" in str(name)]


def test_T_41_index_add_is_deterministic_in_deterministic_mode(random_tensor: Callable) -> None:
    messages = random_tensor(5000, 8).to(DEVICE)
    index = (torch.arange(5000) * 31 % 17).to(DEVICE)
    torch.use_deterministic_algorithms(True)
    try:
        sums = [torch.zeros(17, 8, device=DEVICE).index_add_(0, index, messages).cpu() for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(sums[0], sums[1]) and torch.equal(sums[0], sums[2])


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [False, True])
def test_T_46_scatter_reduce(reduce: str, include_self: bool, parity: Callable, random_tensor: Callable) -> None:
    parity(
        lambda out, src, idx: out.clone().scatter_reduce_(0, idx, src, reduce, include_self=include_self),
        random_tensor(5, 3),
        random_tensor(8, 3),
        torch.arange(24).view(8, 3) % 4,
        grad=True,
    )


def test_T_46_gradient_of_amax_is_shared_by_ties() -> None:
    source = torch.tensor([3.0, 3.0, 1.0], device=DEVICE, requires_grad=True)
    index = torch.tensor([0, 0, 0], device=DEVICE)
    torch.zeros(1, device=DEVICE).scatter_reduce(0, index, source, "amax", include_self=False).sum().backward()
    assert source.grad.tolist() == [0.5, 0.5, 0.0]


def test_T_46_index_put_with_slices_and_chained_index(parity: Callable, random_tensor: Callable) -> None:
    matrix, values = random_tensor(2, 3, 6, 6), random_tensor(2, 3, 4)
    i, j = torch.tensor([0, 5, 2, 2]), torch.tensor([1, 1, 3, 0])

    def assign(m: torch.Tensor, v: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        m = m.clone()
        m[..., i, j] = v
        return m

    parity(assign, matrix, values, i, j, grad=True)
    parity(lambda m, i, j: m[0, :, i][:, :, j], matrix, i, j, grad=True)
    parity(lambda m, i: m[:, 0, i, 1:3], matrix, i, grad=True)


@pytest.mark.parametrize("source", ALL_DTYPES, ids=str)
def test_T_47_cast_between_every_pair_of_dtypes(source: torch.dtype, random_tensor: Callable) -> None:
    values = torch.tensor([0.0, 1.0, 2.75, 100.0, 7.5] + ([] if source == torch.uint8 else [-1.0, -2.75]))
    host = values.to(source)
    on_device = host.to(DEVICE)
    for target in ALL_DTYPES:
        if target == torch.uint8:
            host_in_range, device_in_range = host[:5], on_device[:5]
        else:
            host_in_range, device_in_range = host, on_device
        expected = host_in_range.to(target)
        assert torch.equal(device_in_range.to(target).cpu(), expected), target
        assert torch.equal(device_in_range.to("cpu", target), expected), target
        assert torch.equal(host_in_range.to(DEVICE, target).cpu(), expected), target
        assert torch.equal(torch.empty_like(expected, device=DEVICE).copy_(device_in_range).cpu(), expected), target
        assert torch.equal(torch.empty_like(expected, device=DEVICE).copy_(host_in_range).cpu(), expected), target
        assert torch.equal(torch.empty_like(expected).copy_(device_in_range), expected), target


def test_T_47_named_casts_and_truncation() -> None:
    x = torch.tensor([1.999, -1.999, 0.5], device=DEVICE)
    assert x.to(torch.int32).tolist() == [1, -1, 0]
    assert x.long().dtype == torch.int64
    assert x.half().float().tolist() == torch.tensor([1.999, -1.999, 0.5]).half().float().tolist()
    assert x.bool().tolist() == [True, True, True]
