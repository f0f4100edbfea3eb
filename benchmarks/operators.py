"""Time of work that is bound by memory and by indices, on `neuron` and on `cpu`: medians of interleaved rounds.

python benchmarks/operators.py [--rounds 15] [--case 'sort*'] [--memory] [--json results.json]
"""

from __future__ import annotations

from collections.abc import Callable

import interleaved
import torch
from interleaved import Case, Run
from torch import Tensor

MIB = 2**20


def operators(
    name: str, make: Callable[[], tuple[Tensor, ...]], call: Callable[..., Tensor], repeats: int, mib_moved: float = 0
) -> Case:
    """`call` on the tensors that `make` makes on the CPU; its operators read and write `mib_moved` at least."""

    def prepare(device: str) -> Run:
        torch.manual_seed(0)
        tensors = tuple(tensor.to(device) for tensor in make())

        def run(calls: int) -> None:
            for _ in range(calls):
                result = call(*tensors)
            result.flatten()[0].item()  # waits for the device

        return run

    return Case(name, prepare, repeats, operations=0, bytes_moved=mib_moved * MIB)


def pointwise(x: Tensor, y: Tensor) -> Tensor:
    """Twenty operators."""
    a = (x + y) * 0.5
    b = (x - y).abs().sqrt()
    c = torch.where(a > 0, a, b).clamp(0.1, 2).log()
    d = (c.sigmoid() * a).tanh() + b.exp()
    e = torch.maximum(d, c).relu()
    return (e * x).addcmul(c, d).div(y).pow(2)


def sort_topk_scatter(x: Tensor, index: Tensor) -> Tensor:
    """As in a router of experts or a decoder that samples: order, choose, gather, add up by bucket."""
    values, order = x.sort(dim=-1, descending=True)
    best, where = values.topk(64, dim=-1)
    gathered = x.gather(1, where) + best
    buckets = torch.zeros(256, x.shape[1], device=x.device).index_add_(0, index, x)
    counts = torch.zeros_like(x).scatter_add_(1, order, values.cumsum(-1))
    return gathered.sum() + buckets.amax() + counts.mean()


def sparse_and_dense() -> tuple[Tensor, Tensor]:
    dense = torch.rand(4096, 4096)
    return (dense * (dense < 0.01)).to_sparse_csr(), torch.rand(4096, 64)


CASES = (
    operators(
        "20 pointwise operators on 16 MB",
        lambda: (torch.rand(2**22) + 1, torch.rand(2**22) + 1),
        pointwise,
        1,
        mib_moved=49.5 * 16,
    ),
    operators(
        "sum, amax, var, softmax on 16 MB",
        lambda: (torch.rand(2048, 2048),),
        lambda x: x.sum(0) + x.amax(0) + x.var(0) + x.softmax(-1)[0],
        4,
        mib_moved=5 * 16,
    ),
    operators(
        "sort, topk, scatter on 1024x2048",
        lambda: (torch.rand(1024, 2048), torch.randint(256, (1024,))),
        sort_topk_scatter,
        1,
    ),
    operators("CSR 4096x4096 (1 %) @ 4096x64", sparse_and_dense, torch.matmul, 10),
    operators(
        "embedding bag, 4096 bags of 16",
        lambda: (torch.randint(50000, (4096, 16)), torch.rand(50000, 64)),
        torch.nn.functional.embedding_bag,
        10,
        mib_moved=17,
    ),
    operators("transposed copy of 16 MB", lambda: (torch.rand(2048, 2048),), lambda x: x.t().contiguous(), 10, 32),
    operators("FFT of 256 x 4096", lambda: (torch.rand(256, 4096),), lambda x: torch.fft.rfft(x).abs(), 10, 14),
)

if __name__ == "__main__":
    interleaved.main(__doc__, CASES)
