"""Other processes: fork, spawn, DataLoader workers, and the end of a process."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest


def clean(result) -> None:
    assert (result.returncode, result.stderr) == (0, "")


def test_fork_after_use_gives_a_clear_error(run_script: Callable) -> None:
    result = run_script(
        """
        import os, torch
        x = torch.ones(4, device="neuron")
        torch.neuron.synchronize()
        pid = os.fork()
        if pid == 0:
            code = 1
            assert torch.neuron._is_in_bad_fork() is True
            torch.manual_seed(3)
            uses = [lambda: torch.ones(1, device="neuron"), lambda: x + 1, lambda: x.cpu(), lambda: x.fill_(2)]
            uses += [torch.neuron.synchronize, lambda: torch.neuron.Stream(), lambda: x.sum().item()]
            uses += [lambda: x.copy_(torch.ones(4), non_blocking=True), lambda: x.to("neuron:1"), lambda: x.resize_(9)]
            for use in uses:
                try:
                    use()
                except RuntimeError as error:
                    assert "fork" in str(error) and "spawn" in str(error), error
                else:
                    break
            else:
                code = 0
            assert torch.ones(2).sum().item() == 2
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert torch.neuron._is_in_bad_fork() is False
        assert (x + 1).tolist() == [2, 2, 2, 2]
        """
    )
    clean(result)


def test_fork_before_use_works_on_both_sides(run_script: Callable) -> None:
    result = run_script(
        """
        import os, torch
        torch.manual_seed(1)
        pid = os.fork()
        assert (torch.ones(3, device="neuron") + 1).tolist() == [2, 2, 2]
        if pid == 0:
            torch.neuron.synchronize()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        """
    )
    clean(result)


def test_forked_child_that_leaves_the_device_alone_ends_well(run_script: Callable) -> None:
    result = run_script(
        """
        import multiprocessing, torch
        def child(queue):
            queue.put(torch.ones(3).sum().item())
        if __name__ == "__main__":
            x = torch.ones(1000, 1000, device="neuron")
            for _ in range(10):
                x = x @ x * 1e-3
            context = multiprocessing.get_context("fork")
            queue = context.Queue()
            process = context.Process(target=child, args=(queue,))
            process.start()
            assert queue.get(timeout=60) == 3
            process.join(60)
            assert process.exitcode == 0
            assert x.isfinite().all().item()
        """
    )
    clean(result)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_data_loader_workers(method: str, run_script: Callable) -> None:
    result = run_script(
        f"""
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Squares(Dataset):
            def __len__(self):
                return 32
            def __getitem__(self, i):
                return torch.tensor([float(i * i)]), i
        if __name__ == "__main__":
            weight = torch.ones(1, device="neuron")
            torch.neuron.synchronize()
            for pin in (False, True):
                loader = DataLoader(
                    Squares(), batch_size=4, num_workers=2, pin_memory=pin, multiprocessing_context="{method}"
                )
                total = 0.0
                for x, i in loader:
                    assert x.is_pinned() == pin
                    total += (x.to("neuron", non_blocking=True) * weight).sum().item()
                assert total == sum(i * i for i in range(32))
        """
    )
    clean(result)


def test_spawned_children_use_the_device(run_script: Callable) -> None:
    result = run_script(
        """
        import torch, torch.multiprocessing as mp
        def child(rank, queue):
            torch.neuron.set_device(rank)
            queue.put((rank, (torch.ones(3, device="neuron") * rank).sum().item()))
        if __name__ == "__main__":
            x = torch.ones(2, device="neuron")
            queue = mp.get_context("spawn").SimpleQueue()
            mp.spawn(child, args=(queue,), nprocs=3)
            assert sorted(queue.get() for _ in range(3)) == [(0, 0.0), (1, 3.0), (2, 6.0)]
            assert x.sum().item() == 2
        """
    )
    clean(result)


QUEUED = """
    import torch
    x = torch.ones(1200, 1200, device="neuron")
    for _ in range(30):
        x = x @ x * 1e-3
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("pass", 0),
        ("del x", 0),
        ("torch.neuron.synchronize()", 0),
        ("import os; os._exit(0)", 0),
        ("import os; os._exit(7)", 7),
        ("import sys; sys.exit(5)", 5),
        ("import builtins; builtins.kept = x", 0),
        ("side = torch.neuron.Stream(); torch.neuron.set_stream(side); y = x + 1", 0),
        ("y = x.to('neuron:2', non_blocking=True) + 1", 0),
        ("event = torch.neuron.Event(enable_timing=True); event.record()", 0),
        ("pinned = torch.empty(1200, 1200, pin_memory=True); pinned.copy_(x, non_blocking=True)", 0),
        ("g = torch.accelerator.Graph()\n    with g:\n        y = x + 1\n    g.replay()", 0),
        ("import threading; threading.Thread(target=lambda: [(x + i).sum() for i in range(300)]).start()", 0),
        ("class Late:\n        def __del__(self):\n            (x + 1).sum().item()\n    late = Late()", 0),
        ("import atexit; atexit.register(lambda: print((x * 0 + 1).sum().item()))", 0),
        ("import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); signal.raise_signal(signal.SIGTERM)", 0),
    ],
    ids=[
        "work-queued",
        "deleted",
        "synchronized",
        "os-exit-0",
        "os-exit-7",
        "sys-exit",
        "in-builtins",
        "side-stream",
        "two-devices",
        "event",
        "pinned",
        "graph",
        "thread",
        "destructor",
        "atexit",
        "signal",
    ],
)
def test_the_process_ends_in_silence(ending: str, code: int, run_script: Callable) -> None:
    result = run_script(QUEUED + "\n    " + ending)
    assert (result.returncode, result.stderr) == (code, "")


def test_an_exception_is_all_that_is_printed(run_script: Callable) -> None:
    result = run_script(QUEUED + "\n    raise KeyError('mine')")
    lines = result.stderr.strip().splitlines()
    assert result.returncode == 1
    assert lines[0].startswith("Traceback") and lines[-1] == "KeyError: 'mine'"
    assert len(lines) <= 6, result.stderr


def test_interrupting_a_wait(run_script: Callable) -> None:
    result = run_script(
        """
        import os, signal, threading, torch
        x = torch.eye(1500, device="neuron")
        for _ in range(60):
            x = x @ x
        try:
            threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            torch.neuron.synchronize()
            for _ in range(10**6):
                pass
        except KeyboardInterrupt:
            print("interrupted")
        assert x[0, 0].item() == 1
        """
    )
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "interrupted", "")


def test_interrupting_a_program_that_queues_work(run_script: Callable) -> None:
    result = run_script(
        """
        import os, signal, threading, torch
        x = torch.eye(2000, device="neuron")
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        while True:  # two minutes of work fit into the queue
            x = x @ x
        """,
        timeout=60,
    )
    assert result.returncode == -signal.SIGINT and result.stderr.splitlines()[-1] == "KeyboardInterrupt"


def test_interrupting_the_end_of_a_process(run_script: Callable) -> None:
    result = run_script(
        """
        import os, signal, threading, torch
        x = torch.eye(2000, device="neuron")
        for _ in range(1500):
            x = x @ x
        timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()
        """,
        timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_a_program_may_end_with_backward(run_script: Callable) -> None:
    """The autograd thread still releases Python objects then; without time for it one in twenty aborts."""
    script = """
        import torch
        x = torch.ones(1, device="neuron", requires_grad=True)
        x.register_hook(lambda grad: print(grad.item()))
        (x * 2).backward()
    """
    for _ in range(6):
        result = run_script(script)
        assert (result.returncode, result.stdout, result.stderr) == (0, "2.0\n", "")
