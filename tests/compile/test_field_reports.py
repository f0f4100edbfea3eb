"""What others report of torch.compile on young devices. A test is named after the report's id."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def test_T_02_strided_inputs_and_transposes(same_as_cpu: Callable) -> None:
    w = torch.randn(4, 5)
    same_as_cpu(lambda t, w: t.transpose(1, 2) @ w, torch.randn(2, 4, 3), w, fullgraph=True)
    same_as_cpu(lambda t: t * 2, torch.randn(2, 4, 3).transpose(1, 2))


@pytest.mark.parametrize("width", [1, 7, 127, 1001])
def test_T_12_odd_widths(width: int, same_as_cpu: Callable) -> None:
    same_as_cpu(lambda t, w: F.softmax(t @ w, -1), torch.randn(3, width), torch.randn(width, width) / width)


def test_T_31_rotary_embedding_by_complex_numbers(same_as_cpu: Callable) -> None:
    def rotate(x: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.view_as_complex(x.reshape(8, 8, 2)) * frequencies).flatten(-2)

    same_as_cpu(rotate, torch.randn(8, 16), torch.polar(torch.ones(8, 8), torch.rand(8, 8)))


def test_T_42_a_long_recurrence_compiles(same_as_cpu: Callable) -> None:
    def recurrence(a: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
        h = a
        for _ in range(64):
            h = torch.cumsum(torch.tril(h), 0) * 0.1
        return torch.linalg.solve_triangular(one + torch.tril(h, -1), a, upper=False)

    same_as_cpu(recurrence, torch.randn(16, 16), torch.eye(16))


def test_T_44_a_permuted_tensor_made_contiguous_is() -> None:
    x = torch.randn(2, 4, 3, device="neuron")
    assert torch.compile(lambda x: x.permute(0, 2, 1).contiguous())(x).is_contiguous()


def test_T_49_gelu_is_a_builtin_that_can_be_traced(same_as_cpu: Callable) -> None:
    same_as_cpu(lambda x: F.gelu(x, approximate="tanh"), torch.randn(8, 16), fullgraph=True)


def test_P_02_and_P_04_a_checkpoint_draws_the_same_mask_again() -> None:
    x = torch.randn(100, 100, device="neuron", requires_grad=True)
    y = torch.compile(lambda x: checkpoint(lambda t: F.dropout(t, 0.5), x, use_reentrant=False))(x)
    y.sum().backward()
    assert torch.equal(x.grad != 0, y != 0)
    assert 0.45 < (y != 0).float().mean().item() < 0.55


def test_P_04_compiling_draws_nothing() -> None:
    torch.manual_seed(3)
    before = torch.neuron.get_rng_state()
    torch.compile(lambda x: x * 2)(torch.ones(3, device="neuron"))
    assert torch.equal(before, torch.neuron.get_rng_state())


def test_P_09_repr_between_two_graphs(same_as_cpu: Callable) -> None:
    def with_break(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        repr(y)
        return y + 1

    same_as_cpu(with_break, torch.randn(8))


def test_P_39_a_slice_write_follows_its_length() -> None:
    @torch.compile
    def write(b: torch.Tensor, n: int) -> torch.Tensor:
        b[:n] = 1
        return b

    for n in (3, 4, 5):
        assert write(torch.zeros(8, device="neuron"), n).tolist() == [1.0] * n + [0.0] * (8 - n)


def test_P_41_strided_slice(same_as_cpu: Callable) -> None:
    same_as_cpu(lambda t: t[1::2] + 1, torch.arange(8.0))


def test_P_46_scatter_reduce_in_place(same_as_cpu: Callable) -> None:
    same_as_cpu(
        lambda d, i, s: d.scatter_reduce_(0, i, s, "amax"),
        torch.zeros(4),
        torch.tensor([0, 1, 1]),
        torch.tensor([1.0, 2, 3]),
    )


def test_P_56_sizes_one_two_and_zero() -> None:
    zero = torch.compile(lambda o: o.zero_())
    for n in (1, 2, 0):
        assert zero(torch.ones(n, device="neuron")).tolist() == [0.0] * n


def test_P_57_sizes_that_depend_on_values(same_as_cpu: Callable) -> None:
    x = torch.randn(8, 16)
    same_as_cpu(lambda t: t[t > 0], x)
    same_as_cpu(lambda t: t.nonzero(), x)
    same_as_cpu(lambda t: torch.unique((t * 2).int()), x)
    same_as_cpu(lambda t, n: t.repeat_interleave(n, 0), x, torch.tensor([1, 2] * 4))

    def normalise_rows(h: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(h)
        out[mask] = F.batch_norm(h[mask], None, None, training=True)
        return out

    same_as_cpu(normalise_rows, x, x[:, 0] > 0)


def test_P_59_events_in_a_compiled_region_are_refused_by_name() -> None:
    def with_event(t: torch.Tensor) -> torch.Tensor:
        event = torch.Event("neuron")
        event.record()
        y = t + 1
        event.synchronize()
        return y

    with pytest.raises(Exception, match="a compiled region on neuron cannot use streams or events"):
        torch.compile(with_event)(torch.ones(3, device="neuron"))
