"""Checks of the device's own random numbers, without `match_cpu_random()`, against the distributions they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor

from ... import neuron
from .comparison import DEVICE
from .outcomes import Outcome, Tally

DRAWS = 100_000
# Of the Kolmogorov-Smirnov statistic times sqrt(draws): exceeded by one sound generator in ten thousand.
KS_LIMIT = 2.23
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16)

# The draw into a tensor of DRAWS elements, and the cumulative distribution function of scipy that it shall have.
Draw = tuple[Callable[[Tensor], Tensor], Any]

OF_FLOATS: dict[str, Draw] = {
    "rand": (torch.rand_like, stats.uniform()),
    "uniform_": (lambda t: t.uniform_(-2, 3), stats.uniform(-2, 5)),
    "randn": (torch.randn_like, stats.norm()),
    "normal_": (lambda t: t.normal_(1, 2), stats.norm(1, 2)),
    "normal": (lambda t: torch.normal(torch.ones_like(t), 0.5), stats.norm(1, 0.5)),
    "exponential_": (lambda t: t.exponential_(2), stats.expon(scale=0.5)),
    "cauchy_": (lambda t: t.cauchy_(0, 1), stats.cauchy()),
    "log_normal_": (lambda t: t.log_normal_(0, 0.5), stats.lognorm(0.5)),
    "geometric_": (lambda t: t.geometric_(0.3), stats.geom(0.3)),
    "bernoulli": (lambda t: torch.bernoulli(torch.full_like(t, 0.25)), stats.bernoulli(0.25)),
    "bernoulli_": (lambda t: t.bernoulli_(0.75), stats.bernoulli(0.75)),
    "poisson": (lambda t: torch.poisson(torch.full_like(t, 3)), stats.poisson(3)),
    "poisson of large rates": (lambda t: torch.poisson(torch.full_like(t, 50)), stats.poisson(50)),
    "dropout": (lambda t: F.dropout(torch.ones_like(t), 0.5) / 2, stats.bernoulli(0.5)),
}
OF_SINGLE_AND_DOUBLE: dict[str, Draw] = {
    "rrelu": (lambda t: -F.rrelu(torch.full_like(t, -1), 0.25, 0.75, training=True), stats.uniform(0.25, 0.5)),
    "binomial": (lambda t: torch.binomial(torch.full_like(t, 20), torch.full_like(t, 0.25)), stats.binom(20, 0.25)),
    "gamma": (lambda t: torch._standard_gamma(torch.full_like(t, 2.5)), stats.gamma(2.5)),
    "gamma of small shapes": (lambda t: torch._standard_gamma(torch.full_like(t, 0.5)), stats.gamma(0.5)),
    "dirichlet": (
        lambda t: torch._sample_dirichlet(torch.tensor([2.0, 3.0]).to(t).expand(len(t), 2))[:, 0],
        stats.beta(2, 3),
    ),
    "multinomial": (
        lambda t: torch.multinomial(torch.tensor([1.0, 2.0, 3.0, 4.0]).to(t), len(t), replacement=True),
        stats.rv_discrete(values=(range(4), (0.1, 0.2, 0.3, 0.4))),
    ),
    "first of multinomial without replacement": (
        lambda t: torch.multinomial(torch.tensor([1.0, 2.0, 3.0, 4.0]).to(t).expand(len(t), 4), 2)[:, 0],
        stats.rv_discrete(values=(range(4), (0.1, 0.2, 0.3, 0.4))),
    ),
}
OF_INTEGERS: dict[str, Draw] = {
    "randint": (lambda t: torch.randint_like(t, 3, 1000), stats.randint(3, 1000)),
    "random_": (lambda t: t.random_(-50, 51), stats.randint(-50, 51)),
    "randperm": (
        lambda t: torch.cat([torch.randperm(1000, dtype=t.dtype, device=t.device)[:1] for _ in range(2000)]),
        stats.randint(0, 1000),
    ),
}

ENTRIES: dict[str, tuple[Draw, tuple[torch.dtype, ...]]] = {
    **{name: (draw, FLOATS) for name, draw in OF_FLOATS.items()},
    **{name: (draw, FLOATS[:2]) for name, draw in OF_SINGLE_AND_DOUBLE.items()},
    **{name: (draw, INTEGERS) for name, draw in OF_INTEGERS.items()},
}


def names() -> list[str]:
    """The random operators that are drawn from."""
    return list(ENTRIES)


def check(name: str) -> Iterator[Outcome]:
    """One outcome for each dtype: the draws have the distribution, and those of another seed differ."""
    (draw, distribution), dtypes = ENTRIES[name]
    with neuron.match_cpu_random(False):
        for dtype in dtypes:
            tally = Tally(samples=DRAWS, reason=_difference(draw, distribution, dtype))
            outcome = tally.outcome("distributions", name, "Kolmogorov-Smirnov", str(dtype).removeprefix("torch."))
            assert outcome is not None
            yield outcome


def _difference(draw: Callable[[Tensor], Tensor], distribution: Any, dtype: torch.dtype) -> str:
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(draw(torch.zeros(DRAWS, dtype=dtype, device=DEVICE)).cpu())
    if not torch.equal(drawn[0], drawn[1]):
        return "the same seed gives other numbers"
    if torch.equal(drawn[0], drawn[2]):
        return "another seed gives the same numbers"
    values, counts = np.unique(drawn[0].to(torch.float64).numpy(), return_counts=True)
    statistic = float(np.abs(counts.cumsum() / counts.sum() - distribution.cdf(values)).max())
    rounding = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    limit = KS_LIMIT / counts.sum() ** 0.5 + rounding
    return "" if statistic <= limit else f"the statistic is {statistic:.5f}, allowed are {limit:.5f}"
