"""LSTM, GRU and RNN modules and cells: CPU's values and gradients, without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import DEVICE, assert_same, compare, compare_errors, launches_only
from gradients import with_gradients
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

MODULES = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU, "RNN": torch.nn.RNN}


def run(module: torch.nn.Module, device: str, *inputs: Any) -> list[Tensor]:
    """Outputs, gradients of the parameters and of the inputs, on the CPU's side."""
    copy = type(module)(**module.arguments).to(device, module.weight_hh_l0.dtype)  # type: ignore[arg-type]
    copy.load_state_dict(module.state_dict())
    inputs = tuple(x.detach().to(device).requires_grad_() for x in inputs)
    x, state = inputs[0], inputs[1:]
    output, last = copy(x, None if not state else state[0] if len(state) == 1 else state)
    last = last if isinstance(last, tuple) else (last,)
    sum(y.cos().sum() for y in (output, *last)).backward()  # type: ignore[union-attr]
    grads = [t.grad for t in (*copy.parameters(), *inputs)]
    return [t.detach().cpu() for t in (output, *last, *grads)]


def make(kind: str, dtype: torch.dtype = torch.float32, **kwargs: Any) -> torch.nn.Module:
    torch.manual_seed(1)
    arguments = {"input_size": 5, "hidden_size": 7, **kwargs}
    module = MODULES[kind](**arguments).to(dtype)
    module.arguments = arguments  # type: ignore[assignment]
    return module


VARIANTS: dict[str, dict[str, Any]] = {
    "one_layer": {},
    "two_layers": {"num_layers": 2},
    "both_directions": {"bidirectional": True},
    "batch_first": {"batch_first": True, "num_layers": 2, "bidirectional": True},
    "no_bias": {"bias": False},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", MODULES)
def test_modules(kind: str, variant: str) -> None:
    module = make(kind, **VARIANTS[variant])
    x = torch.randn(4, 3, 5)
    assert_same(run(module, DEVICE, x), run(module, "cpu", x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-10), (torch.bfloat16, 5e-2), (torch.float16, 1e-2)])
@pytest.mark.parametrize("kind", MODULES)
def test_dtypes(kind: str, dtype: torch.dtype, tolerance: float) -> None:
    module = make(kind, dtype)
    x = torch.randn(4, 3, 5).to(dtype)
    assert_same(run(module, DEVICE, x), run(module, "cpu", x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", MODULES)
def test_initial_states(kind: str) -> None:
    x, h, c = torch.randn(4, 3, 5), torch.randn(1, 3, 7), torch.randn(1, 3, 7)
    states = (h, c) if kind == "LSTM" else (h,)
    module = make(kind)
    assert_same(run(module, DEVICE, x, *states), run(module, "cpu", x, *states), rtol=1e-4, atol=1e-5)
    unbatched = (x[:, 0], *(s[:, 0] for s in states))
    assert_same(run(module, DEVICE, *unbatched), run(module, "cpu", *unbatched), rtol=1e-4, atol=1e-5)


def test_projected_lstm() -> None:
    module = make("LSTM", proj_size=3)
    x = torch.randn(4, 2, 5)
    assert_same(run(module, DEVICE, x), run(module, "cpu", x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", MODULES)
def test_packed_sequences(kind: str) -> None:
    module = make(kind, batch_first=True, bidirectional=True)

    def call(x: Tensor) -> Tensor:
        m = module.to(x.device)
        packed = pack_padded_sequence(x, torch.tensor([4, 2, 3]), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(m(packed)[0], batch_first=True)[0]

    compare(lambda x: with_gradients(call, x), torch.randn(3, 4, 5), rtol=1e-4, atol=1e-5, strides=False)


@pytest.mark.parametrize("cell", [torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell])
def test_cells(cell: type[torch.nn.Module]) -> None:
    module = cell(5, 7)
    lstm = cell is torch.nn.LSTMCell

    def call(x: Tensor, h: Tensor, c: Tensor) -> Any:
        return module.to(x.device)(x, (h, c) if lstm else h)

    x, h, c = torch.randn(3, 5), torch.randn(3, 7), torch.randn(3, 7)
    compare(lambda *a: with_gradients(call, *a), x, h, c, rtol=1e-4, atol=1e-5)
    compare(lambda x, h, c: with_gradients(lambda *a: call(*a)[1], x, h, c), x, h, c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_gradients_of_gradients(kind: str) -> None:
    module = make(kind, torch.float64)

    def penalty(x: Tensor) -> Tensor:
        (grad,) = torch.autograd.grad(module.to(x.device)(x)[0].cos().sum(), x, create_graph=True)
        return grad.pow(2).sum()

    compare(
        lambda x: with_gradients(penalty, x), torch.randn(3, 2, 5, dtype=torch.float64), rtol=1e-8, atol=1e-8,
        strides=False,
    )  # fmt: skip


def test_fused_lstm_cell_by_hand() -> None:
    """The operator's own contract, which the CPU has no kernel to compare with: gates in, forget, cell, out."""
    torch.manual_seed(0)
    igates, hgates, cx, b1, b2 = (torch.randn(*s) for s in ((3, 8), (3, 8), (3, 2), (8,), (8,)))

    def cell(igates: Tensor, hgates: Tensor, cx: Tensor, b1: Tensor, b2: Tensor) -> tuple[Tensor, Tensor]:
        i, f, c, o = (igates + hgates + b1 + b2).chunk(4, 1)
        cy = f.sigmoid() * cx + i.sigmoid() * c.tanh()
        return o.sigmoid() * cy.tanh(), cy

    arguments = (igates, hgates, cx, b1, b2)
    for part in (slice(0, 2), slice(0, 1), slice(1, 2)):
        expected = with_gradients(lambda *a, p=part: cell(*a)[p], *arguments)
        actual = with_gradients(
            lambda *a, p=part: torch.ops.aten._thnn_fused_lstm_cell(*a)[:2][p], *(a.to(DEVICE) for a in arguments)
        )
        assert_same(actual, expected, rtol=1e-5, atol=1e-6)


def test_fused_gru_cell_by_hand() -> None:
    """Gates reset, update, new."""
    torch.manual_seed(0)
    igates, hgates, hx, b1, b2 = (torch.randn(*s) for s in ((3, 6), (3, 6), (3, 2), (6,), (6,)))

    def cell(igates: Tensor, hgates: Tensor, hx: Tensor, b1: Tensor, b2: Tensor) -> Tensor:
        (ir, iz, inew), (hr, hz, hnew) = (igates + b1).chunk(3, 1), (hgates + b2).chunk(3, 1)
        update, fresh = (iz + hz).sigmoid(), (inew + (ir + hr).sigmoid() * hnew).tanh()
        return fresh + update * (hx - fresh)

    arguments = (igates, hgates, hx, b1, b2)
    expected = with_gradients(cell, *arguments)
    actual = with_gradients(lambda *a: torch.ops.aten._thnn_fused_gru_cell(*a)[0], *(a.to(DEVICE) for a in arguments))
    assert_same(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", MODULES)
def test_modules_train_with_launches_only(kind: str) -> None:
    module = make(kind, num_layers=2).to(DEVICE)
    x = torch.randn(4, 3, 5).to(DEVICE)
    with launches_only():
        module(x)[0].sum().backward()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.nn.LSTM(4, 7).to(x.device)(x),
        lambda x: torch.nn.GRU(5, 7).to(x.device)(x, x.new_zeros(1, 3, 6)),
        lambda x: torch.nn.LSTMCell(5, 7).to(x.device)(x[0], (x.new_zeros(2, 7), x.new_zeros(2, 7))),
    ],
)
def test_errors(call: Callable[..., Any]) -> None:
    compare_errors(call, torch.randn(4, 3, 5))


def test_two_states_of_other_counts_are_refused() -> None:
    module = torch.nn.LSTM(5, 7).to(DEVICE)
    x, states = torch.ones(4, 3, 5, device=DEVICE), (torch.ones(2, 3, 7), torch.ones(1, 3, 7))
    with pytest.raises(RuntimeError, match=r"sizes \[2, 3, 7\] and \[1, 3, 7\]"):
        torch.lstm(x, [s.to(DEVICE) for s in states], list(module.parameters()), True, 1, 0.0, False, False, False)
