"""What broke on other young PyTorch devices, section P: random numbers and generators.

What is left out, and where it goes, stands in test_other_devices_tensors.py.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

DEVICE = "neuron"


def test_P_19_generator_must_be_of_the_device() -> None:
    on_host, on_device = torch.Generator().manual_seed(1), torch.Generator(DEVICE).manual_seed(1)
    for draw in (
        lambda: torch.randperm(5, generator=on_host, device=DEVICE),
        lambda: torch.randn(5, generator=on_host, device=DEVICE),
        lambda: torch.multinomial(torch.ones(5, device=DEVICE), 2, generator=on_host),
        lambda: torch.empty(5, device=DEVICE).bernoulli_(generator=on_host),
        lambda: torch.randperm(5, generator=on_device),
        lambda: torch.rand(5, generator=on_device),
        lambda: torch.randint(5, (3,), generator=on_device),
        lambda: torch.empty(5).normal_(generator=on_device),
        lambda: torch.multinomial(torch.ones(5), 2, generator=on_device),
    ):
        with pytest.raises(RuntimeError, match=r"Expected a '?[\w:]+'? (device|generator)"):
            draw()
    assert sorted(torch.randperm(5, generator=on_device, device=DEVICE).tolist()) == [0, 1, 2, 3, 4]
    assert sorted(torch.multinomial(torch.ones(5, device=DEVICE), 5, generator=on_device).tolist()) == [0, 1, 2, 3, 4]


def test_P_19_data_loaders_under_a_default_device() -> None:
    data = TensorDataset(torch.arange(6.0))
    torch.set_default_device(DEVICE)
    try:
        loader = DataLoader(data, batch_size=2, shuffle=True, generator=torch.Generator(DEVICE).manual_seed(2))
        assert sorted(value for (batch,) in loader for value in batch.tolist()) == [0, 1, 2, 3, 4, 5]
        parts = random_split(data, [4, 2], generator=torch.Generator(DEVICE).manual_seed(0))
        assert sorted([*parts[0].indices, *parts[1].indices]) == [0, 1, 2, 3, 4, 5]
    finally:
        torch.set_default_device(None)


RANDOM_OPERATORS = {
    "randint_like": lambda d, g: torch.randint_like(torch.empty(9, device=d), 1000),
    "rand_like": lambda d, g: torch.rand_like(torch.empty(9, device=d)),
    "randn_like": lambda d, g: torch.randn_like(torch.empty(9, device=d)),
    "rand out": lambda d, g: torch.rand(9, out=torch.empty(9, device=d), generator=g),
    "randn": lambda d, g: torch.randn(9, device=d, generator=g),
    "randint": lambda d, g: torch.randint(1000, (9,), device=d, generator=g),
    "randperm": lambda d, g: torch.randperm(50, device=d, generator=g),
    "bernoulli_": lambda d, g: torch.empty(40, device=d).bernoulli_(0.5, generator=g),
    "bernoulli": lambda d, g: torch.full((40,), 0.5, device=d).bernoulli(generator=g),
    "exponential_": lambda d, g: torch.empty(9, device=d).exponential_(2.0, generator=g),
    "geometric_": lambda d, g: torch.empty(40, device=d).geometric_(0.05, generator=g),
    "log_normal_": lambda d, g: torch.empty(9, device=d).log_normal_(0.0, 1.0, generator=g),
    "cauchy_": lambda d, g: torch.empty(9, device=d).cauchy_(0.0, 1.0, generator=g),
    "uniform_": lambda d, g: torch.empty(9, device=d).uniform_(-1, 1, generator=g),
    "normal_": lambda d, g: torch.empty(9, device=d).normal_(0, 1, generator=g),
    "random_": lambda d, g: torch.empty(9, dtype=torch.int64, device=d).random_(generator=g),
    "normal tensors": lambda d, g: torch.normal(torch.zeros(9, device=d), torch.ones(9, device=d), generator=g),
    "multinomial": lambda d, g: torch.multinomial(torch.ones(30, device=d), 20, generator=g),
    "multinomial with replacement": lambda d, g: torch.multinomial(torch.ones(30, device=d), 40, True, generator=g),
    "poisson": lambda d, g: torch.poisson(torch.full((40,), 20.0, device=d), generator=g),
    "dropout": lambda d, g: F.dropout(torch.ones(64, device=d), 0.5),
    "rrelu": lambda d, g: F.rrelu(-torch.ones(9, device=d), training=True),
    "binomial": lambda d, g: torch.binomial(torch.full((40,), 100.0, device=d), torch.full((40,), 0.5, device=d)),
}


@pytest.mark.parametrize("name", RANDOM_OPERATORS)
def test_P_71_random_operators_obey_the_seed(name: str) -> None:
    draw = RANDOM_OPERATORS[name]
    torch.manual_seed(11)
    start = torch.neuron.get_rng_state()
    first, second = draw(DEVICE, None).cpu(), draw(DEVICE, None).cpu()
    assert not torch.equal(first, second)
    assert not torch.equal(torch.neuron.get_rng_state(), start)
    torch.manual_seed(11)
    assert torch.equal(torch.neuron.get_rng_state(), start)
    assert torch.equal(draw(DEVICE, None).cpu(), first)
    after_one = torch.neuron.get_rng_state()
    assert torch.equal(draw(DEVICE, None).cpu(), second)
    torch.neuron.set_rng_state(after_one)
    assert torch.equal(draw(DEVICE, None).cpu(), second)

    before = torch.neuron.get_rng_state()
    generator = torch.Generator(DEVICE).manual_seed(11)
    from_generator = draw(DEVICE, generator).cpu()
    if torch.equal(torch.neuron.get_rng_state(), before):
        assert torch.equal(from_generator, first)


def test_P_71_the_number_of_threads_does_not_matter() -> None:
    draws = []
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        torch.manual_seed(3)
        draws.append([torch.rand(100_000, device=DEVICE).cpu(), torch.randn(100_001, device=DEVICE).cpu()])
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*draws))
