"""Seeds and states of the devices' generators, as PyTorch and the libraries handle them."""

from __future__ import annotations

import pytest
import torch


def draw(device: str = "neuron") -> list[float]:
    return torch.rand(4, device=device).tolist()


def test_seeds() -> None:
    torch.neuron.manual_seed(5)
    first = draw()
    torch.neuron.manual_seed_all(5)
    assert draw() == first and draw("neuron:1") == first
    torch.manual_seed(5)
    assert draw() == first and torch.neuron.initial_seed() == 5
    seed = torch.neuron.seed()
    assert torch.neuron.initial_seed() == seed != 5
    torch.neuron.seed_all()
    assert len({generator.initial_seed() for generator in torch.neuron.default_generators}) == 1
    with torch.neuron.device(1):
        torch.neuron.manual_seed(6)
        assert torch.neuron.initial_seed() == 6
    assert torch.neuron.initial_seed() != 6


def test_state_is_seed_and_offset() -> None:
    torch.neuron.manual_seed(0x0102030405060708)
    state = torch.neuron.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu"
    assert state.tolist() == [8, 7, 6, 5, 4, 3, 2, 1] + [0] * 8
    torch.rand(5, device="neuron")
    assert torch.neuron.get_rng_state()[:8].equal(state[:8])
    assert torch.neuron.get_rng_state()[8:].view(torch.int64).item() == torch.neuron._get_rng_state_offset() > 0


def test_states_of_one_device() -> None:
    state = torch.neuron.get_rng_state("neuron:1")
    expected = draw("neuron:1")
    torch.neuron.set_rng_state(state, 1)
    assert draw("neuron:1") == expected
    torch.neuron.set_rng_state(state, torch.device("neuron:1"))
    assert draw("neuron:1") == expected
    torch.neuron._set_rng_state_offset(0, "neuron:1")
    assert torch.neuron._get_rng_state_offset(1) == 0
    with pytest.raises(ValueError, match="neuron"):
        torch.neuron.get_rng_state("cpu")


def test_states_of_all_devices() -> None:
    states = torch.neuron.get_rng_state_all()
    assert len(states) == torch.neuron.device_count()
    expected = [draw(f"neuron:{index}") for index in range(2)]
    torch.neuron.set_rng_state_all(states)
    assert [draw(f"neuron:{index}") for index in range(2)] == expected


def test_default_generators() -> None:
    generators = torch.neuron.default_generators
    assert len(generators) == torch.neuron.device_count()
    assert [generator.device for generator in generators] == [torch.device("neuron", i) for i in range(len(generators))]
    assert torch.neuron._get_generator(torch.device("neuron:1")) is generators[1]
    assert torch.neuron._get_generator(torch.device("neuron")) is generators[0]
    generators[0].manual_seed(3)
    first = draw()
    torch.neuron.manual_seed(3)
    assert draw() == first


def test_fork_rng() -> None:
    torch.manual_seed(1)
    with torch.random.fork_rng(devices=[0, 1]):
        expected = torch.rand(3).tolist(), draw(), draw("neuron:1")
    assert (torch.rand(3).tolist(), draw(), draw("neuron:1")) == expected
    with torch.random.fork_rng(devices=range(torch.neuron.device_count()), device_type="neuron"):
        expected = draw()
    assert draw() == expected


def test_matching_the_cpu_as_function_and_context() -> None:
    torch.manual_seed(9)
    expected = torch.rand(10).tolist()

    def drawn() -> list[float]:
        torch.manual_seed(9)
        return torch.rand(10, device="neuron").tolist()

    assert drawn() != expected
    with torch.neuron.match_cpu_random():
        assert drawn() == expected
        with torch.neuron.match_cpu_random(False):
            assert drawn() != expected
        assert drawn() == expected
    assert drawn() != expected
    torch.neuron.match_cpu_random()
    try:
        assert drawn() == expected
    finally:
        torch.neuron.match_cpu_random(False)
    assert drawn() != expected
