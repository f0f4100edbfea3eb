"""torch.accelerator.Graph on `neuron`: what was captured is replayed on new values."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F

DEVICE = "neuron"


def captured(function, **options) -> tuple[torch.accelerator.Graph, torch.Tensor]:
    function()
    graph = torch.accelerator.Graph(**options)
    stream = torch.neuron.Stream()
    stream.wait_stream(torch.neuron.current_stream())
    with stream, graph:
        output = function()
    return graph, output


def test_capture_does_not_run_and_replay_does() -> None:
    x = torch.zeros(4, device=DEVICE)
    graph = torch.accelerator.Graph()
    with torch.neuron.Stream(), graph:
        x.add_(1)
    assert x.tolist() == [0, 0, 0, 0]
    graph.replay()
    graph.replay()
    torch.neuron.synchronize()
    assert x.tolist() == [2, 2, 2, 2]


def test_replay_reads_new_values() -> None:
    weight = torch.randn(8, 8)
    x = torch.zeros(4, 8, device=DEVICE)
    w = weight.to(DEVICE)
    graph, y = captured(lambda: F.gelu(x @ w).softmax(-1) + 1)
    for seed in range(3):
        values = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
        x.copy_(values)
        graph.replay()
        torch.testing.assert_close(y.cpu(), F.gelu(values @ weight).softmax(-1) + 1)


def test_replay_is_ordered_on_the_current_stream() -> None:
    x = torch.zeros(4, device=DEVICE)
    graph, y = captured(lambda: x * 2)
    for value in range(20):
        x.fill_(value)
        graph.replay()
        assert (y + 1).tolist() == [2 * value + 1] * 4


def test_random_numbers_advance() -> None:
    x = torch.ones(1000, device=DEVICE)
    torch.manual_seed(5)
    graph, y = captured(lambda: F.dropout(x, 0.5))
    draws = []
    torch.manual_seed(5)
    for _ in range(3):
        graph.replay()
        draws.append(y.cpu())
    assert not torch.equal(draws[0], draws[1]) and not torch.equal(draws[1], draws[2])
    torch.manual_seed(5)
    eager = [F.dropout(x, 0.5).cpu() for _ in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(draws, eager))
    torch.manual_seed(5)
    graph.replay()
    after_replay = torch.rand(3, device=DEVICE).tolist()
    torch.manual_seed(5)
    F.dropout(x, 0.5)
    assert torch.rand(3, device=DEVICE).tolist() == after_replay


def test_memory_of_the_graph_is_not_given_away() -> None:
    x = torch.zeros(1 << 18, device=DEVICE)
    graph, y = captured(lambda: ((x + 1) * 2 + 3) * 4)
    x.fill_(1)
    others = [torch.full((1 << 18,), -1.0, device=DEVICE) for _ in range(20)]
    graph.replay()
    assert y.eq(28).all().item()
    assert all(other.eq(-1).all().item() for other in others)


def test_memory_of_the_graph_is_released_with_it() -> None:
    x = torch.zeros(1 << 20, device=DEVICE)
    gc.collect()
    torch.neuron.synchronize()
    torch.neuron.empty_cache()
    reserved = torch.neuron.memory_reserved()
    graph, y = captured(lambda: (x + 1) * 2)
    del y
    graph.reset()
    del graph
    gc.collect()
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved() == reserved


def test_graphs_share_a_pool() -> None:
    x = torch.ones(1 << 16, device=DEVICE)
    first, y = captured(lambda: x + 1)
    second, z = captured(lambda: y * 3, pool=first.pool())
    assert first.pool() == second.pool()
    x.fill_(4)
    first.replay()
    second.replay()
    assert z.eq(15).all().item()


def test_a_training_step() -> None:
    torch.manual_seed(0)
    host = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(DEVICE)
    model.load_state_dict(host.state_dict())
    x, target = torch.zeros(6, 4, device=DEVICE), torch.zeros(6, 1, device=DEVICE)
    data = [(torch.randn(6, 4), torch.randn(6, 1)) for _ in range(5)]

    def step() -> torch.Tensor:
        loss = F.mse_loss(model(x), target)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter.sub_(gradient, alpha=0.1)
        return loss.detach()

    graph = torch.accelerator.Graph()
    with torch.neuron.Stream(), graph:
        loss = step()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1)
    for inputs, outputs in data:
        x.copy_(inputs)
        target.copy_(outputs)
        graph.replay()
        expected = F.mse_loss(host(inputs), outputs)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(loss.cpu(), expected.detach(), rtol=1e-4, atol=1e-5)


HAS_TO_WAIT = {
    "aten::_local_scalar_dense": lambda x: x.sum().item(),
    "a copy to the host": lambda x: x.cpu(),
    "aten::equal": lambda x: x.equal(x + 1),
    "aten::nonzero": lambda x: x.nonzero(),
    "aten::masked_select": lambda x: x.masked_select(x > 0),
    "aten::_unique2": lambda x: x.unique(),
    "aten::bincount": lambda x: x.long().bincount(),
    "synchronize of the device": lambda x: torch.neuron.synchronize(),
    "synchronize of the stream": lambda x: torch.neuron.current_stream().synchronize(),
    "query of the stream": lambda x: torch.neuron.current_stream().query(),
    "the replay of another graph": lambda x: ANOTHER.replay(),
}
ANOTHER = torch.accelerator.Graph()


@pytest.mark.parametrize("name", HAS_TO_WAIT)
def test_what_waits_for_the_stream_is_refused_by_name(name: str) -> None:
    x = torch.ones(2, device=DEVICE)
    ANOTHER.reset()
    with torch.neuron.Stream(), ANOTHER:
        x + 1
    graph = torch.accelerator.Graph()
    refusal = f"operation not permitted when stream is capturing: {name}"
    with pytest.raises(torch.AcceleratorError, match=refusal) as raised, torch.neuron.Stream(), graph:
        x.add_(1)
        HAS_TO_WAIT[name](x)
    assert raised.value.error_code == 900  # cudaErrorStreamCaptureUnsupported
    graph.replay()
    assert x.tolist() == [2, 2]


def lower(n: int) -> torch.Tensor:
    return torch.eye(n) * 3 + torch.ones(n, n).tril()


def gradient(function, x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf)[0]


# Operators without a launch of their own, of tensors that a replay finds changed.
WITHOUT_A_LAUNCH = {
    "fft": lambda x: torch.fft.fft(x),
    "ifft of rfft": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]),
    "polar": lambda x: torch.polar(x, x + 1),
    "conjugate": lambda x: torch.fft.fft(x).conj() * 2,
    "solve_triangular": lambda x: torch.linalg.solve_triangular(lower(4).to(x.device), x, upper=False),
    "matrix_exp": lambda x: torch.linalg.matrix_exp(x),
    "segment_reduce": lambda x: torch.segment_reduce(
        x, "sum", lengths=torch.tensor([1, 3], device=x.device), axis=0, unsafe=True
    ),
    "int_mm": lambda x: torch._int_mm(x.to(torch.int8).repeat(8, 8), x.to(torch.int8).repeat(8, 8)),
    "fake_quantize": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127),
    "histogram": lambda x: torch.histogram(x, bins=4, range=(-2.0, 2.0)).hist,
    "searchsorted": lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0], device=x.device), 0.5) + x.long(),
    "frexp": lambda x: torch.frexp(x).mantissa * torch.frexp(x).exponent,
    "in place": lambda x: x.clone().logit_(eps=0.1),
    "out=": lambda x: torch.hardshrink(
        torch.polar(x, x, out=torch.empty(4, 4, dtype=torch.cfloat, device=x.device)).abs()
    ),
    "out= of no size": lambda x: torch.polar(x, x, out=torch.empty(0, dtype=torch.cfloat, device=x.device)),
    "part of a result": lambda x: torch.fft.fft(x)[1:, ::2].real,
    "backward": lambda x: gradient(lambda leaf: torch.fft.rfft(leaf).abs().square().sum(), x),
}


@pytest.mark.parametrize("name", WITHOUT_A_LAUNCH)
def test_an_operator_without_a_launch_is_replayed(name: str) -> None:
    function = WITHOUT_A_LAUNCH[name]
    x = torch.zeros(4, 4, device=DEVICE)
    graph = torch.accelerator.Graph()
    with torch.neuron.Stream(), graph:
        y = function(x)
        z = y * 2
    for seed in range(3):
        values = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
        x.copy_(values)
        graph.replay()
        expected = function(values)
        assert y.stride() == expected.stride()
        torch.testing.assert_close(y.cpu(), expected)
        torch.testing.assert_close(z.cpu(), expected * 2)


def test_normal_variates_are_drawn_at_each_replay() -> None:
    mean, std = torch.full((1000,), 3.0, device=DEVICE), torch.full((1000,), 0.5, device=DEVICE)
    graph, y = captured(lambda: torch.distributions.Normal(mean, std, validate_args=False).sample())
    graph.replay()
    first = y.cpu()
    graph.replay()
    assert not torch.equal(first, y.cpu())
    assert first.mean().item() == pytest.approx(3, abs=0.1) and first.std().item() == pytest.approx(0.5, abs=0.1)


def test_an_assertion_is_made_at_each_replay() -> None:
    x = torch.ones((), device=DEVICE)
    graph = torch.accelerator.Graph()
    with torch.neuron.Stream(), graph:
        torch._assert_async(x, "x has become 0")
    graph.replay()
    torch.neuron.synchronize()
    x.zero_()
    graph.replay()
    with pytest.raises(RuntimeError, match="x has become 0"):
        torch.neuron.synchronize()


def test_what_a_kernel_refuses_is_refused_at_the_capture() -> None:
    x = torch.ones(2, 3, device=DEVICE)
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="must be batches of square matrices"), torch.neuron.Stream(), graph:
        torch.linalg.matrix_exp(x)
    with pytest.raises(RuntimeError, match="x is 0"), torch.neuron.Stream(), torch.accelerator.Graph():
        torch.ops.aten._functional_assert_async.msg(x[0, 0], "x is 0", x)  # of the zeros that plan its result
    assert x.sum().item() == 6


def test_a_size_that_a_replay_changes_is_an_error() -> None:
    @torch.library.custom_op("torchneuron_test::positive", mutates_args=(), device_types="cpu")
    def positive(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].clone()

    x = torch.zeros(4, device=DEVICE)
    graph, y = captured(lambda: positive(x))
    assert y.shape == (0,)
    graph.replay()
    torch.neuron.synchronize()
    x.fill_(1)
    graph.replay()
    with pytest.raises(
        RuntimeError, match=r"size \[0\] was planned, but the kernel makes one of size \[4\].*"
    ) as raised:
        torch.neuron.synchronize()
    assert "torchneuron_test::positive" in str(raised.value)


def test_the_operator_is_named_that_fails_in_a_replay() -> None:
    index = torch.zeros(1, dtype=torch.long, device=DEVICE)
    table = torch.ones(4, device=DEVICE)
    graph, y = captured(lambda: table.gather(0, index) + 1)
    graph.replay()
    assert y.tolist() == [2]
    index.fill_(7)
    graph.replay()
    with pytest.raises((IndexError, RuntimeError), match="aten::gather in a graph"):
        torch.neuron.synchronize()
    index.fill_(1)
    graph.replay()
    assert y.tolist() == [2]


def test_host_memory_is_kept_as_it_was_at_the_capture() -> None:
    host = torch.arange(100_000.0)
    x = torch.zeros(100_000, device=DEVICE)
    graph = torch.accelerator.Graph()
    with torch.neuron.Stream(), graph:
        x.copy_(host)
    host.zero_()
    graph.replay()
    assert torch.equal(x.cpu(), torch.arange(100_000.0))


def test_a_graph_over_two_streams() -> None:
    x = torch.ones(100, device=DEVICE)
    main, side = torch.neuron.Stream(), torch.neuron.Stream()
    graph = torch.accelerator.Graph()
    with main, graph:
        y = x * 2
        side.wait_stream(main)
        with torch.neuron.stream(side):
            z = y + 1
        main.wait_stream(side)
        w = z * 10
    x.fill_(3)
    graph.replay()
    assert w.eq(70).all().item()


def test_work_of_a_side_stream_must_be_joined() -> None:
    x = torch.zeros(4, device=DEVICE)
    torch.neuron.synchronize()
    main, side, idle = (torch.neuron.Stream() for _ in range(3))
    graph = torch.accelerator.Graph()
    with pytest.raises(torch.AcceleratorError, match="capturing stream has unjoined work") as raised, main, graph:
        side.wait_stream(main)
        idle.wait_stream(main)
        with torch.neuron.stream(side):
            x.add_(1)
        main.wait_stream(side)
        with torch.neuron.stream(side):
            x.add_(1)
    assert raised.value.error_code == 904  # cudaErrorStreamCaptureUnjoined
    with pytest.raises(RuntimeError, match="not captured"):
        graph.replay()
    for stream in (main, side, idle):
        assert stream.query()
        with torch.neuron.stream(stream):
            x.add_(1)
        stream.synchronize()
    assert x.tolist() == [3, 3, 3, 3]
    with main, graph:
        idle.wait_stream(main)  # nothing is queued there
        side.wait_stream(main)
        with torch.neuron.stream(side):
            x.add_(1)
        idle.wait_stream(side)
        main.wait_stream(idle)  # and so for `side`
    graph.replay()
    torch.neuron.synchronize()
    assert x.tolist() == [4, 4, 4, 4]


def test_an_event_of_a_capture_is_no_mark_for_the_host() -> None:
    before, inside = torch.neuron.Event(), torch.neuron.Event()
    stream = torch.neuron.Stream()
    graph = torch.accelerator.Graph()
    with stream:
        before.record()
        with graph:
            inside.record()
            for call in (before.query, before.synchronize, inside.query, inside.synchronize):
                with pytest.raises(torch.AcceleratorError, match="captur"):
                    call()
    assert before.query()
    for call in (inside.query, inside.synchronize):
        with pytest.raises(torch.AcceleratorError, match="an event last recorded in a capturing stream") as raised:
            call()
        assert raised.value.error_code == 907  # cudaErrorCapturedEvent
    inside.record()
    inside.synchronize()
    assert inside.query()


def test_one_capture_of_a_stream_at_a_time() -> None:
    x = torch.zeros(2, device=DEVICE)
    torch.neuron.synchronize()
    first, second = torch.accelerator.Graph(), torch.accelerator.Graph()
    with torch.neuron.stream(torch.neuron.Stream()):
        first.capture_begin()
        for graph in (first, second):
            with pytest.raises(torch.AcceleratorError, match="cannot be performed in the present state") as raised:
                graph.capture_begin()
            assert raised.value.error_code == 401  # cudaErrorIllegalState
        x.add_(1)
        first.capture_end()
        with pytest.raises(RuntimeError, match="already owns a captured graph"):
            first.capture_begin()
        with pytest.raises(RuntimeError, match="without capture_begin"):
            second.capture_end()
        first.replay()
        assert x.tolist() == [1, 1]


def test_captures_are_not_merged() -> None:
    streams = [torch.neuron.Stream() for _ in range(2)]
    graphs = [torch.neuron.NeuronGraph() for _ in range(2)]
    with torch.neuron.device(0), torch.neuron.stream(streams[0]):
        graphs[0].capture_begin()
        mark = streams[0].record_event()
        with torch.neuron.device(1), torch.neuron.stream(torch.neuron.Stream(1)):
            graphs[1].capture_begin()
            with pytest.raises(torch.AcceleratorError, match="merge of separate capture sequences"):
                torch.neuron.current_stream().wait_event(mark)
            graphs[1].capture_end()
        graphs[0].capture_end()


def test_replay_without_capture_is_an_error() -> None:
    with pytest.raises(RuntimeError):
        torch.accelerator.Graph().replay()


def test_keep_graph_and_debug_dump(tmp_path) -> None:
    x = torch.zeros(2, device=DEVICE)
    graph = torch.accelerator.Graph(keep_graph=True)
    graph.enable_debug_mode()
    with torch.neuron.Stream(), graph:
        x.add_(1)
    graph.instantiate()
    graph.replay()
    torch.neuron.synchronize()
    assert x.tolist() == [1, 1]
    graph.debug_dump(str(tmp_path / "graph.dot"))
    assert "aten::add" in (tmp_path / "graph.dot").read_text()
