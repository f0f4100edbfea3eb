"""Warnings of kernels on a stream's thread: Python's `warnings` has them at the next call that waits."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

DEVICE = "neuron"
TEXT = "Use of index_fill_ on expanded tensors is deprecated"


def warn_on_the_worker() -> torch.Tensor:
    expanded = torch.ones(1, device=DEVICE).expand(3)
    return expanded.index_fill_(0, torch.tensor([1], device=DEVICE), 3.0)


def caught(function: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function()
    assert all(warning.category is UserWarning for warning in found)
    return [str(warning.message) for warning in found]


WAITS = {
    "synchronize": lambda y: torch.neuron.synchronize(),
    "stream": lambda y: torch.neuron.current_stream().synchronize(),
    "event": lambda y: torch.neuron.current_stream().record_event().synchronize(),
    "item": lambda y: y[0].item(),
    "cpu": lambda y: y.cpu(),
    "fallback": lambda y: y.nonzero(),
}


@pytest.mark.parametrize("way", WAITS)
def test_a_wait_hands_over_the_warnings(way: str, capfd: pytest.CaptureFixture[str]) -> None:
    expected = caught(lambda: torch.ones(1).expand(3).index_fill_(0, torch.tensor([1]), 3.0))
    assert len(expected) == 1 and TEXT in expected[0]
    results: list[torch.Tensor] = []
    assert caught(lambda: results.append(warn_on_the_worker())) == []
    assert caught(lambda: WAITS[way](results[0])) == expected
    assert caught(torch.neuron.synchronize) == []
    assert results[0].tolist() == [3, 3, 3]
    assert TEXT not in capfd.readouterr().err


def test_each_text_is_handed_over_once() -> None:
    for _ in range(5):
        warn_on_the_worker()
    boundaries = torch.arange(8.0, device=DEVICE)[::2]
    torch.set_warn_always(True)
    try:
        torch.searchsorted(boundaries, torch.ones(2, device=DEVICE))
        found = caught(torch.neuron.synchronize)
    finally:
        torch.set_warn_always(False)
    assert len(found) == 2 and TEXT in found[0] and "boundary tensor is non-contiguous" in found[1]


def test_a_warning_is_an_error_where_python_is_told_so() -> None:
    y = warn_on_the_worker()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=TEXT):
            torch.neuron.synchronize()
    assert y.tolist() == [3, 3, 3]


def test_an_error_and_a_warning() -> None:
    warn_on_the_worker()
    torch.ones(4, device=DEVICE).gather(0, torch.tensor([7], device=DEVICE))

    def synchronize() -> None:
        with pytest.raises((IndexError, RuntimeError), match="aten::gather"):
            torch.neuron.synchronize()

    assert [TEXT in text for text in caught(synchronize)] == [True]


@pytest.mark.parametrize("done", [True, False])
def test_a_stream_that_waits_for_another_gets_its_warnings(done: bool) -> None:
    side = torch.neuron.Stream()
    side.wait_stream(torch.neuron.current_stream())
    with torch.neuron.stream(side):
        torch.neuron._sleep(0 if done else 200_000_000)
        y = warn_on_the_worker()
    while done and not side.query():
        pass
    torch.neuron.current_stream().wait_stream(side)
    assert [TEXT in text for text in caught(lambda: y.cpu())] == [True]
    assert caught(torch.neuron.synchronize) == []


@pytest.mark.parametrize("call", ["masked_fill_", "index_put_"])
def test_what_the_host_warns_of_is_not_warned_of_again(call: str) -> None:
    def function() -> None:
        expanded = torch.ones(1, device=DEVICE).expand(3)
        if call == "masked_fill_":
            expanded.masked_fill_(torch.tensor([True, False, True], device=DEVICE), 2.0)
        else:
            expanded.index_put_((torch.tensor([1], device=DEVICE),), torch.ones(1, device=DEVICE))

    assert [f"Use of {call} on expanded tensors" in text for text in caught(function)] == [True]
    assert caught(torch.neuron.synchronize) == []


def test_a_mask_over_an_expanded_tensor_is_refused_as_on_the_cpu() -> None:
    for device in ("cpu", DEVICE):
        mask = torch.tensor([True, False, True], device=device)
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            torch.ones(1, device=device).expand(3).masked_scatter_(mask, torch.ones(3, device=device))
    assert caught(torch.neuron.synchronize) == []


SCRIPT = """
    import torch
    index = torch.tensor([1], device="neuron")
    torch.ones(1, device="neuron").expand(3).index_fill_(0, index, 3.0)
    print("called")
"""


def test_at_the_end_of_the_process(run_script: Callable) -> None:
    result = run_script(SCRIPT)
    assert result.returncode == 0 and f"UserWarning: {TEXT}" in result.stderr


def test_launch_blocking_warns_at_the_call(run_script: Callable) -> None:
    result = run_script(SCRIPT, NEURON_LAUNCH_BLOCKING="1")
    assert f"script.py:4: UserWarning: {TEXT}" in result.stderr
