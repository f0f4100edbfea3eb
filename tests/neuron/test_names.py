"""`torch.neuron` has the names that `torch.cuda` and `torch.xpu` share, and behaves as a device's module."""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch

SHARED = sorted(set(torch.cuda.__all__) & set(torch.xpu.__all__))
# What other parts of PyTorch and the libraries ask of a device's module, by where they ask it.
ASKED = {
    "torch.random": ["_is_in_bad_fork", "manual_seed_all", "device_count", "get_rng_state", "set_rng_state"],
    "torch.utils.checkpoint": ["_initialized", "device", "current_device"],
    "torch.amp": ["get_amp_supported_dtype"],
    "torch.distributed.fsdp": ["current_stream", "Stream", "Event", "stream", "is_initialized", "synchronize"],
    "torch._prims.rng_prims": ["_get_generator", "default_generators"],
    "torch.serialization": ["_utils"],
    "torch.storage": ["_lazy_init"],
    "transformers": ["is_bf16_supported", "is_available", "set_device"],
    "accelerate": ["get_rng_state_all", "set_rng_state_all", "empty_cache", "get_device_name", "mem_get_info"],
    "diffusers": ["reset_peak_memory_stats", "max_memory_allocated", "manual_seed"],
    "torchtitan": ["get_device_properties", "memory_stats", "memory", "memory_summary"],
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_with_cuda_and_xpu(name: str) -> None:
    assert name in torch.neuron.__all__
    ours, theirs = getattr(torch.neuron, name), getattr(torch.cuda, name)
    assert callable(ours) == callable(theirs)
    assert inspect.isclass(ours) == inspect.isclass(theirs) or name in ("Stream", "Event")


@pytest.mark.parametrize("name", [name for name in SHARED if inspect.isfunction(getattr(torch.cuda, name))])
def test_arguments_of_cuda_are_accepted(name: str) -> None:
    theirs = inspect.signature(getattr(torch.cuda, name)).parameters
    ours = inspect.signature(getattr(torch.neuron, name)).parameters
    if name == "can_device_access_peer":  # torch.cuda and torch.xpu disagree on the second name
        theirs = inspect.signature(torch.xpu.can_device_access_peer).parameters
    assert set(theirs) <= set(ours)


@pytest.mark.parametrize("name", torch.neuron.__all__)
def test_public_names_exist_and_are_explained(name: str) -> None:
    value = getattr(torch.neuron, name)
    if name != "default_generators":
        assert inspect.getdoc(value)


def test_exceptions_are_those_of_torch() -> None:
    assert torch.neuron.OutOfMemoryError is torch.OutOfMemoryError
    assert torch.neuron.AcceleratorError is torch.AcceleratorError


def test_deprecated_names_of_cuda() -> None:
    x = torch.ones(1000, device="neuron")
    del x
    for old, new in (("memory_cached", "memory_reserved"), ("max_memory_cached", "max_memory_reserved")):
        with pytest.warns(FutureWarning, match=new):
            assert getattr(torch.neuron, old)() == getattr(torch.neuron, new)() > 0
    for old in ("reset_max_memory_allocated", "reset_max_memory_cached"):
        peak = torch.ones(1 << 20, device="neuron")
        del peak
        assert torch.neuron.max_memory_allocated() > torch.neuron.memory_allocated()
        with pytest.warns(FutureWarning, match="reset_peak_memory_stats"):
            getattr(torch.neuron, old)()
        assert torch.neuron.max_memory_allocated() == torch.neuron.memory_allocated()


def test_ipc_collect_leaves_shared_memory_alone() -> None:
    shared = torch.arange(3, device="neuron").share_memory_()
    torch.neuron.ipc_collect()
    assert shared.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("who", "names"), ASKED.items())
def test_what_is_asked_of_a_device_module(who: str, names: list[str]) -> None:
    assert [name for name in names if not hasattr(torch.neuron, name)] == []


def test_module() -> None:
    assert torch.neuron.__name__.endswith(".neuron")
    assert torch.get_device_module("neuron") is torch.neuron
    assert torch.get_device_module(torch.device("neuron:1")) is torch.neuron
    assert torch.get_device_module() is torch.neuron
    assert importlib.import_module("torch.neuron") is torch.neuron
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = torch.neuron.nonsense


@pytest.mark.parametrize("name", ["amp", "graphs", "memory", "random", "streams"])
def test_submodules_are_importable_once(name: str) -> None:
    assert importlib.import_module(f"torch.neuron.{name}") is getattr(torch.neuron, name)


def test_methods_of_tensors_modules_and_storages() -> None:
    x = torch.arange(3.0)
    assert x.neuron().device == torch.device("neuron:0") and x.neuron(1).device == torch.device("neuron:1")
    assert x.neuron().is_neuron and not x.is_neuron
    assert torch.nn.Linear(1, 1).neuron().weight.is_neuron
    storage = x.untyped_storage().neuron()
    assert storage.is_neuron and storage.device == torch.device("neuron:0") and storage.nbytes() == 12
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(2, 1, 1), torch.tensor([2]))
    assert packed.neuron().is_neuron


def test_profiler_activity_has_the_name() -> None:
    assert torch.profiler.ProfilerActivity.PrivateUse1 == torch.profiler.ProfilerActivity.NEURON


def test_what_an_emulation_cannot_measure_says_so() -> None:
    for name in ("utilization", "memory_usage", "temperature", "power_draw"):
        with pytest.raises(NotImplementedError, match="neuron-monitor"):
            getattr(torch.neuron, name)()
    with pytest.raises(RuntimeError, match="cannot be changed"):
        torch.neuron.change_current_allocator(object())


def test_capabilities() -> None:
    assert torch.neuron.is_bf16_supported() and torch.neuron.is_tf32_supported()
    assert torch.neuron.get_amp_supported_dtype() == [torch.bfloat16, torch.float16]
    assert torch.neuron.get_device_capability() == (3, 0)
    assert torch.neuron.get_arch_list() == ["trn1", "inf2", "trn2", "trn3"]
    assert torch.neuron.clock_rate() == 2400
    assert torch.neuron.can_device_access_peer(0, 1) and not torch.neuron.can_device_access_peer(0, 0)
    with pytest.raises(ValueError):
        torch.neuron.can_device_access_peer(0, 99)
