"""`torch.neuron.set_sync_debug_mode` finds the calls that make the host wait."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch

SYNCHRONIZING: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "cpu": lambda x: x.cpu(),
    "bool": lambda x: bool(x[0] > 0),
    "nonzero": lambda x: x.nonzero(),
    "stream": lambda x: torch.neuron.current_stream().synchronize(),
}
REPORT = "called a synchronizing neuron operation"


@pytest.fixture(autouse=True)
def default_mode() -> Iterator[None]:
    yield
    torch.neuron.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", SYNCHRONIZING)
def test_waits_are_reported(name: str) -> None:
    x = torch.ones(4, device="neuron")
    torch.neuron.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match=REPORT):
        SYNCHRONIZING[name](x)
    torch.neuron.set_sync_debug_mode(1)
    with pytest.warns(UserWarning, match=REPORT):
        SYNCHRONIZING[name](x)
    torch.neuron.set_sync_debug_mode("default")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SYNCHRONIZING[name](x)
    assert x.tolist() == [1, 1, 1, 1]


def test_a_training_step_does_not_wait() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)).neuron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 4, device="neuron")
    before = model[0].weight.detach().clone()
    torch.neuron.set_sync_debug_mode("error")
    model(x).pow(2).mean().backward()
    optimizer.step()
    torch.neuron.synchronize()
    torch.neuron.current_stream().record_event().synchronize()
    torch.neuron.set_sync_debug_mode("default")
    assert not torch.equal(model[0].weight.detach().cpu(), before.cpu())


def test_modes() -> None:
    for number, name in enumerate(("default", "warn", "error")):
        torch.neuron.set_sync_debug_mode(name)
        assert torch.neuron.get_sync_debug_mode() == number
    for wrong in ("loud", 3, -1):
        with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
            torch.neuron.set_sync_debug_mode(wrong)
    assert torch.neuron.get_sync_debug_mode() == 2
