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


def fail_on(stream: torch.neuron.Stream, table: torch.Tensor, *, late: bool) -> torch.Tensor:
    """Queues a gather past the end of `table` on `stream`; `late` puts work before it, so that waits find it undone."""
    wrong = torch.tensor([7], device=table.device)
    stream.wait_stream(torch.neuron.current_stream(table.device))
    with torch.neuron.stream(stream):
        if late:
            matrix = torch.eye(1024, device=table.device)
            for _ in range(20):
                matrix = matrix @ matrix
        result = table.gather(0, wrong)
    if not late:
        while not stream.query():
            pass
    return result


WAITS = {
    "wait_stream": lambda side: torch.neuron.current_stream().wait_stream(side),
    "wait_event": lambda side: torch.neuron.current_stream().wait_event(side.record_event()),
    "event": lambda side: side.record_event().wait(),
    "transitive": lambda side: wait_through_another(side),
}


def wait_through_another(side: torch.neuron.Stream) -> None:
    between = torch.neuron.Stream()
    between.wait_stream(side)
    torch.neuron.current_stream().wait_stream(between)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("way", WAITS)
def test_a_stream_that_waits_for_another_gets_its_error_once(way: str, late: bool) -> None:
    side = torch.neuron.Stream()
    y = fail_on(side, four(), late=late)
    WAITS[way](side)
    doubled = y * 2
    with pytest.raises((IndexError, RuntimeError), match=f"aten::gather on neuron:0, stream {side.stream_id}"):
        doubled.sum().item()
    torch.neuron.synchronize()
    side.synchronize()
    with torch.neuron.stream(side):
        assert (four() + 1).tolist() == [2, 2, 2, 2]
    assert (four() * 5).tolist() == [5, 5, 5, 5]


def test_an_error_that_was_seen_does_not_hide_the_next() -> None:
    side = torch.neuron.Stream()
    fail_on(side, four(), late=False)
    torch.neuron.current_stream().wait_stream(side)
    with pytest.raises((IndexError, RuntimeError), match="aten::gather"):
        side.synchronize()
    four().index_select(0, index(7))
    with pytest.raises((IndexError, RuntimeError), match="aten::index_select"):
        torch.neuron.current_stream().synchronize()
    torch.neuron.synchronize()


@pytest.mark.parametrize("way", ["item", "cpu", "synchronize"])
def test_an_error_follows_the_data_to_another_device(way: str) -> None:
    x = torch.arange(4.0, device="neuron:0")
    moved = x[torch.tensor([99], device="neuron:0")].to("neuron:1")
    with pytest.raises((IndexError, RuntimeError), match="aten::index.* on neuron:0, stream 0"):
        torch.neuron.synchronize(1) if way == "synchronize" else SYNCHRONIZERS[way](moved)
    for device in (0, 1):
        torch.neuron.synchronize(device)
    assert (x.to("neuron:1") + 1).tolist() == [1, 2, 3, 4]


INTERRUPTED = """
    import os, signal, torch
    def interrupt(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGALRM, interrupt)
    x = torch.eye(1024, device="neuron")
    def launch(times):
        global x
        for _ in range(times):
            x = x @ x
    launch(1000)
    done = torch.neuron.current_stream().record_event()
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        {wait}
    except KeyboardInterrupt:
        print(done.query(), flush=True)
    os._exit(0)  # without waiting for what is queued
"""
INTERRUPTIBLE = {
    "synchronize": "torch.neuron.synchronize()",
    "accelerator": "torch.accelerator.synchronize()",
    "item": "x.sum().item()",
    "event": "done.synchronize()",
    "launches into a full queue": "launch(10_000)",
}


@pytest.mark.parametrize("way", INTERRUPTIBLE)
def test_a_signal_ends_a_wait(way: str, run_script: Callable) -> None:
    result = run_script(INTERRUPTED.format(wait=INTERRUPTIBLE[way]))
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "False", "")


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
