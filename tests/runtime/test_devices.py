"""Several devices in one process: which one is current, what guards it, and copies between them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

DEVICE = "neuron"


def matmul_chain(device: str, length: int = 40) -> None:
    x = torch.eye(1024, device=device)
    for _ in range(length):
        x = x @ x


def test_setting_the_device() -> None:
    assert torch.neuron.current_device() == 0
    for given in (1, "neuron:1", torch.device("neuron", 1)):
        torch.neuron.set_device(given)
        assert torch.neuron.current_device() == torch.accelerator.current_device_index() == 1
        assert torch.ones(1, device=DEVICE).device == torch.device("neuron:1")
        assert torch.ones(1).to(DEVICE).device == torch.device("neuron:1")
        torch.neuron.set_device(0)
    with torch.neuron.device(1):
        with torch.neuron.device("neuron:0"):
            assert torch.neuron.current_device() == 0
        assert torch.neuron.current_device() == 1
    with torch.device("neuron:1"):
        assert torch.ones(1).device == torch.device("neuron:1")
    assert torch.neuron.current_device() == 0
    with torch.neuron.device_of(torch.ones(1, device="neuron:1")):
        assert torch.neuron.current_device() == 1
    with torch.neuron.device_of(torch.ones(1)):
        assert torch.neuron.current_device() == 0


def test_wrong_indices_say_how_many_there_are() -> None:
    count = torch.neuron.device_count()
    for use in (
        lambda: torch.neuron.set_device(count),
        lambda: torch.ones(1, device=f"neuron:{count}"),
        lambda: torch.ones(1).to(f"neuron:{count}"),
        lambda: torch.neuron.Stream(device=count),
        lambda: torch.neuron.memory_allocated(count),
        lambda: torch.neuron.get_device_properties(count),
        lambda: torch.neuron.synchronize(count),
    ):
        with pytest.raises((RuntimeError, ValueError, AssertionError, IndexError), match=str(count)):
            use()
    assert torch.neuron.current_device() == 0
    with pytest.raises((RuntimeError, ValueError)):
        torch.neuron.set_device("cpu")


def test_current_device_is_a_matter_of_the_thread() -> None:
    seen = []
    torch.neuron.set_device(1)
    try:
        thread = threading.Thread(target=lambda: seen.append(torch.neuron.current_device()))
        thread.start()
        thread.join()
    finally:
        torch.neuron.set_device(0)
    assert seen == [0]


def test_operators_run_where_their_tensors_are() -> None:
    x = torch.arange(4.0, device="neuron:1")
    y = (x * 2).sin().sum()
    assert y.device == torch.device("neuron:1") and torch.neuron.current_device() == 0
    torch.testing.assert_close(y.cpu(), (torch.arange(4.0) * 2).sin().sum())
    x.requires_grad_()
    (x * x).sum().backward()
    assert x.grad.device == torch.device("neuron:1") and x.grad.tolist() == [0, 2, 4, 6]
    assert torch.zeros_like(x).device == x.device
    assert x.new_ones(2).device == x.device
    assert torch.randn_like(x).device == x.device


def test_synchronize_of_one_device() -> None:
    matmul_chain("neuron:1")
    x = torch.ones(2, device="neuron:0") + 1
    torch.neuron.synchronize(0)
    assert not torch.neuron.current_stream(1).query()
    assert x.tolist() == [2, 2]
    torch.neuron.synchronize(1)
    assert torch.neuron.current_stream(1).query()


@pytest.mark.parametrize("non_blocking", [False, True])
def test_copies_between_devices(non_blocking: bool) -> None:
    x = torch.arange(24.0).view(2, 3, 4)
    here = x.to("neuron:0")
    there = here.to("neuron:1", non_blocking=non_blocking)
    assert there.device == torch.device("neuron:1") and there.tolist() == x.tolist()
    there.fill_(7)
    assert here.tolist() == x.tolist()
    back = torch.empty(4, 3, 2, dtype=torch.bfloat16, device="neuron:0")
    back.copy_(there.permute(2, 1, 0), non_blocking=non_blocking)
    assert back.eq(7).all().item()
    strided = torch.zeros(2, 6, device="neuron:1")
    strided[:, ::2].copy_(here[0, :2, :3], non_blocking=non_blocking)
    assert strided.tolist() == [[0, 0, 1, 0, 2, 0], [4, 0, 5, 0, 6, 0]]
    assert here.to("neuron:1", torch.int64).sum().item() == x.sum().item()


def test_copies_between_devices_are_ordered_on_both() -> None:
    x = torch.zeros(1 << 16, device="neuron:0")
    y = torch.zeros(1 << 16, device="neuron:1")
    torch.neuron.synchronize(0)
    torch.neuron.synchronize(1)
    matmul_chain("neuron:0")
    x.fill_(3)
    y.copy_(x, non_blocking=True)
    z = y * 2
    x.fill_(100)
    assert z.eq(6).all().item()
    matmul_chain("neuron:1")
    y.fill_(5)
    x.copy_(y, non_blocking=True)
    y.fill_(200)
    assert x.eq(5).all().item() and y.eq(200).all().item()


def test_freed_memory_of_a_copy_between_devices_is_safe() -> None:
    target = torch.zeros(1 << 20, device="neuron:1")
    for value in range(10):
        matmul_chain("neuron:1", 2)
        source = torch.full((1 << 20,), float(value), device="neuron:0")
        target.copy_(source, non_blocking=True)
        del source
        trash = torch.full((1 << 20,), -1.0, device="neuron:0")
        assert target.eq(value).all().item()
        del trash


def test_models_split_over_devices_train() -> None:
    torch.manual_seed(0)
    first, second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
    x = torch.randn(5, 4)
    second(first(x).relu()).square().sum().backward()
    expected = [p.grad.clone() for p in (*first.parameters(), *second.parameters())]
    first.zero_grad()
    second.zero_grad()
    first.to("neuron:0")
    second.to("neuron:1")
    second(first(x.to("neuron:0")).relu().to("neuron:1")).square().sum().backward()
    for got, want in zip((p.grad for p in (*first.parameters(), *second.parameters())), expected):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)


def test_properties() -> None:
    for index in range(torch.neuron.device_count()):
        properties = torch.neuron.get_device_properties(index)
        assert properties.total_memory == 24 * 2**30
        assert properties.is_emulated is True
        assert properties.name == "trn2" and properties.name in torch.neuron.get_device_name(index)
    assert torch.neuron.get_device_properties().total_memory == 24 * 2**30
    assert torch.neuron.device_count() == 4


def test_integers_name_devices(tmp_path) -> None:
    assert torch.ones(1).to(1).device == torch.device("neuron:1")
    assert torch.ones(1, device=0).device == torch.device("neuron:0")
    assert torch.ones(1).neuron().device == torch.device("neuron:0")
    assert torch.ones(1, device=1).is_neuron and not torch.ones(1).is_neuron
    assert torch.nn.Linear(1, 1).neuron().weight.device.type == DEVICE


def test_many_devices_of_a_large_instance_work_on_a_small_host(run_script: Callable) -> None:
    result = run_script(
        """
        import torch
        assert torch.neuron.device_count() == 64
        xs = [torch.full((1000,), float(i), device=f"neuron:{i}") for i in range(64)]
        moved = [(x * 2).to(f"neuron:{(i + 1) % 64}") for i, x in enumerate(xs)]
        assert [m.device.index for m in moved] == [(i + 1) % 64 for i in range(64)]
        assert [m[0].item() for m in moved] == [2.0 * i for i in range(64)]
        big = [torch.empty(20 * 2**30, dtype=torch.uint8, device=f"neuron:{i}") for i in range(64)]
        assert sum(torch.neuron.memory_allocated(i) for i in range(64)) >= 64 * 20 * 2**30
        """,
        TORCHNEURON_INSTANCE="trn2.48xlarge",
    )
    assert (result.returncode, result.stderr) == (0, "")
