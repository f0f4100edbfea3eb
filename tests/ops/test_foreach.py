"""_foreach_* on lists: the results of CPU's loops, in one launch where the lists allow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import DEVICE, assert_same, compare, compare_errors, to_device
from torch import Tensor

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SIZES: list[tuple[int, ...]] = [(3, 4), (5,), (), (2, 3, 2, 2), (0, 3)]

UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round "
    "rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()


def tensors(dtype: torch.dtype = torch.float32, seed: int = 0, low: float = 0.1, high: float = 0.9) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.rand(size, generator=generator) * (high - low) + low for size in SIZES]
    made[3] = made[3].to(memory_format=torch.channels_last)
    if not dtype.is_floating_point:
        made = [t * 10 for t in made]
    return [t.to(dtype) for t in made]


def executed() -> dict[str, int]:
    return {name: stats.calls for name, stats in torch.neuron.get_executed_ops().items()}


def check_form(name: str, *args: Any, one_launch: bool = True, **kwargs: Any) -> None:
    """Compares _foreach_name and _foreach_name_ with the CPU's."""
    compare(getattr(torch, f"_foreach_{name}"), *args, **kwargs)
    if hasattr(torch, f"_foreach_{name}_"):
        compare(lambda self, *rest, **kw: getattr(torch, f"_foreach_{name}_")(self, *rest, **kw), *args, **kwargs)
    device_args, device_kwargs = to_device((args, kwargs))
    torch.neuron.clear_op_tracking()
    getattr(torch, f"_foreach_{name}")(*device_args, **device_kwargs)
    calls = executed()
    assert (sum(calls.values()) == 1 and next(iter(calls)).startswith(f"aten::_foreach_{name}")) == one_launch, calls


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", FLOATS)
def test_unary(name: str, dtype: torch.dtype) -> None:
    check_form(name, tensors(dtype))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_binary(name: str, dtype: torch.dtype) -> None:
    alpha = {"alpha": 0.7} if name in ("add", "sub") else {}
    check_form(name, tensors(dtype), tensors(dtype, 1))
    check_form(name, tensors(dtype), tensors(dtype, 1), **alpha)
    check_form(name, tensors(dtype), 0.3)
    check_form(name, tensors(dtype), 2)
    check_form(name, tensors(dtype), [0.1, 2, 0.3, 1.5, 7])


@pytest.mark.parametrize("name", ["add", "mul", "div"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_single_tensor_for_all(name: str, dtype: torch.dtype) -> None:
    # Without alpha, Python's arguments of add fit the overload for a number, which reads the tensor.
    for alpha in ({"alpha": 1}, {"alpha": 2}) if name == "add" else ({},):
        check_form(name, tensors(dtype), torch.tensor(0.3, dtype=dtype), **alpha)
    # The tensor may stay on the CPU.
    for self, other in ((tensors(dtype), torch.tensor(0.3, dtype=dtype)),):
        expected = getattr(torch, f"_foreach_{name}")(self, other)
        assert_same(getattr(torch, f"_foreach_{name}")(to_device(self), other), expected)


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_addcmul_and_addcdiv(name: str, dtype: torch.dtype) -> None:
    lists = [tensors(dtype, seed) for seed in range(3)]
    check_form(name, *lists, 0.3)
    check_form(name, *lists)
    check_form(name, *lists, value=2)
    check_form(name, *lists, [0.1, 2, 0.3, 1.5, 7])
    scalars = torch.tensor([0.1, 2, 0.3, 1.5, 7])
    for suffix in ("", "_"):
        function = getattr(torch, f"_foreach_{name}{suffix}")
        cpu, device = [[t.clone() for t in ts] for ts in lists], to_device(lists)
        assert_same((function(*device, scalars), device), (function(*cpu, scalars), cpu))


@pytest.mark.parametrize("dtype", FLOATS)
def test_lerp(dtype: torch.dtype) -> None:
    lists = [tensors(dtype, seed) for seed in range(3)]
    check_form("lerp", *lists)
    check_form("lerp", *lists[:2], 0.3)
    check_form("lerp", *lists[:2], [0.1, 0.2, 0.6, 0.9, 0.5])


def test_pow_of_a_scalar() -> None:
    compare(torch._foreach_pow, 0.9, tensors())
    compare(torch._foreach_pow, 2, tensors(torch.int64))


@pytest.mark.parametrize("ord", [0, 1, 2, 3.5, float("inf")])
@pytest.mark.parametrize("dtype", FLOATS)
def test_norm(ord: float, dtype: torch.dtype) -> None:
    filled = [t for t in tensors(dtype) if t.numel()]
    check_form("norm", filled, ord)
    if dtype is torch.bfloat16:
        check_form("norm", filled, ord, dtype=torch.float32)


def test_max_zero_clone_copy() -> None:
    filled = [t for t in tensors() if t.numel()]
    check_form("max", filled)
    compare(torch._foreach_zero_, tensors())
    compare(torch._foreach_copy_, tensors(), tensors(seed=1))
    compare(torch._foreach_copy_, tensors(), tensors(torch.bfloat16, 1))
    if hasattr(torch, "_foreach_clone"):
        compare(torch._foreach_clone, tensors())


def test_copy_between_devices() -> None:
    source = tensors()
    target = [torch.empty_like(t, device=DEVICE) for t in source]
    torch._foreach_copy_(target, source)
    assert_same(target, source)
    back = [torch.empty_like(t) for t in source]
    torch._foreach_copy_(back, target)
    assert_same(back, source)


@pytest.mark.parametrize(
    "function, args",
    [
        (torch._foreach_add, (tensors(torch.int64), 1)),
        (torch._foreach_add, (tensors(torch.int64), 1.5)),
        (torch._foreach_add, (tensors(torch.float32), tensors(torch.float64, 1))),
        (torch._foreach_add, (tensors(torch.float32), 1j)),
        (torch._foreach_div, (tensors(torch.int32), tensors(torch.int32, 1))),
        (torch._foreach_mul, (tensors(torch.bool), tensors(torch.bool, 1))),
        (torch._foreach_mul, (tensors(torch.bfloat16), torch.tensor(0.3, dtype=torch.float64))),
        (torch._foreach_sqrt, (tensors(torch.int64),)),
        (torch._foreach_abs, ([torch.tensor([3 + 4j])],)),
        (torch._foreach_lerp, (tensors(), tensors(seed=1), 0.25)),
        (torch._foreach_add, ([torch.ones(3, 1)], [torch.ones(1, 4)])),
        (torch._foreach_add, ([torch.ones(2), torch.ones(2, dtype=torch.float64)], 1)),
        (torch._foreach_mul, ([torch.rand(4, 4).t()], [torch.rand(4, 4)])),
        (torch._foreach_norm, ([torch.ones(3, dtype=torch.complex64)],)),
    ],
)
def test_lists_that_need_promotion_or_broadcasting(function: Callable[..., object], args: tuple[Any, ...]) -> None:
    compare(function, *args)


@pytest.mark.parametrize(
    "function",
    [
        lambda ts: torch._foreach_add([], 1),
        lambda ts: torch._foreach_add(ts, ts[:2]),
        lambda ts: torch._foreach_add(ts, [1, 2]),
        lambda ts: torch._foreach_addcmul(ts, ts, ts[:1]),
        lambda ts: torch._foreach_addcmul(ts, ts, ts, torch.ones(2)),
        lambda ts: torch._foreach_add_([t.long() for t in ts], 1.5),
        lambda ts: torch._foreach_add(ts, [t.view(-1)[:3] for t in ts]),
        lambda ts: torch._foreach_mul(ts, torch.ones(3, device=ts[0].device)),
    ],
)
def test_errors_are_those_of_the_cpu(function: Callable[[list[Tensor]], object]) -> None:
    compare_errors(function, [torch.rand(2, 4), torch.rand(3, 3), torch.rand(5)])


def test_autograd_through_a_list() -> None:
    def gradients(ts: list[Tensor]) -> tuple[Tensor, ...]:
        leaves = [t.detach().requires_grad_() for t in ts]
        results = torch._foreach_mul(torch._foreach_exp(leaves), torch._foreach_add(leaves, 2.0))
        return torch.autograd.grad(sum(t.sum() for t in results), leaves)

    compare(gradients, tensors(), rtol=1e-6)


def test_clip_grad_norm_is_a_few_launches() -> None:
    parameters = [torch.nn.Parameter(t) for t in tensors() if t.numel()]
    for p in parameters:
        p.grad = torch.full_like(p, 3.0)
    device = [torch.nn.Parameter(p.detach().to(DEVICE)) for p in parameters]
    for p, q in zip(device, parameters):
        p.grad = q.grad.to(DEVICE)
    expected = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    torch.neuron.clear_op_tracking()
    actual = torch.nn.utils.clip_grad_norm_(device, 1.0)
    assert not torch.neuron.get_fallback_ops()
    assert sum(executed().values()) <= 10
    assert_same(actual, expected, rtol=1e-6)
    assert_same([p.grad for p in device], [p.grad for p in parameters], rtol=1e-6)
