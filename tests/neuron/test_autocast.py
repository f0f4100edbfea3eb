"""torch.autocast("neuron") casts as CUDA's does: the lists are those of PyTorch's own autocast tests."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.autocast_test_lists import AutocastTestLists

LOWER = ("torch_fp16", "nn_fp16", "linalg_fp16", "methods_fp16")
FLOAT32 = ("torch_fp32", "nn_fp32", "methods_fp32")
WIDEST = ("torch_need_autocast_promote", "torch_expect_builtin_promote", "methods_expect_builtin_promote")


@functools.cache
def lists() -> AutocastTestLists:
    torch.manual_seed(0)
    return AutocastTestLists("neuron")


def cases(names: tuple[str, ...]) -> Iterator[Any]:
    # The arguments are made on the CPU here only to name the cases, at collection.
    torch.manual_seed(0)
    on_cpu = AutocastTestLists("cpu")
    for name in names:
        for index, (operator, *_) in enumerate(getattr(on_cpu, name)):
            # einsum's row lacks what its equation needs, so PyTorch's tests do not run it either; cuDNN is CUDA's.
            if operator not in ("cudnn_convolution", "cudnn_convolution_transpose", "einsum", "__div__"):
                yield pytest.param(name, index, id=f"{name}-{index}-{operator}")


def run(name: str, index: int, dtype: torch.dtype) -> Any:
    result = called(name, index, dtype)
    torch.neuron.synchronize()
    return result


def called(name: str, index: int, dtype: torch.dtype) -> Any:
    operator, arguments, *rest = getattr(lists(), name)[index]
    keywords = rest[0] if rest and isinstance(rest[0], dict) else {}
    with torch.autocast("neuron", dtype):
        if name.startswith("methods"):
            return getattr(arguments[0], operator)(*arguments[1:], **keywords)
        if name.startswith("nn"):
            return getattr(torch._C._nn, operator)(*arguments, **keywords)
        if name.startswith("linalg"):
            return getattr(torch.linalg, operator.removeprefix("linalg_"))(*arguments, **keywords)
        return getattr(torch, operator)(*arguments, **keywords)


def dtype_of(result: Any) -> torch.dtype:
    return (result[0] if isinstance(result, tuple | list) else result).dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "index"), list(cases(LOWER)))
def test_lower_precision(name: str, index: int, dtype: torch.dtype) -> None:
    assert dtype_of(run(name, index, dtype)) == dtype


@pytest.mark.parametrize(("name", "index"), list(cases(FLOAT32)))
def test_float32(name: str, index: int) -> None:
    assert dtype_of(run(name, index, torch.float16)) == torch.float32


@pytest.mark.parametrize(("name", "index"), list(cases(WIDEST)))
def test_widest(name: str, index: int) -> None:
    row = getattr(lists(), name)[index]
    expected = row[2] if len(row) > 2 else torch.float32
    result = run(name, index, torch.float16)
    if isinstance(result, bool):  # torch.equal
        return
    assert dtype_of(result) == expected


def test_banned() -> None:
    for operator, arguments, module in lists().banned:
        with torch.autocast("neuron"), pytest.raises(RuntimeError, match="unsafe to autocast"):
            getattr(module, operator)(*arguments)


def test_values_are_those_of_casts_by_hand() -> None:
    x, w = torch.randn(5, 7, device="neuron"), torch.randn(7, 3, device="neuron")
    with torch.autocast("neuron", torch.bfloat16):
        y = x @ w
        z = y.softmax(-1)
    expected = x.bfloat16() @ w.bfloat16()
    assert torch.equal(y, expected)
    assert torch.equal(z, expected.float().softmax(-1)) and z.dtype == torch.float32


def test_attention_is_lower_precision() -> None:
    q = torch.randn(1, 2, 4, 8, device="neuron")
    with torch.autocast("neuron", torch.bfloat16):
        assert torch.nn.functional.scaled_dot_product_attention(q, q, q).dtype == torch.bfloat16


def test_recurrent_cells_are_lower_precision() -> None:
    for cell in (torch.nn.LSTMCell(4, 4), torch.nn.GRUCell(4, 4)):
        with torch.autocast("neuron", torch.bfloat16):
            assert dtype_of(cell.neuron()(torch.randn(2, 4, device="neuron"))) == torch.bfloat16


def test_state_nests_per_device() -> None:
    x = torch.ones(2, 2, device="neuron")
    assert not torch.is_autocast_enabled("neuron")
    with torch.autocast("neuron", torch.bfloat16):
        with torch.autocast("cpu", torch.bfloat16, enabled=False), torch.autocast("cuda", enabled=False):
            assert torch.is_autocast_enabled("neuron") and (x @ x).dtype == torch.bfloat16
        with torch.autocast("neuron", enabled=False):
            assert (x @ x).dtype == torch.float32
            with torch.autocast("neuron", torch.float16):
                assert (x @ x).dtype == torch.float16
        assert torch.get_autocast_dtype("neuron") == torch.bfloat16
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert not torch.is_autocast_enabled("neuron") and (x @ x).dtype == torch.float32


def test_unsupported_dtype_warns_and_disables() -> None:
    x = torch.ones(2, 2, device="neuron")
    with pytest.warns(UserWarning, match="neuron Autocast only supports"), torch.autocast("neuron", torch.float64):
        assert (x @ x).dtype == torch.float32


def test_gradients_have_the_parameters_dtype() -> None:
    model = torch.nn.Linear(4, 4).neuron()
    with torch.autocast("neuron", torch.bfloat16):
        loss = model(torch.ones(2, 4, device="neuron")).sum()
    loss.backward()
    assert model.weight.grad is not None and model.weight.grad.dtype == torch.float32
    assert model.weight.grad.eq(2).all().item()


def test_amp_module() -> None:
    x = torch.ones(2, 2, device="neuron")
    with torch.neuron.amp.autocast(dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
    with torch.neuron.amp.autocast(enabled=False):
        assert (x @ x).dtype == torch.float32
    assert torch.neuron.amp.GradScaler(init_scale=4.0).scale(x).eq(4).all().item()

    seen: list[torch.dtype] = []

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.neuron.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
            seen.append(value.dtype)
            assert not torch.is_autocast_enabled("neuron")
            return value * 2

        @staticmethod
        @torch.neuron.amp.custom_bwd
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    y = torch.ones(2, dtype=torch.float16, device="neuron", requires_grad=True)
    with torch.autocast("neuron", torch.float16):
        Double.apply(y).sum().backward()
    assert seen == [torch.float32] and y.grad is not None and y.grad.eq(2).all().item()
