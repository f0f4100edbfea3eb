"""Graphs as `torch.cuda` offers them: NeuronGraph, graph() and make_graphed_callables()."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

DEVICE = "neuron"


def test_graph_context() -> None:
    x = torch.zeros(4, device=DEVICE)
    graph = torch.neuron.NeuronGraph()
    assert isinstance(graph, torch.accelerator.Graph)
    assert not torch.neuron.is_current_stream_capturing()
    with torch.neuron.graph(graph):
        assert torch.neuron.is_current_stream_capturing()
        assert torch.neuron.current_stream() != torch.neuron.default_stream()
        y = x + 1
    assert not torch.neuron.is_current_stream_capturing()
    assert torch.neuron.current_stream() == torch.neuron.default_stream()
    for value in (3, 5):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [value + 1] * 4


def test_stream_and_pool_are_a_choice() -> None:
    x = torch.ones(1 << 16, device=DEVICE)
    pool, stream = torch.neuron.graph_pool_handle(), torch.neuron.Stream()
    assert pool != torch.neuron.graph_pool_handle()
    first, second = torch.neuron.NeuronGraph(), torch.neuron.NeuronGraph()
    with torch.neuron.graph(first, pool=pool, stream=stream, capture_error_mode="thread_local"):
        assert torch.neuron.current_stream() == stream
        y = x + 1
    with torch.neuron.graph(second, pool=first.pool(), stream=stream):
        z = y * 2
    assert first.pool() == second.pool() == pool
    x.fill_(4)
    first.replay()
    second.replay()
    assert z.eq(10).all().item()


def test_capture_by_hand() -> None:
    x = torch.zeros(4, device=DEVICE)
    torch.neuron.synchronize()
    pool = torch.neuron.graph_pool_handle()
    graph = torch.neuron.NeuronGraph()
    with torch.neuron.stream(torch.neuron.Stream()):
        graph.capture_begin(pool=pool, capture_error_mode="global")
        x += 2
        graph.capture_end()
    assert graph.pool() == pool
    graph.replay()
    graph.replay()
    assert x.tolist() == [4] * 4
    graph.reset()


def test_an_error_while_recording_restores_the_stream() -> None:
    x = torch.ones(4, device=DEVICE)
    with pytest.raises(KeyError), torch.neuron.graph(torch.neuron.NeuronGraph()):
        x + 1
        raise KeyError
    assert torch.neuron.current_stream() == torch.neuron.default_stream()
    assert not torch.neuron.is_current_stream_capturing() and (x + 1).tolist() == [2] * 4


def test_an_error_in_a_side_stream_is_the_one_that_is_seen() -> None:
    x, side = torch.ones(4, device=DEVICE), torch.neuron.Stream()
    with pytest.raises(KeyError), torch.neuron.graph(torch.neuron.NeuronGraph()):
        side.wait_stream(torch.neuron.current_stream())
        with torch.neuron.stream(side):
            x + 1
            raise KeyError
    assert not torch.neuron.is_current_stream_capturing() and (x + 1).tolist() == [2] * 4


def test_a_registered_generator_draws_anew() -> None:
    x = torch.zeros(1000, device=DEVICE)
    generator = torch.Generator(DEVICE).manual_seed(5)
    graph = torch.neuron.NeuronGraph()
    graph.register_generator_state(generator)
    graph.register_generator_state(generator)
    graph.register_generator_state(torch.neuron.default_generators[0])
    with torch.neuron.graph(graph):
        x.uniform_(generator=generator)
        y = torch.rand(10, device=DEVICE)
    generator.manual_seed(7)
    torch.neuron.manual_seed(3)
    drawn = []
    for _ in range(3):
        graph.replay()
        drawn.append((x.cpu(), y.cpu()))
    after = torch.rand(5, device=DEVICE, generator=generator).cpu()
    generator.manual_seed(7)
    torch.neuron.manual_seed(3)
    for first, second in drawn:
        assert torch.equal(first, torch.zeros(1000, device=DEVICE).uniform_(generator=generator).cpu())
        assert torch.equal(second, torch.rand(10, device=DEVICE).cpu())
    assert torch.equal(after, torch.rand(5, device=DEVICE, generator=generator).cpu())


def test_generators_that_cannot_be_registered() -> None:
    graph, other = torch.neuron.NeuronGraph(), torch.neuron.NeuronGraph()
    with pytest.raises(TypeError, match="'generator' must be torch.Generator, not int"):
        graph.register_generator_state(3)
    with pytest.raises(RuntimeError, match="Expected a 'neuron' device type for generator but found 'cpu'"):
        graph.register_generator_state(torch.Generator())
    shared = torch.Generator("neuron:1")
    graph.register_generator_state(shared)
    other.register_generator_state(shared)
    with torch.neuron.graph(graph), torch.neuron.device(1), torch.neuron.stream(torch.neuron.Stream(1)):
        with pytest.raises(RuntimeError, match="one graph capture at a time"):
            other.capture_begin()
        assert not torch.neuron.is_current_stream_capturing()
    assert torch.rand(3, device="neuron:1", generator=shared).shape == (3,)


def test_graphed_function() -> None:
    sample = torch.randn(3, 4, device=DEVICE, requires_grad=True)
    weight = torch.randn(4, 4, device=DEVICE)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight).tanh()

    graphed = torch.neuron.make_graphed_callables(function, (sample,))
    for _ in range(3):
        x = torch.randn(3, 4)
        ours = x.neuron().requires_grad_()
        theirs = x.clone().requires_grad_()
        out = graphed(ours)
        expected = (theirs @ weight.cpu()).tanh()
        torch.testing.assert_close(out.cpu(), expected)
        out.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


def test_graphed_modules_train_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    host = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Sequential(torch.nn.GELU(), torch.nn.Linear(8, 1)))
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Sequential(torch.nn.GELU(), torch.nn.Linear(8, 1)))
    model.load_state_dict(host.state_dict())
    model.neuron()
    x, hidden = torch.randn(6, 4, device=DEVICE), torch.randn(6, 8, device=DEVICE, requires_grad=True)
    graphed = torch.neuron.make_graphed_callables((model[0], model[1]), ((x,), (hidden,)))
    assert graphed[0] is model[0] and graphed[1] is model[1]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (host, model)]
    for step in range(5):
        inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
        losses = []
        for module, optimizer, data in zip((host, model), optimizers, (inputs, inputs.neuron()), strict=True):
            loss = F.mse_loss(module(data), torch.ones(6, 1, device=data.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    model.eval()
    torch.testing.assert_close(model(x[:2]).cpu(), host(x[:2].cpu()), rtol=1e-4, atol=1e-5)


def test_structured_outputs() -> None:
    x = torch.randn(4, device=DEVICE)
    graphed = torch.neuron.make_graphed_callables(lambda t: {"a": t + 1, "b": [t * 2]}, (x,))
    result = graphed(torch.ones(4, device=DEVICE))
    assert result["a"].tolist() == [2] * 4 and result["b"][0].tolist() == [2] * 4


def test_what_cannot_be_graphed() -> None:
    x = torch.ones(2, 4, device=DEVICE)
    with pytest.raises(TypeError, match="only Tensors"):
        torch.neuron.make_graphed_callables(lambda t, n: t * n, (x, 2))
    hooked = torch.nn.Linear(4, 4).neuron()
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="hooks"):
        torch.neuron.make_graphed_callables(hooked, (x,))
    with torch.autocast("neuron"), pytest.raises(RuntimeError, match="cache"):
        torch.neuron.make_graphed_callables(lambda t: t + 1, (x,))
