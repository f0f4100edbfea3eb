"""Generators of the device: Philox4x32-10 with a 16-byte state, or CPU's own numbers where a port is compared."""

from __future__ import annotations

import struct
import threading

import pytest
import torch
import torch.nn.functional as F

DEVICE = "neuron"


def philox(seed: int, offset: int, subsequence: int = 0) -> list[int]:
    """Four 32-bit words of Philox4x32-10, as Salmon et al. (SC 2011) define it; cuRAND's counter layout."""
    counter = [offset & 0xFFFFFFFF, offset >> 32, subsequence & 0xFFFFFFFF, subsequence >> 32]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (b >> 32) ^ counter[1] ^ key[0],
            b & 0xFFFFFFFF,
            (a >> 32) ^ counter[3] ^ key[1],
            a & 0xFFFFFFFF,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def test_philox_reference_itself() -> None:
    # Known answers of the Random123 library for zero and all-one inputs.
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 2**64 - 1
    assert philox(ones, ones, ones) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def test_state_is_seed_and_offset() -> None:
    torch.neuron.manual_seed(12345)
    state = torch.neuron.get_rng_state()
    assert state.dtype == torch.uint8 and state.shape == (16,) and state.device.type == "cpu"
    assert struct.unpack("<Qq", bytes(state.tolist())) == (12345, 0)
    assert torch.neuron.initial_seed() == 12345
    torch.rand(1000, device=DEVICE)
    seed, offset = struct.unpack("<Qq", bytes(torch.neuron.get_rng_state().tolist()))
    assert seed == 12345 and offset > 0 and offset % 4 == 0
    made = torch.tensor(list(struct.pack("<Qq", 99, 8)), dtype=torch.uint8)
    torch.neuron.set_rng_state(made)
    assert torch.equal(torch.neuron.get_rng_state(), made)
    first = torch.rand(5, device=DEVICE).tolist()
    torch.neuron.set_rng_state(made)
    assert torch.rand(5, device=DEVICE).tolist() == first


def test_uniform_numbers_are_the_words_of_philox() -> None:
    torch.neuron.manual_seed(77)
    first = torch.rand(10, device=DEVICE).tolist()
    assert first == [(philox(77, i // 4)[i % 4] >> 8) / 2**24 for i in range(10)]
    # Ten elements took three blocks of four.
    second = torch.rand(3, 2, device=DEVICE).t().flatten().tolist()
    expected = [(philox(77, 3 + i // 4)[i % 4] >> 8) / 2**24 for i in range(6)]
    assert second == [expected[i] for i in (0, 2, 4, 1, 3, 5)]


def test_states_of_all_devices_and_fork_rng() -> None:
    torch.manual_seed(3)
    states = torch.neuron.get_rng_state_all()
    assert len(states) == torch.neuron.device_count()
    first = [torch.rand(2, device=f"neuron:{i}").tolist() for i in range(2)]
    torch.neuron.set_rng_state_all(states)
    assert [torch.rand(2, device=f"neuron:{i}").tolist() for i in range(2)] == first
    before = torch.neuron.get_rng_state(1)
    with torch.random.fork_rng(devices=[0, 1], device_type=DEVICE):
        torch.manual_seed(9)
        torch.rand(100, device="neuron:1")
    assert torch.equal(torch.neuron.get_rng_state(1), before)
    torch.neuron.seed_all()
    assert torch.neuron.initial_seed() != 3


def test_default_generators() -> None:
    generator = torch.neuron.default_generators[1]
    assert generator.device == torch.device("neuron:1")
    generator.manual_seed(5)
    first = torch.rand(3, device="neuron:1").tolist()
    generator.manual_seed(5)
    assert torch.rand(3, device="neuron:1", generator=generator).tolist() == first
    clone = generator.clone_state() if hasattr(generator, "clone_state") else None
    if clone is not None:
        assert torch.rand(3, device="neuron:1", generator=clone).tolist() == torch.rand(3, device="neuron:1").tolist()
    generator.set_offset(0)
    assert generator.get_offset() == 0
    assert torch.rand(3, device="neuron:1").tolist() == first


@pytest.mark.parametrize("offset", [-4, 2, 3])
def test_an_offset_is_a_multiple_of_4(offset: int) -> None:
    generator = torch.Generator(DEVICE)
    generator.set_offset(8)
    with pytest.raises(RuntimeError, match=f"multiple of 4, 0 or more, but got {offset}"):
        generator.set_offset(offset)
    with pytest.raises(RuntimeError, match=f"multiple of 4, 0 or more, but got {offset}"):
        generator.set_state(torch.tensor(list(struct.pack("<Qq", 1, offset)), dtype=torch.uint8))
    assert generator.get_offset() == 8


@pytest.mark.parametrize("default", [True, False])
def test_a_state_of_another_kind_is_refused(default: bool) -> None:
    generator = torch.neuron.default_generators[0] if default else torch.Generator(DEVICE)
    state = generator.get_state()
    for wrong in (torch.Generator("cpu").get_state(), torch.zeros(17, dtype=torch.uint8)):
        with pytest.raises(RuntimeError, match=f"wrong size: expected 16 bytes .* but got {wrong.numel()}"):
            generator.set_state(wrong)
    assert generator.get_state().equal(state)


def test_the_state_of_a_generator_that_matches_the_cpu() -> None:
    with torch.neuron.match_cpu_random():
        generator = torch.Generator(DEVICE).manual_seed(5)
        state = generator.get_state()
        expected = torch.rand(4, generator=torch.Generator("cpu").manual_seed(5)).tolist()
        for _ in range(2):
            assert torch.rand(4, device=DEVICE, generator=generator).tolist() == expected
            generator.set_state(state)


def test_a_capture_draws_from_the_default_generator_only() -> None:
    generator = torch.Generator(DEVICE)
    refusal = pytest.raises(RuntimeError, match="default generator .* register_generator_state")
    with torch.neuron.graph(torch.neuron.NeuronGraph()), refusal:
        torch.rand(4, device=DEVICE, generator=generator)


def test_streams_and_threads_do_not_change_the_numbers() -> None:
    torch.manual_seed(1)
    expected = [torch.randn(1000, device=DEVICE).cpu() for _ in range(4)]
    torch.manual_seed(1)
    actual: list[torch.Tensor] = []
    for i in range(4):
        with torch.neuron.stream(torch.neuron.Stream()):
            if i % 2:
                thread = threading.Thread(target=lambda: actual.append(torch.randn(1000, device=DEVICE).cpu()))
                thread.start()
                thread.join()
            else:
                actual.append(torch.randn(1000, device=DEVICE).cpu())
    assert all(torch.equal(a, b) for a, b in zip(actual, expected))


def test_distributions() -> None:
    torch.manual_seed(0)
    n = 200_000
    uniform = torch.rand(n, device=DEVICE)
    assert uniform.min().item() >= 0 and uniform.max().item() < 1
    histogram = torch.histc(uniform, 10, 0, 1)
    assert histogram.min().item() > 0.97 * n / 10 and histogram.max().item() < 1.03 * n / 10
    normal = torch.randn(n, device=DEVICE)
    assert abs(normal.mean().item()) < 0.01 and abs(normal.std().item() - 1) < 0.01
    assert abs((normal**4).mean().item() - 3) < 0.1
    pairs = torch.corrcoef(torch.stack([normal[:-1], normal[1:]]))
    assert abs(pairs[0, 1].item()) < 0.01
    assert abs(torch.bernoulli(torch.full((n,), 0.3, device=DEVICE)).mean().item() - 0.3) < 0.01
    assert abs(torch.empty(n, device=DEVICE).exponential_(2).mean().item() - 0.5) < 0.01
    dice = torch.randint(1, 7, (n,), device=DEVICE)
    counts = torch.bincount(dice, minlength=7)
    assert counts[0].item() == 0 and counts[1:].min().item() > 0.95 * n / 6
    permutation = torch.randperm(1000, device=DEVICE)
    assert sorted(permutation.tolist()) == list(range(1000))
    kept = F.dropout(torch.ones(n, device=DEVICE), 0.1)
    assert abs(kept.ne(0).float().mean().item() - 0.9) < 0.01 and kept.max().item() == pytest.approx(1 / 0.9)
    weights = torch.tensor([0.1, 0.0, 0.6, 0.3], device=DEVICE)
    drawn = torch.bincount(torch.multinomial(weights, n, replacement=True), minlength=4) / n
    torch.testing.assert_close(drawn.cpu(), weights.cpu(), atol=0.01, rtol=0)


DRAWS = {
    "rand": lambda d: torch.rand(1001, device=d),
    "rand small": lambda d: torch.rand(3, device=d),
    "rand f64": lambda d: torch.rand(33, dtype=torch.float64, device=d),
    "rand bf16": lambda d: torch.rand(33, dtype=torch.bfloat16, device=d),
    "randn": lambda d: torch.randn(1001, device=d),
    "randn small": lambda d: torch.randn(5, device=d),
    "randn strided": lambda d: torch.empty(40, 3, device=d).t().normal_(),
    "normal": lambda d: torch.empty(100, device=d).normal_(2, 3),
    "uniform": lambda d: torch.empty(100, device=d).uniform_(-2, 3),
    "bernoulli": lambda d: torch.full((100,), 0.3, device=d).bernoulli(),
    "bernoulli_": lambda d: torch.empty(1000, device=d).bernoulli_(0.3),
    "randint": lambda d: torch.randint(5, 90, (100,), device=d),
    "randperm": lambda d: torch.randperm(100, device=d),
    "exponential": lambda d: torch.empty(100, device=d).exponential_(),
    "multinomial": lambda d: torch.multinomial(torch.ones(20, device=d), 10),
    "dropout": lambda d: F.dropout(torch.ones(1000, device=d), 0.2),
    "dropout2d": lambda d: F.dropout2d(torch.ones(4, 8, 3, 3, device=d), 0.5),
    "alpha": lambda d: F.alpha_dropout(torch.ones(100, device=d), 0.2),
    "gumbel": lambda d: F.gumbel_softmax(torch.zeros(10, 4, device=d)),
    "rrelu": lambda d: F.rrelu(-torch.ones(50, device=d), training=True),
    "log_normal": lambda d: torch.empty(50, device=d).log_normal_(),
    "geometric": lambda d: torch.empty(50, device=d).geometric_(0.2),
    "cauchy": lambda d: torch.empty(50, device=d).cauchy_(),
    "poisson": lambda d: torch.poisson(torch.full((50,), 4.0, device=d)),
    "init": lambda d: torch.nn.init.trunc_normal_(torch.empty(50, device=d), std=0.02),
}


def test_match_cpu_random_draws_what_cpu_draws() -> None:
    with torch.neuron.match_cpu_random():
        for name, draw in DRAWS.items():
            torch.manual_seed(123)
            expected = [draw("cpu"), draw("cpu")]
            torch.manual_seed(123)
            actual = [draw(DEVICE), draw(DEVICE)]
            for got, want in zip(actual, expected):
                torch.testing.assert_close(got.cpu(), want, msg=lambda text: f"{name}: {text}")


def test_match_cpu_random_ends_with_its_block() -> None:
    torch.manual_seed(4)
    philox_numbers = torch.rand(10, device=DEVICE).tolist()
    with torch.neuron.match_cpu_random():
        torch.manual_seed(4)
        assert torch.rand(10, device=DEVICE).tolist() != philox_numbers
    torch.manual_seed(4)
    assert torch.rand(10, device=DEVICE).tolist() == philox_numbers
