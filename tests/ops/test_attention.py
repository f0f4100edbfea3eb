"""Scaled dot-product attention: CPU's values, strides and gradients, by its flash kernel or by the composite."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, assert_same, compare, compare_errors, launches_only
from dispatched import dispatched
from gradients import with_gradients
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"


def heads(
    batch: int = 2, q_heads: int = 4, kv_heads: int = 4, q_len: int = 5, kv_len: int = 5, dim: int = 16,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    generator = torch.Generator().manual_seed(7)
    sizes = ((batch, q_heads, q_len, dim), (batch, kv_heads, kv_len, dim), (batch, kv_heads, kv_len, dim))
    query, key, value = (torch.randn(size, generator=generator).to(dtype) for size in sizes)
    return query, key, value


def attend(**kwargs: Any) -> Callable[..., Tensor]:
    def function(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = mask if mask is None else mask.detach()
        return F.scaled_dot_product_attention(query, key, value, mask, **kwargs)

    return function


def check(function: Callable[..., Any], *inputs: Any, tolerance: float = 1e-5) -> None:
    """Compares with the CPU, and the kernel that was taken: flash on both or on neither."""
    torch.neuron.clear_op_tracking()
    compare(lambda *a: with_gradients(function, *a), *inputs, rtol=tolerance, atol=tolerance)
    taken = FLASH in torch.neuron.get_executed_ops()
    assert taken == any("flash_attention_for_cpu" in name for name in dispatched(function, *inputs))


MASKS: dict[str, Callable[[int, int], Tensor | None]] = {
    "none": lambda q, k: None,
    "bool": lambda q, k: torch.rand(q, k) > 0.3,
    "bool_of_heads": lambda q, k: torch.rand(2, 4, q, k) > 0.3,
    "bool_broadcast": lambda q, k: torch.rand(2, 1, 1, k) > 0.3,
    "bool_expanded": lambda q, k: (torch.rand(2, 4, q, 1) > 0.3).expand(2, 4, q, k),
    "float": lambda q, k: torch.randn(q, k),
    "float_broadcast": lambda q, k: torch.randn(1, 4, q, 1),
    "float_of_heads": lambda q, k: torch.randn(2, 4, q, k),
    "three_dimensional": lambda q, k: torch.randn(4, q, k),
    "masked_rows": lambda q, k: torch.arange(q)[:, None].expand(q, k) > 1,
    "all_masked": lambda q, k: torch.zeros(q, k, dtype=torch.bool),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("q_len, kv_len", [(5, 5), (3, 9), (40, 7), (1, 33)])
def test_masks_P_26(mask: str, q_len: int, kv_len: int) -> None:
    """gh:pytorch/pytorch#162989, #124271: attention of other devices missed their kernel, or took other masks."""
    torch.manual_seed(0)
    check(attend(), *heads(q_len=q_len, kv_len=kv_len), MASKS[mask](q_len, kv_len))


def test_fully_masked_rows_are_zero() -> None:
    query, key, value = (x.to(DEVICE) for x in heads())
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2] = False
    assert attend()(query, key, value, mask.to(DEVICE))[:, :, 2].eq(0).all()


@pytest.mark.parametrize("dim", [1, 7, 40, 80, 129, 256])
def test_head_dims(dim: int) -> None:
    check(attend(), *heads(dim=dim), tolerance=2e-5)
    check(attend(is_causal=True), *heads(dim=dim, q_len=6, kv_len=9), tolerance=2e-5)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
def test_dtypes(dtype: torch.dtype, tolerance: float) -> None:
    check(attend(), *heads(dtype=dtype), tolerance=tolerance)
    check(attend(), *heads(dtype=dtype), torch.randn(5, 5).to(dtype), tolerance=tolerance)
    check(attend(), *heads(dtype=dtype), torch.rand(5, 5) > 0.2, tolerance=tolerance)
    compare(attend(), *heads(dtype=dtype), torch.randn(5, 5), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scale", [None, 0.5, -0.25])
@pytest.mark.parametrize("causal", [False, True])
def test_scale_and_causality(causal: bool, scale: float | None) -> None:
    check(attend(is_causal=causal, scale=scale), *heads(q_len=6, kv_len=8))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_queries(kv_heads: int, causal: bool) -> None:
    check(attend(enable_gqa=True, is_causal=causal), *heads(kv_heads=kv_heads))
    check(attend(enable_gqa=True), *heads(kv_heads=kv_heads), torch.rand(5, 5) > 0.2)


def test_other_numbers_of_dimensions() -> None:
    query, key, value = heads()
    check(attend(), query[0], key[0], value[0])
    check(attend(), query[0, 0], key[0, 0], value[0, 0])
    check(attend(is_causal=True), *(x[None] for x in (query, key, value)))
    check(attend(), query[0], key[0], value[0], torch.rand(5, 5) > 0.2)
    check(attend(), query, key, value[..., :8])
    check(attend(), query, key[:1], value[:1])
    check(attend(), query[:, :, :0], key, value)


def test_any_strides() -> None:
    query, key, value = heads()
    swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (query, key, value)]
    check(attend(), *swapped)
    check(attend(), swapped[0], key, value)
    packed = torch.randn(2, 5, 3, 4, 16)
    check(lambda p: attend(is_causal=True)(*p.permute(2, 0, 3, 1, 4)), packed)
    check(attend(), *(x.mT.contiguous().mT for x in (query, key, value)))


def test_mask_and_causality_together_P_27() -> None:
    """gh:pytorch/pytorch#187801: the device does what the CPU of the same PyTorch does."""
    arguments = (*heads(), torch.rand(5, 5) > 0.2)
    function = attend(is_causal=True)
    try:
        function(*arguments)
    except RuntimeError:
        compare_errors(function, *arguments)
    else:
        check(function, *arguments)


def test_mask_that_needs_gradients() -> None:
    arguments = (*heads(), torch.randn(5, 5))
    compare(lambda *a: with_gradients(F.scaled_dot_product_attention, *a), *arguments, rtol=1e-5, atol=1e-5)


def test_dropout_goes_through_the_composite() -> None:
    query, key, value = (x.to(DEVICE).requires_grad_() for x in heads(q_len=64, kv_len=64))
    torch.manual_seed(3)
    torch.neuron.clear_op_tracking()
    dropped = F.scaled_dot_product_attention(query, key, value, dropout_p=0.5)
    assert FLASH not in torch.neuron.get_executed_ops()
    dropped.sum().backward()
    torch.manual_seed(3)
    assert torch.equal(F.scaled_dot_product_attention(query, key, value, dropout_p=0.5), dropped)
    undropped = F.scaled_dot_product_attention(query, key, value)
    assert not torch.allclose(dropped, undropped)
    many = torch.stack([F.scaled_dot_product_attention(query, key, value, dropout_p=0.5) for _ in range(200)])
    torch.testing.assert_close(many.mean(0), undropped, rtol=0, atol=0.25)


@pytest.mark.parametrize("backends", list(itertools.chain(*(itertools.combinations(
    [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION], n) for n in (1, 2)))))  # fmt: skip
def test_chosen_backends(backends: tuple[SDPBackend, ...]) -> None:
    arguments = heads()

    def function(*a: Any) -> Tensor:
        with sdpa_kernel(list(backends)):
            return attend()(*a)

    try:
        function(*arguments)
    except RuntimeError:
        compare_errors(function, *arguments)
    else:
        check(function, *arguments)


def test_functorch() -> None:
    query, key, value = heads()
    compare(torch.func.vmap(attend()), *(torch.stack([x, x.sin()]) for x in (query, key, value)), rtol=1e-5, atol=1e-5,
            strides=False)  # fmt: skip
    compare(
        torch.func.grad(lambda q, k, v: attend()(q, k, v).cos().sum(), argnums=(0, 1, 2)), query, key, value,
        rtol=1e-5, atol=1e-5,
    )  # fmt: skip


def test_operators() -> None:
    aten = torch.ops.aten
    query, key, value = heads()
    compare(aten._scaled_dot_product_flash_attention_for_cpu, query, key, value, rtol=1e-5, atol=1e-5)
    assert torch._fused_sdp_choice(*(x.to(DEVICE) for x in heads())) == torch._fused_sdp_choice(*heads())
    mask = torch.ones(5, 1, dtype=torch.bool).expand(5, 5)
    assert torch._fused_sdp_choice(*(x.to(DEVICE) for x in heads()), mask.to(DEVICE)) == 1


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("kind", ["none", "bool", "float", "padding"])
def test_multihead_attention_T_14(kind: str, need_weights: bool) -> None:
    """A public porting project: the backward pass of nn.MultiheadAttention with a mask failed."""
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(64, 4, batch_first=True)
    x = torch.randn(2, 6, 64)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(6)
    kwargs: dict[str, Any] = {
        "none": {},
        "bool": {"attn_mask": causal.isinf()},
        "float": {"attn_mask": causal},
        "padding": {"key_padding_mask": torch.tensor([[False] * 6, [False] * 4 + [True] * 2])},
    }[kind]
    results = []
    for device in ("cpu", DEVICE):
        m, y = module.to(device), x.clone().to(device).detach().requires_grad_()
        m.zero_grad()
        out, weights = m(y, y, y, need_weights=need_weights, **{k: v.to(device) for k, v in kwargs.items()})
        out.sum().backward()
        results.append(([out.detach(), weights], [y.grad, *(p.grad.clone() for p in m.parameters())]))
    assert_same(results[1], results[0], rtol=1e-4, atol=1e-5, strides=False)


def test_transformer_trains_with_launches_only() -> None:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).to(DEVICE)
    x = torch.randn(2, 6, 32).to(DEVICE)
    with launches_only():
        layer(
            x, is_causal=True, src_mask=torch.nn.Transformer.generate_square_subsequent_mask(6, DEVICE)
        ).sum().backward()


def masks(kind: str) -> dict[str, Tensor]:
    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[1, 4:] = True
    blocked = torch.ones(6, 6, dtype=torch.bool).triu(1)
    return {"none": {}, "padding": {"src_key_padding_mask": padding}, "rows": {"src_mask": blocked},
            "both": {"src_mask": blocked, "src_key_padding_mask": padding}}[kind]  # fmt: skip


@pytest.mark.parametrize("kind", ["none", "padding", "rows", "both"])
@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu"}])
def test_fused_encoder_layer(kind: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, **options).eval()
    x = torch.randn(3, 6, 16)
    for inputs in (x, x.transpose(0, 1).contiguous().transpose(0, 1)):
        with torch.no_grad():
            expected = layer.cpu()(inputs, **masks(kind))
            layer.to(DEVICE)
            on_device = {name: mask.to(DEVICE) for name, mask in masks(kind).items()}
            with launches_only():
                found = layer(inputs.to(DEVICE), **on_device)
            assert "aten._transformer_encoder_layer_fwd.default" in dispatched(layer, inputs.to(DEVICE))
        assert_same(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("average", [True, False])
def test_fused_multihead_attention(average: bool) -> None:
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    query, memory = torch.randn(3, 6, 16), torch.randn(3, 6, 16)
    blocked = torch.ones(6, 6, dtype=torch.bool).triu(1)

    def both(q: Tensor, m: Tensor, mask: Tensor) -> list[Any]:
        attention.to(q.device)
        with torch.no_grad():
            return [attention(q, q, q, attn_mask=mask, average_attn_weights=average), attention(q, m, m)]

    compare(both, query, memory, blocked, rtol=1e-4, atol=1e-5)


def test_operators_of_the_fused_layers() -> None:
    scores = torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    mask = scores.clone().gt(0.5)
    aten = torch.ops.aten
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        compare(lambda s, m: aten._masked_softmax(s, m, 3, 2), scores.to(dtype), mask)
        compare(lambda s, m: aten._masked_softmax(s, m[0, 0], 3, 0), scores.to(dtype), mask)
        compare(lambda s, m: aten._masked_softmax(s, m[:, 0, 0], 3, 1), scores.to(dtype), mask)
        compare(lambda s, m: aten._masked_softmax(s, m, 1), scores.to(dtype), mask)
        compare(lambda s, m: aten._masked_softmax(s.mT, m.mT, None, 2), scores.to(dtype), mask)
        compare(
            lambda s, b: aten._transform_bias_rescale_qkv(s, b, 2),
            torch.randn(3, 5, 24).to(dtype),
            torch.randn(24).to(dtype),
        )
    compare(
        lambda s, m: with_gradients(lambda s: aten._masked_softmax(s, m, 3, 2), s), scores, mask, rtol=1e-5, atol=1e-6
    )
    compare_errors(lambda s, m: aten._masked_softmax(s, m.float(), 3, 2), scores, mask)
    compare_errors(lambda s, m: aten._masked_softmax(s, m[:1], 3, 2), scores, mask)
    compare_errors(lambda s: aten._transform_bias_rescale_qkv(s, s[0, 0], 5), torch.randn(3, 5, 24))


@pytest.mark.parametrize(
    "call",
    [
        lambda q, k, v: attend()(q, k.double(), v),
        lambda q, k, v: attend()(q[0, 0, 0], k, v),
        lambda q, k, v: attend()(q, k, v, torch.ones(5, 5, dtype=torch.int64).to(q.device)),
        lambda q, k, v: attend()(q, k, v, torch.ones(4, 5).to(q.device)),
        lambda q, k, v: attend(enable_gqa=True)(q, k[:, :3], v[:, :3]),
        lambda q, k, v: attend()(q, k[..., :4], v),
        lambda q, k, v: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.5),
        lambda q, k, v: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q[0], k[0], v[0]),
        lambda q, k, v: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q.long(), k.long(), v.long()),
        lambda q, k, v: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=v[0, 0, :4, :5]),
    ],
)
def test_errors(call: Callable[..., Any]) -> None:
    compare_errors(call, *heads())
