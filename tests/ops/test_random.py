"""Random operators: the numbers themselves (Philox4x32-10), their distributions, and CPU's own numbers on request."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import torch
from comparison import DEVICE, compare_errors, launches_only
from torch import Tensor

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
M32, M64 = 2**32 - 1, 2**64 - 1


def philox(seed: int, low: int, high: int) -> list[int]:
    """The four words of Philox4x32-10 for key `seed` and counter (low, high), as Salmon et al. (SC 2011) define it."""
    c = [low & M32, low >> 32, high & M32, high >> 32]
    k = [seed & M32, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & M32, (a >> 32) ^ c[3] ^ k[1], a & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def word(seed: int, offset: int, element: int, k: int = 0) -> int:
    """The k-th word of an operator's element."""
    return philox(seed, (offset + element) // 4, k)[(offset + element) % 4]


@pytest.fixture(params=[False, True], ids=["contiguous", "transposed"])
def transposed(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(autouse=True)
def numbers_of_the_device() -> Iterator[None]:
    with torch.neuron.match_cpu_random(False):
        yield


def seeded(seed: int, offset: int = 0) -> torch.Generator:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    generator.set_offset(offset)
    return generator


def offset_of(generator: torch.Generator) -> int:
    return struct.unpack("<Qq", bytes(generator.get_state().tolist()))[1]


# In-place draws, each called with `generator`.
DRAWS: dict[str, Callable[..., Tensor]] = {
    "random_": Tensor.random_,
    "random_to": lambda t, generator: t.random_(100, generator=generator),
    "random_from_to": lambda t, generator: t.random_(10, 90, generator=generator),
    "geometric_": lambda t, generator: t.geometric_(0.3, generator=generator),
    "bernoulli_": lambda t, generator: t.bernoulli_(0.3, generator=generator),
    "bernoulli_p": lambda t, generator: t.bernoulli_(
        torch.linspace(0, 1, t.numel(), device=t.device).view(t.shape), generator=generator
    ),
}
FLOAT_DRAWS: dict[str, Callable[..., Tensor]] = {
    "uniform_": lambda t, generator: t.uniform_(-2, 3, generator=generator),
    "normal_": lambda t, generator: t.normal_(1, 2, generator=generator),
    "exponential_": lambda t, generator: t.exponential_(1.5, generator=generator),
    "log_normal_": lambda t, generator: t.log_normal_(0.5, 0.25, generator=generator),
    "cauchy_": lambda t, generator: t.cauchy_(1, 2, generator=generator),
}


def test_known_answers_of_the_reference() -> None:
    # kat_vectors of the Random123 library, philox 4x32 10.
    assert philox(0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox(M64, M64, M64) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    digits_of_pi = philox(0x299F31D0A4093822, 0x85A308D3243F6A88, 0x0370734413198A2E)
    assert digits_of_pi == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@pytest.mark.parametrize("seed, offset", [(0, 0), (1, 4), (0x299F31D0A4093822, 0x1234567890), (M64, 2**40)])
def test_full_range_integers_are_two_words(seed: int, offset: int) -> None:
    numbers = torch.empty(150, dtype=torch.int64, device=DEVICE).random_(-(2**63), None, generator=seeded(seed, offset))
    words = [word(seed, offset, i) << 32 | word(seed, offset, i, 1) for i in range(150)]
    assert [n & M64 for n in numbers.tolist()] == words


def test_the_carry_of_the_counter() -> None:
    offset = 4 * (2**32 - 3)  # the low word of the counter overflows at element 12
    numbers = torch.rand(40, device=DEVICE, generator=seeded(7, offset))
    assert numbers.tolist() == [(word(7, offset, i) >> 8) / 2**24 for i in range(40)]


def test_bernoulli_and_small_ranges_take_one_word() -> None:
    kept = torch.empty(1000, dtype=torch.bool, device=DEVICE).bernoulli_(0.3, generator=seeded(3))
    assert kept.tolist() == [word(3, 0, i) < int(0.3 * 2**32) for i in range(1000)]
    numbers = torch.randint(-5, 1000, (1000,), device=DEVICE, generator=seeded(3))
    assert numbers.tolist() == [(word(3, 0, i) * 1005 >> 32) - 5 for i in range(1000)]


def test_normal_is_the_polar_form_of_two_words() -> None:
    numbers = torch.randn(4000, device=DEVICE, generator=seeded(11)).cpu()
    for i in range(0, 4000, 2):
        radius = math.sqrt(-2 * math.log(((word(11, 0, i) >> 1) + 0.5) / 2**31))
        angle = 2 * math.pi * word(11, 0, i + 1) / 2**32
        # fp32: a value of up to 7 with a few roundings of 2^-24 each
        assert abs(numbers[i] - radius * math.cos(angle)) < 3e-6
        assert abs(numbers[i + 1] - radius * math.sin(angle)) < 3e-6


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [torch.bool])
def test_values_and_offset_do_not_depend_on_strides_or_threads(name: str, dtype: torch.dtype) -> None:
    if dtype is torch.bool and name in ("random_to", "random_from_to", "geometric_"):
        return
    check_strides_threads_and_offset(DRAWS[name], dtype)


@pytest.mark.parametrize("name", FLOAT_DRAWS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_do_not_depend_on_strides_or_threads(name: str, dtype: torch.dtype) -> None:
    check_strides_threads_and_offset(FLOAT_DRAWS[name], dtype)


def check_strides_threads_and_offset(draw: Callable[..., Tensor], dtype: torch.dtype) -> None:
    rows, columns = 301, 127
    generator = seeded(5, 8)
    with launches_only():
        plain = draw(torch.empty(rows, columns, dtype=dtype, device=DEVICE), generator=generator)
    assert offset_of(generator) == 8 + (rows * columns + 3) // 4 * 4
    transposed = draw(torch.empty(columns, rows, dtype=dtype, device=DEVICE).t(), generator=seeded(5, 8))
    strided = draw(torch.empty(rows, 2 * columns, dtype=dtype, device=DEVICE)[:, ::2], generator=seeded(5, 8))
    assert torch.equal(plain, transposed) and torch.equal(plain, strided)
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    try:
        assert torch.equal(plain, draw(torch.empty(rows, columns, dtype=dtype, device=DEVICE), generator=seeded(5, 8)))
    finally:
        torch.set_num_threads(threads)
    assert not torch.equal(plain, draw(torch.empty(rows, columns, dtype=dtype, device=DEVICE), generator=seeded(6, 8)))


@pytest.mark.parametrize("name", FLOAT_DRAWS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_shards_drawn_at_their_offsets_are_the_whole(name: str, dtype: torch.dtype) -> None:
    """What DTensor's offset tracker relies on: a shard is drawn at the offset of its first element."""
    whole = FLOAT_DRAWS[name](torch.empty(8, 100, dtype=dtype, device=DEVICE), generator=seeded(2, 40))
    shards = [
        FLOAT_DRAWS[name](torch.empty(2, 100, dtype=dtype, device=DEVICE), generator=seeded(2, 40 + 200 * i))
        for i in range(4)
    ]
    assert torch.equal(whole, torch.cat(shards))


def moments(sample: Tensor, mean: float, variance: float, fourth: float) -> None:
    """Mean and variance within 5 standard errors; `fourth` is the fourth central moment."""
    n = sample.numel()
    x = sample.double().cpu()
    assert abs(x.mean().item() - mean) < 5 * math.sqrt(variance / n)
    assert abs(x.var().item() - variance) < 5 * math.sqrt((fourth - variance**2) / n)


def kolmogorov_smirnov(sample: Tensor, cdf: Callable[[Tensor], Tensor]) -> None:
    """The distance to `cdf` is below the value that a right sampler exceeds once in a million: sqrt(ln(2e6) / 2n)."""
    x = sample.double().cpu().sort().values
    n = x.numel()
    expected = cdf(x)
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    distance = torch.maximum((expected - steps[:-1]).abs().max(), (expected - steps[1:]).abs().max()).item()
    assert distance < math.sqrt(math.log(2e6) / (2 * n))


N = 400_000


@pytest.mark.parametrize("dtype", FLOATS)
def test_distributions_of_floats(dtype: torch.dtype) -> None:
    def new() -> Tensor:
        return torch.empty(N, dtype=dtype, device=DEVICE)

    generator = seeded(2024)
    uniform = new().uniform_(generator=generator)
    normal = new().normal_(generator=generator)
    exponential = new().exponential_(2, generator=generator)
    assert uniform.min().item() >= 0 and uniform.max().item() < 1
    assert exponential.min().item() > 0
    if dtype in (torch.float32, torch.float64):
        moments(uniform, 1 / 2, 1 / 12, 1 / 80)
        moments(normal, 0, 1, 3)
        moments(exponential, 1 / 2, 1 / 4, 9 / 16)
        kolmogorov_smirnov(uniform, lambda x: x)
        kolmogorov_smirnov(normal, lambda x: torch.special.ndtr(x))
        kolmogorov_smirnov(exponential, lambda x: 1 - torch.exp(-2 * x))
        kolmogorov_smirnov(
            new().log_normal_(0.5, 0.25, generator=generator), lambda x: torch.special.ndtr((x.log() - 0.5) / 0.25)
        )
        kolmogorov_smirnov(new().cauchy_(1, 2, generator=generator), lambda x: 0.5 + torch.atan((x - 1) / 2) / math.pi)
    else:
        # Rounding to 8 or 11 digits adds a variance that is small beside the bound used here.
        assert abs(uniform.double().mean().item() - 0.5) < 0.004
        assert abs(normal.double().mean().item()) < 0.008 and abs(normal.double().var().item() - 1) < 0.012
        assert abs(exponential.double().mean().item() - 0.5) < 0.004


def test_neighbours_are_not_correlated() -> None:
    x = torch.randn(N, dtype=torch.float64, device=DEVICE, generator=seeded(1)).cpu()
    for lag in (1, 2, 3, 4, 64, 1024):
        # The mean of n products of independent standard normals has standard deviation 1 / sqrt(n).
        assert abs((x[lag:] * x[:-lag]).mean().item()) < 5 / math.sqrt(N - lag)


@pytest.mark.parametrize("low, high", [(0, 10), (-3, 4), (0, 1000), (-(2**40), 2**40), (0, 3 * 2**61)])
def test_integers_are_uniform(low: int, high: int) -> None:
    numbers = torch.randint(low, high, (N,), device=DEVICE, generator=seeded(9)).cpu()
    assert numbers.min().item() >= low and numbers.max().item() < high
    cells = min(high - low, 64)
    counts = torch.bincount(
        ((numbers.double() - low) / (high - low) * cells).long().clamp(max=cells - 1), minlength=cells
    )
    # Cell i holds the integers from ceil(i * range / cells) on, not equally many in all.
    starts = [-(-i * (high - low) // cells) for i in range(cells + 1)]
    expected = torch.tensor([N * (b - a) / (high - low) for a, b in pairwise(starts)], dtype=torch.float64)
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    # Mean k, variance 2k for k degrees of freedom.
    assert chi_square < (cells - 1) + 6 * math.sqrt(2 * (cells - 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_bernoulli_and_geometric_frequencies(dtype: torch.dtype) -> None:
    p = 0.3
    kept = torch.empty(N, dtype=dtype, device=DEVICE).bernoulli_(p, generator=seeded(4))
    assert abs(kept.double().mean().item() - p) < 5 * math.sqrt(p * (1 - p) / N)
    by_tensor = torch.bernoulli(torch.full((N,), p, device=DEVICE), generator=seeded(4))
    assert abs(by_tensor.mean(dtype=torch.float64).item() - p) < 5 * math.sqrt(p * (1 - p) / N)
    assert torch.empty(1000, dtype=dtype, device=DEVICE).bernoulli_(1.0).all()
    assert not torch.empty(1000, dtype=dtype, device=DEVICE).bernoulli_(0.0).any()
    if dtype is not torch.bool:
        waits = torch.empty(N, dtype=dtype, device=DEVICE).geometric_(p, generator=seeded(4))
        assert waits.min().item() == 1
        assert abs(waits.double().mean().item() - 1 / p) < 6 * math.sqrt((1 - p) / p**2 / N) + 0.01 * (
            dtype is torch.bfloat16
        )


def test_samplers_of_other_distributions() -> None:
    generator = seeded(33)
    with launches_only():
        small = torch.poisson(torch.full((N,), 2.5, device=DEVICE), generator=generator)
        large = torch.poisson(torch.full((N,), 60.0, device=DEVICE), generator=generator)
        gamma = torch._standard_gamma(torch.full((N,), 3.0, dtype=torch.float64, device=DEVICE), generator=generator)
        flat = torch._standard_gamma(torch.full((N,), 0.5, dtype=torch.float64, device=DEVICE), generator=generator)
        few = torch.binomial(
            torch.full((N,), 10.0, device=DEVICE), torch.full((N,), 0.2, device=DEVICE), generator=generator
        )
        many = torch.binomial(
            torch.full((N,), 200.0, device=DEVICE), torch.full((N,), 0.6, device=DEVICE), generator=generator
        )
        shares = torch._sample_dirichlet(torch.tensor([1.0, 2.0, 5.0], device=DEVICE).expand(N, 3), generator=generator)
    moments(small, 2.5, 2.5, 2.5 + 3 * 2.5**2)
    moments(large, 60, 60, 60 + 3 * 60**2)
    moments(gamma, 3, 3, 3 * 3**2 + 6 * 3)
    moments(flat, 0.5, 0.5, 3 * 0.5**2 + 6 * 0.5)
    kolmogorov_smirnov(gamma, lambda x: torch.special.gammainc(torch.tensor(3.0, dtype=torch.float64), x))
    for sample, count, p in ((few, 10, 0.2), (many, 200, 0.6)):
        variance = count * p * (1 - p)
        moments(sample, count * p, variance, variance * (1 + 3 * (count - 2) * p * (1 - p)))
    assert torch.allclose(shares.sum(-1), torch.ones(N, device=DEVICE))
    # Dirichlet: mean a / 8, variance a (8 - a) / (64 * 9) for the concentrations a with sum 8.
    for column, a in enumerate((1, 2, 5)):
        assert abs(shares[:, column].mean().item() - a / 8) < 5 * math.sqrt(a * (8 - a) / (64 * 9 * N)) + 1e-6


def test_randperm() -> None:
    for n in (0, 1, 2, 1000, 100_003):
        with launches_only():
            permutation = torch.randperm(n, device=DEVICE)
        assert permutation.sort().values.tolist() == list(range(n))
    first = torch.stack([torch.randperm(5, device=DEVICE)[0] for _ in range(5000)]).cpu()
    counts = torch.bincount(first, minlength=5)
    # Five cells of 1000, standard deviation sqrt(5000 * 0.2 * 0.8) = 28.
    assert (counts - 1000).abs().max().item() < 5 * 28.3
    assert torch.randperm(300, dtype=torch.int32, device=DEVICE).dtype == torch.int32
    out = torch.empty(0, dtype=torch.int64, device=DEVICE)
    assert (
        torch.randperm(10, out=out, generator=seeded(1)).tolist()
        == torch.randperm(10, device=DEVICE, generator=seeded(1)).tolist()
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("samples, replacement", [(1, False), (3, False), (1, True), (4000, True)])
def test_multinomial(dtype: torch.dtype, samples: int, replacement: bool) -> None:
    weights = torch.tensor([[1.0, 0.0, 3.0, 4.0, 0.0], [2.0, 2.0, 0.0, 0.0, 4.0]], dtype=dtype)
    rows = 2000 if samples < 10 else 1
    with launches_only():
        drawn = torch.multinomial(weights.repeat(rows, 1).to(DEVICE), samples, replacement, generator=seeded(8))
    assert drawn.shape == (2 * rows, samples) and drawn.dtype == torch.int64
    drawn = drawn.cpu().view(rows, 2, samples)
    for row in range(2):
        if not replacement and samples == 3:
            # There are three categories of positive weight, so all are drawn.
            assert (drawn[:, row].sort(-1).values == weights[row].nonzero().flatten()).all()
            continue
        n = rows * samples
        frequency = torch.bincount(drawn[:, row].flatten(), minlength=5).double() / n
        p = weights[row].double() / 8
        assert ((frequency - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all()
    one = torch.multinomial(weights[0].to(DEVICE), 2, generator=seeded(1))
    assert one.shape == (2,)


def test_normal_with_tensor_parameters() -> None:
    mean = torch.linspace(-5, 5, N, device=DEVICE)
    std = torch.linspace(0.5, 2, N, device=DEVICE)
    with launches_only():
        a = torch.normal(mean, std, generator=seeded(1))
        b = torch.normal(mean, 2.0, generator=seeded(1))
        c = torch.normal(3.0, std, generator=seeded(1))
        d = torch.normal(3.0, 2.0, (N,), generator=seeded(1), device=DEVICE)
        e = torch.normal(mean, std, generator=seeded(1), out=torch.empty(0, device=DEVICE))
    for sample in ((a - mean) / std, (b - mean) / 2, (c - 3) / std, (d - 3) / 2):
        moments(sample, 0, 1, 3)
    assert torch.equal(a, e)


def test_complex_uniform_and_normal() -> None:
    numbers = torch.randn(N, dtype=torch.complex64, device=DEVICE, generator=seeded(5))
    # Real and imaginary part have half the variance each.
    moments(torch.view_as_real(numbers) * math.sqrt(2), 0, 1, 3)
    uniform = torch.rand(N, dtype=torch.complex64, device=DEVICE, generator=seeded(5))
    moments(torch.view_as_real(uniform), 1 / 2, 1 / 12, 1 / 80)


def test_rrelu() -> None:
    x = torch.randn(N, device=DEVICE, requires_grad=True)
    with launches_only():
        y = torch.rrelu(x, 0.1, 0.3, training=True)
        y.sum().backward()
    negative = (x <= 0).cpu()
    slopes = (y / x).detach().cpu()
    assert (slopes[~negative] == 1).all()
    assert slopes[negative].min() >= 0.1 - 1e-6 and slopes[negative].max() <= 0.3 + 1e-6
    assert abs(slopes[negative].mean().item() - 0.2) < 5 * 0.2 / math.sqrt(12 * N / 2)
    assert torch.allclose(x.grad.cpu(), slopes, atol=1e-6)
    assert torch.equal(torch.rrelu(x, 0.1, 0.3).cpu(), torch.rrelu(x.cpu(), 0.1, 0.3))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.rand_like(x),
        lambda x: torch.randn_like(x),
        lambda x: torch.randint_like(x, 100),
        lambda x: torch.rand(10, device=x.device, out=torch.empty(10, device=x.device)),
        lambda x: torch.randint(5, (10,), out=torch.empty(10, device=x.device)),
        lambda x: torch.bernoulli(x.sigmoid(), out=torch.empty_like(x)),
        lambda x: torch.nn.functional.alpha_dropout(x, 0.5, training=True),
        lambda x: torch.nn.functional.dropout2d(x, 0.5, training=True),
        lambda x: torch.nn.functional.gumbel_softmax(x),
    ],
)
def test_composites_draw_from_the_device(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.ones(3, 4, 5, 6, device=DEVICE)
    torch.manual_seed(3)
    with launches_only():
        first = function(x)
        second = function(x)
    torch.manual_seed(3)
    assert torch.equal(first, function(x)) and torch.equal(second, function(x))
    assert not torch.equal(first, second)


ERRORS: list[Callable[[Tensor], object]] = [
    lambda t: t.uniform_(2, 1),
    lambda t: t.uniform_(0, 1e39),
    lambda t: t.normal_(0, -1),
    lambda t: t.exponential_(0),
    lambda t: t.log_normal_(0, 0),
    lambda t: t.cauchy_(0, 0),
    lambda t: t.geometric_(1),
    lambda t: t.bernoulli_(1.5),
    lambda t: t.bernoulli_(t.clone().fill_(2)),
    lambda t: t.random_(5, 5),
    lambda t: t.to(torch.int8).random_(0, 1000),
    lambda t: t.long().normal_(),
    lambda t: t.long().uniform_(),
    lambda t: t.long().exponential_(),
    lambda t: t.long().log_normal_(),
    lambda t: t.long().cauchy_(),
    lambda t: t.to(torch.complex64).random_(),
    lambda t: t.half().random_(-(2**63), None),
    lambda t: t[:1].expand(4).normal_(),
    lambda t: t[:1].expand(4).uniform_(),
    lambda t: t[:1].expand(4).bernoulli_(),
    lambda t: torch.multinomial(t, 0),
    lambda t: torch.multinomial(t, 9),
    lambda t: torch.multinomial(t.view(1, 1, -1), 1),
    lambda t: torch.multinomial(t.long(), 1),
    lambda t: torch.multinomial(-t, 1),
    lambda t: torch.multinomial(t * 0, 1),
    lambda t: torch.multinomial(-t, 2, True),
    lambda t: torch.multinomial(t * 0, 2, True),
    lambda t: torch.multinomial(t / 0, 2, True),
    lambda t: torch.multinomial(t, 2, out=torch.empty(2, device=t.device)),
    lambda t: torch.poisson(-t),
    lambda t: torch.poisson(t.long()),
    lambda t: torch.binomial(t.long(), t),
    lambda t: torch._standard_gamma(t.half()),
    lambda t: torch.normal(t, -1.0),
    lambda t: torch.normal(t, -t),
    lambda t: torch.normal(t, t[:2]),
    lambda t: torch.randperm(-1, device=t.device),
    lambda t: torch.randperm(300, dtype=torch.int8, device=t.device),
    lambda t: torch.randperm(3000, dtype=torch.half, device=t.device),
    lambda t: torch.randperm(3, dtype=torch.complex64, device=t.device),
]


@pytest.mark.parametrize("function", ERRORS, ids=str)
def test_errors_are_those_of_the_cpu(function: Callable[[Tensor], object]) -> None:
    compare_errors(function, torch.ones(4))


def test_a_generator_of_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, device=DEVICE, generator=torch.Generator("cpu"))
    with pytest.raises(RuntimeError, match="generator"):
        torch.randperm(3, device=DEVICE, generator=torch.Generator("cpu"))


def test_empty_tensors_draw_nothing() -> None:
    torch.manual_seed(0)
    before = torch.neuron.get_rng_state()
    torch.empty(0, 3, device=DEVICE).normal_().uniform_().random_()
    assert torch.multinomial(torch.ones(0, 3, device=DEVICE), 2).shape == (0, 2)
    assert torch.equal(torch.neuron.get_rng_state(), before)


# What match_cpu_random() promises, one after another with one generator.
MATCHED: list[Callable[[str, torch.Generator | None], object]] = [
    lambda d, g: torch.rand(100, device=d, generator=g),
    lambda d, g: torch.rand(3, 5, device=d, generator=g, dtype=torch.float64),
    lambda d, g: torch.rand(9, device=d, generator=g, dtype=torch.bfloat16),
    lambda d, g: torch.randn(7, device=d, generator=g),
    lambda d, g: torch.randn(15, device=d, generator=g),
    lambda d, g: torch.randn(16, device=d, generator=g),
    lambda d, g: torch.randn(1003, device=d, generator=g),
    lambda d, g: torch.randn(33, dtype=torch.float64, device=d, generator=g),
    lambda d, g: torch.randn(5, dtype=torch.complex64, device=d, generator=g),
    lambda d, g: torch.empty(40, 30, device=d).t().normal_(generator=g),
    lambda d, g: torch.empty(40, 30, device=d)[:, ::2].normal_(generator=g),
    lambda d, g: torch.empty(40, 30, device=d)[:, ::2].bernoulli_(0.4, generator=g),
    lambda d, g: torch.empty(400, device=d).bernoulli_(0.4, generator=g),
    lambda d, g: torch.empty(400, device=d).bernoulli_(torch.linspace(0, 1, 400, device=d), generator=g),
    lambda d, g: torch.bernoulli(torch.linspace(0, 1, 40, device=d), generator=g),
    lambda d, g: torch.empty(400, device=d).exponential_(2, generator=g),
    lambda d, g: torch.empty(40, dtype=torch.float64, device=d).exponential_(generator=g),
    lambda d, g: torch.empty(40, device=d).log_normal_(generator=g),
    lambda d, g: torch.empty(40, device=d).cauchy_(generator=g),
    lambda d, g: torch.empty(40, device=d).geometric_(0.2, generator=g),
    lambda d, g: torch.randint(10, (50,), device=d, generator=g),
    lambda d, g: torch.randint(-(2**50), 2**50, (50,), device=d, generator=g),
    lambda d, g: torch.empty(50, dtype=torch.int32, device=d).random_(generator=g),
    lambda d, g: torch.empty(50, dtype=torch.int64, device=d).random_(-(2**63), None, generator=g),
    lambda d, g: torch.empty(50, device=d).random_(5, None, generator=g),
    lambda d, g: torch.randperm(100, device=d, generator=g),
    lambda d, g: torch.multinomial(torch.arange(1.0, 9, device=d), 4, generator=g),
    lambda d, g: torch.multinomial(torch.arange(1.0, 9, device=d), 40, True, generator=g),
    lambda d, g: torch.normal(torch.arange(20.0, device=d), torch.arange(1.0, 21, device=d), generator=g),
    lambda d, g: torch.normal(torch.arange(20.0, device=d), 2.0, generator=g),
    lambda d, g: torch.poisson(torch.arange(20.0, device=d), generator=g),
    lambda d, g: torch.binomial(torch.full((20,), 30.0, device=d), torch.full((20,), 0.4, device=d), generator=g),
    lambda d, g: torch._standard_gamma(torch.arange(1.0, 21, device=d), generator=g),
    lambda d, g: torch._sample_dirichlet(torch.arange(1.0, 21, device=d), generator=g),
]
MATCHED_BY_DEFAULT: list[Callable[[str, torch.Generator | None], object]] = [
    lambda d, g: torch.nn.functional.dropout(torch.ones(50, device=d), 0.3),
    lambda d, g: torch.nn.functional.dropout(torch.linspace(-4, 4, 5000, device=d).bfloat16(), 0.1),
    lambda d, g: torch.nn.functional.dropout2d(torch.ones(4, 5, 2, 2, device=d), 0.3),
    lambda d, g: torch.nn.functional.alpha_dropout(torch.ones(50, device=d), 0.3, training=True),
    lambda d, g: torch.rrelu(torch.linspace(-3, 3, 50, device=d), training=True),
    lambda d, g: torch.rand_like(torch.ones(3, device=d)),
    lambda d, g: torch.nn.init.trunc_normal_(torch.empty(20, 30, device=d)),
    lambda d, g: torch.nn.init.kaiming_uniform_(torch.empty(20, 30, device=d)),
    lambda d, g: torch.nn.init.orthogonal_(torch.empty(8, 8, device=d)),
    lambda d, g: torch.distributions.Gamma(torch.ones(4, device=d), torch.ones(4, device=d)).sample(),
]


def test_match_cpu_random_with_the_default_generator() -> None:
    with torch.neuron.match_cpu_random():
        torch.manual_seed(17)
        expected = [function("cpu", None) for function in MATCHED + MATCHED_BY_DEFAULT]
        state = torch.get_rng_state()
        torch.manual_seed(17)
        # Draws on both devices come from one stream of numbers.
        for i, (function, value) in enumerate(zip(MATCHED + MATCHED_BY_DEFAULT, expected)):
            actual = function(DEVICE if i % 5 else "cpu", None)
            torch.testing.assert_close(actual.cpu(), value, rtol=0, atol=1e-6 if value.is_floating_point() else 0)
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("function", MATCHED + MATCHED_BY_DEFAULT, ids=str)
def test_match_cpu_random_number_by_number(function: Callable[[str, torch.Generator | None], Tensor]) -> None:
    with torch.neuron.match_cpu_random():
        torch.manual_seed(3)
        expected = [function("cpu", None) for _ in range(2)]
        torch.manual_seed(3)
        actual = [function(DEVICE, None) for _ in range(2)]
    for a, e in zip(actual, expected):
        assert a.dtype == e.dtype and a.stride() == e.stride()
        torch.testing.assert_close(a.cpu(), e, rtol=0, atol=1e-6 if function in MATCHED_BY_DEFAULT else 0)


def test_match_cpu_random_with_a_generator() -> None:
    with torch.neuron.match_cpu_random():
        cpu, device = torch.Generator("cpu").manual_seed(23), torch.Generator(DEVICE).manual_seed(23)
        default = torch.get_rng_state()
        for function in MATCHED:
            torch.testing.assert_close(function(DEVICE, device).cpu(), function("cpu", cpu), rtol=0, atol=0)
        assert torch.equal(torch.get_rng_state(), default)
        state = device.get_state()
        first = torch.randn(5, device=DEVICE, generator=device)
        device.set_state(state)
        assert torch.equal(torch.randn(5, device=DEVICE, generator=device), first)
        clone = device.clone_state()
        assert torch.equal(
            torch.randn(5, device=DEVICE, generator=clone), torch.randn(5, device=DEVICE, generator=device)
        )


def test_match_cpu_random_does_not_wait_for_plain_draws() -> None:
    with torch.neuron.match_cpu_random(), launches_only():
        torch.randn(100, device=DEVICE)
        torch.nn.functional.dropout(torch.ones(100, device=DEVICE), 0.5)


@pytest.mark.parametrize("matching", [False, True])
def test_graph_replays_draw_new_numbers(matching: bool) -> None:
    x = torch.empty(1000, device=DEVICE)
    with torch.neuron.match_cpu_random(matching):
        graph = torch.accelerator.Graph()
        with torch.neuron.Stream(), graph:
            x.normal_()
            y = torch.nn.functional.dropout(x, 0.5)
        torch.manual_seed(5)
        replayed = []
        for _ in range(3):
            graph.replay()
            replayed.append((x.clone(), y.clone()))
            torch.neuron.synchronize()
        torch.manual_seed(5)
        for a, b in replayed:
            x.normal_()
            # The same numbers as without a graph.
            assert torch.equal(a, x) and torch.equal(b, torch.nn.functional.dropout(x, 0.5))
