"""What broke on other young PyTorch devices, section P: values, gradients and errors of eager operators.

What is left out, and where it goes, stands in test_other_devices_tensors.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = "neuron"


def test_P_14_mutated_lists_are_mutated(random_tensor: Callable) -> None:
    a, b = random_tensor(3), random_tensor(2, 2)
    lists = [a.clone().to(DEVICE), b.clone().to(DEVICE)]
    torch._foreach_add_(lists, 1.0)
    torch._foreach_mul_(lists, [2.0, 3.0])
    torch._foreach_addcdiv_(lists, lists, [torch.ones_like(t) * 2 for t in lists], 0.5)
    torch._foreach_sqrt_(torch._foreach_abs(lists))
    for got, start, factor in zip(lists, (a, b), (2.0, 3.0)):
        want = (start + 1) * factor
        torch.testing.assert_close(got.cpu(), want + 0.5 * want / 2)
    torch._foreach_zero_(lists)
    assert [t.abs().sum().item() for t in lists] == [0, 0]


def test_P_14_foreach_of_mixed_devices_and_dtypes(on_both: Callable) -> None:
    def run(device: str) -> list[torch.Tensor]:
        lists = [torch.ones(2, device=device), torch.ones(2, dtype=torch.float64, device=device)]
        torch._foreach_copy_(lists, [torch.full((2,), 3.0), torch.full((2,), 4.0)])
        return [*lists, *torch._foreach_norm(lists), *torch._foreach_maximum(lists, 3.5)]

    on_both(run)


MASKS = {
    "none": lambda q, k: None,
    "bool": lambda q, k: torch.ones(q, k).tril(1).bool(),
    "float": lambda q, k: torch.arange(float(q * k)).view(q, k).sin(),
    "broadcast": lambda q, k: torch.ones(1, k).bool(),
}


@pytest.mark.parametrize("head", [16, 40, 80, 129])
@pytest.mark.parametrize("mask", MASKS)
def test_P_26_attention(mask: str, head: int, parity: Callable, random_tensor: Callable) -> None:
    q, k, v = random_tensor(2, 4, 7, head), random_tensor(2, 4, 11, head), random_tensor(2, 4, 11, head)
    attention_mask = MASKS[mask](7, 11)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        placed = attention_mask.to(q.device) if attention_mask is not None else None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=placed)

    parity(attend, q, k, v, grad=True, rtol=1e-4, atol=1e-5, strides=False)


def test_P_26_attention_causal_scaled_grouped_and_3d(parity: Callable, random_tensor: Callable) -> None:
    q, k, v = random_tensor(2, 4, 9, 8), random_tensor(2, 2, 9, 8), random_tensor(2, 2, 9, 8)
    grouped = {"enable_gqa": True}
    for options in ({"is_causal": True}, {"scale": 0.3}, {"is_causal": True, "scale": 0.1}):
        parity(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options, **grouped),
            q,
            k,
            v,
            grad=True,
            rtol=1e-4,
            atol=1e-5,
            strides=False,
        )
    parity(F.scaled_dot_product_attention, q[0], q[1], q[0], grad=True, rtol=1e-4, atol=1e-5, strides=False)


def test_P_26_attention_by_chosen_kernels(random_tensor: Callable) -> None:
    q = random_tensor(1, 2, 6, 8)
    truth = F.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel([SDPBackend.MATH]):
        torch.testing.assert_close(F.scaled_dot_product_attention(*[q.to(DEVICE)] * 3).cpu(), truth)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        torch.testing.assert_close(F.scaled_dot_product_attention(*[q.to(DEVICE)] * 3).cpu(), truth)


def test_P_26_fully_masked_rows_give_zero(random_tensor: Callable) -> None:
    q = random_tensor(1, 2, 3, 8).to(DEVICE)
    mask = torch.tensor([[True, True, False], [False, False, False], [True, False, True]], device=DEVICE)
    for given in (mask, torch.zeros(3, 3, device=DEVICE).masked_fill(~mask, float("-inf"))):
        output = F.scaled_dot_product_attention(q, q, q, attn_mask=given)
        assert output[:, :, 1].eq(0).all().item()
        assert output[:, :, 0].ne(0).all().item() and output.isfinite().all().item()


def test_P_26_attention_dropout_keeps_the_mean() -> None:
    torch.manual_seed(0)
    q = torch.zeros(1, 1, 64, 16, device=DEVICE)
    v = torch.ones(1, 1, 64, 16, device=DEVICE)
    output = F.scaled_dot_product_attention(q, q, v, dropout_p=0.25)
    assert abs(output.mean().item() - 1) < 0.05
    assert output.std().item() > 0.01


def test_P_27_mask_together_with_is_causal_as_cpu(on_both: Callable, random_tensor: Callable) -> None:
    q, mask = random_tensor(1, 2, 4, 8), torch.ones(4, 4).bool()

    def both(device: str) -> torch.Tensor:
        x = q.to(device)
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask.to(device), is_causal=True)

    try:
        both("cpu")
    except RuntimeError as error:
        on_both(both, raises=RuntimeError, message=str(error).splitlines()[0])
    else:
        on_both(both, strides=False)


def test_P_29_linear_on_strided_activations(parity: Callable, random_tensor: Callable) -> None:
    x, w, b = random_tensor(3, 5, 4), random_tensor(6, 4), random_tensor(6)
    tolerance = {"rtol": 1e-4, "atol": 1e-5, "grad": True, "strides": False}
    parity(lambda x, w, b: F.linear(x.transpose(0, 1), w, b), x, w, b, **tolerance)
    parity(lambda x, w, b: F.linear(x.transpose(0, 1), w, b).transpose(0, 1) * 2, x, w, b, **tolerance)
    parity(lambda x, w: F.linear(x[:, ::2], w).transpose(1, 2).sum(0), x, w, **tolerance)
    parity(lambda x, w: F.linear(x.expand(2, 3, 5, 4), w), x, w, **tolerance)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ignore_index": 2},
        {"label_smoothing": 0.1},
        {"weight": torch.tensor([1.0, 2.0, 0.5, 3.0, 1.5])},
        {"weight": torch.tensor([1.0, 2.0, 0.5, 3.0, 1.5]), "label_smoothing": 0.2, "ignore_index": 0},
    ],
    ids=["plain", "ignore", "smooth", "weight", "all"],
)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_P_31_cross_entropy_gradients(options: dict, reduction: str, parity: Callable, random_tensor: Callable) -> None:
    def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        placed = {k: v.to(logits.device) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
        return F.cross_entropy(logits, target, reduction=reduction, **placed) * 3

    parity(loss, random_tensor(6, 5), torch.tensor([0, 1, 2, 3, 4, 2]), grad=True)
    parity(loss, random_tensor(2, 5, 3), torch.tensor([[0, 1, 2], [3, 4, 2]]), grad=True)


def test_P_31_cross_entropy_with_soft_targets(parity: Callable, random_tensor: Callable) -> None:
    target = random_tensor(6, 5).softmax(-1)
    parity(lambda x, t: F.cross_entropy(x, t, reduction="none"), random_tensor(6, 5), target, grad=True)
    x = random_tensor(6, 5).to(DEVICE).requires_grad_()
    weights = torch.arange(6.0, device=DEVICE)
    (F.cross_entropy(x, torch.arange(5, device=DEVICE).repeat(2)[:6], reduction="none") * weights).sum().backward()
    assert x.grad[0].abs().sum().item() == 0 and x.grad[1:].abs().sum(-1).gt(0).all().item()


def test_P_32_in_place_results_keep_the_dtype_of_self(on_both: Callable) -> None:
    mask = torch.full((2, 2), -1e9, device=DEVICE)
    mask *= torch.tensor([[True, False], [False, True]], device=DEVICE)
    assert mask.dtype == torch.float32
    assert mask.cpu().tolist() == (torch.full((2, 2), -1e9) * torch.eye(2)).tolist()
    on_both(lambda d: torch.ones(2, device=d).bool().masked_fill(torch.tensor([True, False], device=d), float("-inf")))
    on_both(
        lambda d: torch.ones(2, dtype=torch.long, device=d).mul_(1.5),
        raises=RuntimeError,
        message="can't be cast to the desired output type",
    )


def test_P_47_scatter_add_with_an_expanded_index(parity: Callable, random_tensor: Callable) -> None:
    parity(
        lambda z, i, s: z.scatter_add(0, i.view(-1, 1).expand(340, 12), s),
        random_tensor(20, 12),
        torch.arange(340) * 7 % 20,
        random_tensor(340, 12),
        grad=True,
        rtol=1e-5,
        atol=1e-4,
    )


def test_P_49_scatter_backward_with_an_index_smaller_than_src(on_both: Callable) -> None:
    def run(device: str) -> list[torch.Tensor]:
        base = torch.zeros(2, 3, device=device, requires_grad=True)
        source = torch.arange(6.0).view(2, 3).to(device).requires_grad_()
        base.scatter(1, torch.tensor([[0, 2]], device=device), source).sum().backward()
        return [base.grad, source.grad]

    try:
        run("cpu")
    except RuntimeError as error:
        on_both(run, raises=RuntimeError, message=str(error).splitlines()[0])
    else:
        on_both(run)


def test_P_51_index_dtypes(parity: Callable, random_tensor: Callable) -> None:
    x = random_tensor(4, 3)
    parity(lambda x: tuple(x.max(0)), x)
    assert x.to(DEVICE).max(0).indices.dtype == x.to(DEVICE).argmin().dtype == torch.int64
    for dtype in (torch.int32, torch.int64):
        index = torch.tensor([3, 0, 3], dtype=dtype)
        parity(lambda x, i: x[i], x, index, grad=True)
        parity(lambda x, i: x.index_select(0, i), x, index, grad=True)
        parity(lambda x, i: F.embedding(i, x), x, index, grad=True)
        parity(lambda x, i: x.gather(0, i.view(1, 3)), x, index)
        parity(lambda x, i: x.scatter_reduce(0, i.view(1, 3), x, "sum"), x, index)
    parity(lambda x, i: x[i], x, torch.tensor([1, 0, 1, 1], dtype=torch.bool), grad=True)


REDUCTIONS = {
    "amax": lambda x, *a, **k: x.amax(*a, **k),
    "amin": lambda x, *a, **k: x.amin(*a, **k),
    "max": lambda x, *a, **k: x.max(*a, **k),
    "min": lambda x, *a, **k: x.min(*a, **k),
    "any": lambda x, *a, **k: x.any(*a, **k),
    "all": lambda x, *a, **k: x.all(*a, **k),
    "prod": lambda x, *a, **k: x.prod(*a, **k),
    "sum": lambda x, *a, **k: x.sum(*a, **k),
    "mean": lambda x, *a, **k: x.mean(*a, **k),
    "argmax": lambda x, *a, **k: x.argmax(*a, **k),
}


def same_outcome(on_both: Callable, function: Callable) -> None:
    """`neuron` gives what cpu gives, be it a result or an exception of the same type."""
    try:
        function("cpu")
    except Exception as error:
        on_both(function, raises=type(error))
    else:
        on_both(function)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32], ids=str)
def test_P_52_reductions(name: str, dtype: torch.dtype, on_both: Callable, random_tensor: Callable) -> None:
    reduce = REDUCTIONS[name]
    for shape in ((3, 4), (), (0, 3), (1,)):
        x = random_tensor(*shape, dtype=dtype)
        same_outcome(on_both, lambda d: reduce(x.to(d)))
        for dim in range(len(shape)):
            same_outcome(on_both, lambda d: reduce(x.to(d), dim))
            same_outcome(on_both, lambda d: reduce(x.to(d), dim, keepdim=True))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8], ids=str)
def test_P_52_scans_truth_of_zero_and_out(dtype: torch.dtype, on_both: Callable, random_tensor: Callable) -> None:
    x = random_tensor(3, 4, dtype=dtype)
    on_both(lambda d: [x.to(d).cumsum(1), x.to(d).cumprod(0), x.to(d).sum((0, 1)), x.to(d).count_nonzero()])
    assert torch.tensor([0.0, -0.0, 2.0], device=DEVICE).bool().tolist() == [False, False, True]
    assert torch.tensor([0.0, 1.0], device=DEVICE).all().item() is False
    assert torch.tensor([0.0, float("nan")], device=DEVICE).any().item() is True

    def out(device: str) -> list[torch.Tensor]:
        target, values = torch.empty(4, dtype=torch.bool, device=device), torch.empty(0, dtype=dtype, device=device)
        torch.all(x.to(device), 0, out=target)
        torch.amax(x.to(device), 0, out=values)
        return [target, values]

    on_both(out)


def test_P_54_more_than_two_to_the_31_elements() -> None:
    n = 2**31 + 8
    t = torch.zeros(n, dtype=torch.uint8, device=DEVICE)
    t[-1] = 7
    t[-3] = 2
    assert t.count_nonzero().item() == 2
    assert t.view(torch.int64).sum().item() == (7 << 56) + (2 << 40)
    assert t.index_select(0, torch.tensor([n - 1, n - 2, n - 3], device=DEVICE)).tolist() == [7, 0, 2]
    assert t[n - 4 :].flip(0).tolist() == [7, 0, 2, 0]
    t[2**31 - 1 : 2**31 + 1].fill_(5)
    assert t[2**31 - 2 : 2**31 + 2].tolist() == [0, 5, 5, 0]
    assert (t[:: 2**31 - 1] + 1).tolist() == [1, 6]
    del t
    torch.neuron.empty_cache()


def test_P_61_item_of_an_empty_tensor_raises() -> None:
    with pytest.raises(RuntimeError):
        torch.ops.aten._local_scalar_dense(torch.empty(0, device=DEVICE))
    with pytest.raises(RuntimeError):
        torch.empty(0, device=DEVICE).item()
    with pytest.raises(RuntimeError, match="a Tensor with 2 elements cannot be converted to Scalar"):
        torch.ones(2, device=DEVICE).item()


def test_P_79_strided_weights(parity: Callable, random_tensor: Callable) -> None:
    tolerance = {"rtol": 1e-4, "atol": 1e-4, "grad": True, "strides": False}
    parity(lambda x, w: F.linear(x, w.t()), random_tensor(5, 4), random_tensor(4, 6), **tolerance)
    parity(
        lambda x, w: F.conv2d(x, w.permute(1, 0, 2, 3)),
        random_tensor(2, 3, 8, 8),
        random_tensor(3, 4, 3, 3),
        **tolerance,
    )
    parity(
        lambda x, w: F.conv2d(x.to(memory_format=torch.channels_last), w[::2], stride=2, padding=1, groups=1),
        random_tensor(2, 3, 8, 8),
        random_tensor(4, 3, 3, 3),
        **tolerance,
    )
    parity(
        lambda x, w: F.conv_transpose2d(x, w.transpose(2, 3)),
        random_tensor(2, 3, 5, 5),
        random_tensor(3, 2, 3, 3),
        **tolerance,
    )


@pytest.mark.parametrize("deterministic", [False, True])
def test_P_81_index_put_accumulates_all(deterministic: bool, parity: Callable, random_tensor: Callable) -> None:
    x, values = random_tensor(3, 4), random_tensor(6)
    i, j = torch.tensor([0, 3, 0, 0, 2, 3]), torch.tensor([1, 2, 1, 1, 0, 2])

    def accumulate(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x.t().index_put_((i, j), v, accumulate=True)
        return x

    torch.use_deterministic_algorithms(deterministic)
    try:
        parity(accumulate, x, i, j, values, grad=True)
        parity(accumulate, x, i, j, torch.tensor(2.0))
        parity(lambda x, i: x.clone().index_put_((i,), x[:1], accumulate=True), x, torch.tensor([2, 2, 0]))
        parity(lambda x: x.clone().index_put_((x > 0,), torch.tensor(1.5, device=x.device), accumulate=True), x)
        parity(lambda x, i: x.clone().index_put_((i[:0],), x[:0], accumulate=True), x, i)
    finally:
        torch.use_deterministic_algorithms(False)


def test_P_82_deterministic_mode(random_tensor: Callable) -> None:
    x, index = random_tensor(1000, 3).to(DEVICE), (torch.arange(1000) * 17 % 13).to(DEVICE)

    def compute() -> list[torch.Tensor]:
        return [
            torch.zeros(13, 3, device=DEVICE).index_add_(0, index, x).cpu(),
            torch.zeros(13, 3, device=DEVICE).scatter_add_(0, index.view(-1, 1).expand(1000, 3), x).cpu(),
            x.cumsum(0).cpu(),
        ]

    torch.use_deterministic_algorithms(True)
    try:
        assert all(torch.equal(a, b) for a, b in zip(compute(), compute()))
        assert torch.empty(5, device=DEVICE).isnan().all().item()
        assert torch.empty_strided((2, 2), (3, 1), device=DEVICE).isnan().all().item()
        assert torch.empty(3, dtype=torch.int32, device=DEVICE).eq(torch.iinfo(torch.int32).max).all().item()
        grown = torch.zeros(2, device=DEVICE).resize_(4)
        assert grown[:2].tolist() == [0, 0] and grown[2:].isnan().all().item()
    finally:
        torch.use_deterministic_algorithms(False)
