"""Errors that only the worker can see: when they are raised, what they say, and that the device lives on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

DEVICE = "neuron"


def out_of_range() -> torch.Tensor:
    """Queues an embedding lookup past the end of its table; raises nothing itself."""
    table = torch.ones(10, 2, device=DEVICE)
    return torch.nn.functional.embedding(torch.tensor([3, 99], device=DEVICE), table)


SYNCHRONIZERS = {
    "synchronize": lambda y: torch.neuron.synchronize(),
    "accelerator": lambda y: torch.accelerator.synchronize(),
    "stream": lambda y: torch.neuron.current_stream().synchronize(),
    "event": lambda y: torch.neuron.current_stream().record_event().synchronize(),
    "item": lambda y: y.sum().item(),
    "cpu": lambda y: y.cpu(),
    "print": repr,
    "fallback": lambda y: y.nonzero(),
}


@pytest.mark.parametrize("way", SYNCHRONIZERS)
def test_an_error_of_the_worker_is_raised_at_the_next_synchronizing_call(way: str) -> None:
    y = out_of_range()
    later = torch.ones(3, device=DEVICE) + 1
    with pytest.raises((IndexError, RuntimeError), match=r"aten::(embedding|index_select)"):
        SYNCHRONIZERS[way](y)
    torch.neuron.synchronize()
    assert later.tolist() == [2, 2, 2]
    assert (torch.ones(3, device=DEVICE) * 5).tolist() == [5, 5, 5]


def test_the_error_keeps_the_text_of_the_kernel() -> None:
    out_of_range()
    with pytest.raises((IndexError, RuntimeError), match="out of (range|bounds)"):
        torch.neuron.synchronize()


def four() -> torch.Tensor:
    return torch.ones(4, device=DEVICE)


def index(value: int) -> torch.Tensor:
    return torch.tensor([value], device=DEVICE)


OPERATORS = {
    "gather": lambda: four().gather(0, index(7)),
    "index": lambda: four()[index(7)],
    "index_select": lambda: four().index_select(0, index(7)),
    "scatter": lambda: four().scatter_(0, index(9), 1.0),
    "index_add": lambda: four().index_add_(0, index(9), four()[:1]),
    "nll_loss": lambda: torch.nn.functional.nll_loss(four().view(1, 4), index(4)),
    "index_put": lambda: four().index_put_((index(9),), four()[:1]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_the_operator_is_named(name: str) -> None:
    with pytest.raises((IndexError, RuntimeError), match=rf"aten::_?{name}"):
        OPERATORS[name]()
        torch.neuron.synchronize()
    assert torch.ones(2, device=DEVICE).tolist() == [1, 1]


def test_the_first_of_several_errors_is_raised_once() -> None:
    out_of_range()
    torch.ones(4, device=DEVICE).gather(0, torch.tensor([7], device=DEVICE))
    with pytest.raises((IndexError, RuntimeError), match=r"aten::(embedding|index_select)"):
        torch.neuron.synchronize()
    torch.neuron.synchronize()


def test_errors_belong_to_their_stream() -> None:
    side = torch.neuron.Stream()
    table, index = torch.ones(4, device=DEVICE), torch.tensor([7], device=DEVICE)
    side.wait_stream(torch.neuron.current_stream())
    with torch.neuron.stream(side):
        table.gather(0, index)
    assert (torch.ones(2, device=DEVICE) + 1).tolist() == [2, 2]
    torch.neuron.current_stream().synchronize()
    with pytest.raises((IndexError, RuntimeError), match="aten::gather"):
        side.synchronize()
    side.synchronize()
    with torch.neuron.stream(side):
        assert (table + 1).tolist() == [2, 2, 2, 2]


def test_what_the_host_can_check_raises_at_the_call() -> None:
    x = torch.ones(2, 3, device=DEVICE)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        x @ x
    with pytest.raises(RuntimeError, match="must match the size of tensor"):
        x + torch.ones(4, device=DEVICE)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.sum(5)
    torch.neuron.synchronize()


def test_an_error_in_backward() -> None:
    x = torch.ones(4, device=DEVICE, requires_grad=True)
    y = x.gather(0, torch.tensor([7], device=DEVICE)).sum()
    with pytest.raises((IndexError, RuntimeError), match="aten::"):
        y.backward()
        torch.neuron.synchronize()
    try:
        torch.neuron.synchronize()
    except (IndexError, RuntimeError):
        torch.neuron.synchronize()
    assert (x.detach() * 2).tolist() == [2, 2, 2, 2]


BLOCKING = """
    import torch
    table = torch.ones(10, 2, device="neuron")
    index = torch.tensor([99], device="neuron")
    raised_at = None
    try:
        y = table.gather(0, index.view(1, 1))
        raised_at = "later"
        torch.neuron.synchronize()
    except (IndexError, RuntimeError) as error:
        raised_at = raised_at or "call"
        assert "aten::gather" in str(error), error
    print(raised_at)
    assert (table + 1).sum().item() == 40
"""


@pytest.mark.parametrize(("value", "raised_at"), [("1", "call"), ("0", "later"), ("", "later")])
def test_launch_blocking_raises_at_the_call(value: str, raised_at: str, run_script: Callable) -> None:
    result = run_script(BLOCKING, NEURON_LAUNCH_BLOCKING=value)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, raised_at, "")


TRACED = """
    import torch
    def the_guilty_function(table, index):
        return table.gather(0, index)
    table = torch.ones(10, device="neuron")
    the_guilty_function(table, torch.tensor([99], device="neuron"))
    try:
        torch.neuron.synchronize()
    except (IndexError, RuntimeError) as error:
        print(error)
"""


def test_python_stack_on_request(run_script: Callable) -> None:
    with_stack = run_script(TRACED, TORCHNEURON_STACK_TRACE="1")
    assert (with_stack.returncode, with_stack.stderr) == (0, "")
    assert "the_guilty_function" in with_stack.stdout and "script.py" in with_stack.stdout
    without = run_script(TRACED)
    assert "the_guilty_function" not in without.stdout and "aten::gather" in without.stdout


def test_an_error_that_nobody_fetched_does_not_spoil_the_exit(run_script: Callable) -> None:
    result = run_script(
        """
        import torch
        torch.ones(4, device="neuron").gather(0, torch.tensor([7], device="neuron"))
        """
    )
    assert result.returncode == 0
    assert "Traceback" not in result.stderr and "terminate" not in result.stderr
