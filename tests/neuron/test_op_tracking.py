"""`get_executed_ops` and `get_fallback_ops` tell what ran on the device and what had to wait."""

from __future__ import annotations

import torch


def test_executed_ops_are_counted_and_timed() -> None:
    x = torch.ones(256, 256, device="neuron")
    torch.neuron.synchronize()
    torch.neuron.clear_op_tracking()
    assert torch.neuron.get_executed_ops() == {} and torch.neuron.get_fallback_ops() == {}
    for _ in range(3):
        x = x @ x
    x.add_(1)
    torch.neuron.synchronize()
    executed = torch.neuron.get_executed_ops()
    products = [stats for name, stats in executed.items() if name.startswith("aten::mm")]
    assert sum(stats.calls for stats in products) == 3 and 0 < sum(stats.seconds for stats in products) < 10
    assert sum(stats.calls for name, stats in executed.items() if name.startswith("aten::add")) == 1
    assert all(name.startswith("aten::") for name in executed)
    torch.neuron.clear_op_tracking()
    assert torch.neuron.get_executed_ops() == {}


def test_fallbacks_are_told_apart() -> None:
    x = torch.tensor([[2.0, 1.0], [1.0, 3.0]], device="neuron")
    torch.neuron.clear_op_tracking()
    x.unique()
    torch.neuron.synchronize()
    fallbacks = torch.neuron.get_fallback_ops()
    assert any("unique" in name for name in fallbacks) and all(stats.calls > 0 for stats in fallbacks.values())
    assert not any("unique" in name for name in torch.neuron.get_executed_ops())


def test_cpu_operators_are_not_tracked() -> None:
    torch.neuron.clear_op_tracking()
    torch.ones(3).add(1)
    assert torch.neuron.get_executed_ops() == {} and torch.neuron.get_fallback_ops() == {}
