"""Compiled graphs on `neuron` give what the same code gives on `cpu` without a compiler."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
        self.up = torch.nn.Linear(64, 128)
        self.down = torch.nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(F.gelu(self.up(self.norm(x))))[:, None]
        return F.scaled_dot_product_attention(y, y, y, is_causal=True).sum(1) + x


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["inductor", "neuron"])
def test_training_step(backend: str, dynamic: bool) -> None:
    torch.manual_seed(0)
    on_cpu = Block()
    on_neuron = copy.deepcopy(on_cpu).to("neuron")
    compiled = torch.compile(on_neuron, backend=backend, dynamic=dynamic)
    for batch in (4, 3):
        x = torch.randn(batch, 32, 64)
        expected = on_cpu(x)
        actual = compiled(x.to("neuron"))
        torch.testing.assert_close(actual.cpu(), expected, atol=1e-5, rtol=1e-5)
        expected.square().mean().backward()
        actual.square().mean().backward()
    for ours, theirs in zip(on_neuron.parameters(), on_cpu.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, atol=1e-5, rtol=1e-4)


def test_kernels_are_launches() -> None:
    compiled = torch.compile(lambda x: (x.sin() + 1).cos())
    x = torch.randn(64, device="neuron")
    compiled(x)
    torch.neuron.clear_op_tracking()
    with torch.neuron.stream(torch.neuron.Stream()) as _:
        torch.neuron._sleep(int(2e8))
        result = compiled(x)
        assert not torch.neuron.current_stream().query()
    torch.neuron.synchronize()
    torch.testing.assert_close(result.cpu(), (x.cpu().sin() + 1).cos())
    assert any(name.startswith("inductor::cpp_fused") for name in torch.neuron.get_executed_ops())
    assert not torch.neuron.get_fallback_ops()


def test_unknown_option_lists_the_known_ones() -> None:
    for backend in ("inductor", "neuron"):
        with pytest.raises(Exception, match=r"Unexpected optimization option nope, known options are \['"):
            torch.compile(lambda t: t + 3, backend=backend, options={"nope": 1})(torch.ones(3, device="neuron"))


def test_dropout_draws_from_the_device_generator() -> None:
    x = torch.ones(1000, device="neuron")
    drop = torch.compile(lambda x: F.dropout(x, 0.5))
    drop(x)
    torch.manual_seed(1)
    first, second = drop(x), drop(x)
    torch.manual_seed(1)
    assert torch.equal(drop(x), first)
    assert not torch.equal(first, second)
    assert set(first.unique().tolist()) == {0.0, 2.0}


def test_random_operators_without_a_lowering() -> None:
    torch.manual_seed(0)
    permuted, drawn = torch.compile(lambda p: (torch.randperm(100, device="neuron"), torch.multinomial(p, 3)))(
        torch.ones(10, device="neuron")
    )
    assert sorted(permuted.tolist()) == list(range(100))
    assert len(set(drawn.tolist())) == 3


def test_cpu_tensor_is_refused_but_for_a_scalar() -> None:
    x = torch.ones(16, device="neuron")
    with pytest.raises(Exception, match="found at least two devices, neuron:0 and cpu"):
        torch.compile(lambda t, c: t + c)(x, torch.randn(16))
    assert torch.compile(lambda t, c: t * c)(x, torch.tensor(3.0)).tolist() == [3.0] * 16


def test_graph_with_parts_on_cpu() -> None:
    x = torch.randn(16, device="neuron")
    host, device = torch.compile(lambda t: (t.cpu() * 2, t + 1))(x)
    assert host.device.type == "cpu" and device.device.type == "neuron"
    torch.testing.assert_close(host, x.cpu() * 2)

    def writes_to_both(t: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        c.add_(1)
        return t.add_(c.to("neuron"))

    counter, target = torch.zeros(16), torch.zeros(16, device="neuron")
    torch.compile(writes_to_both)(target, counter)
    assert counter.tolist() == target.tolist() == [1.0] * 16


def test_two_devices_in_one_graph() -> None:
    x = torch.arange(4.0, device="neuron:0")
    y = torch.compile(lambda t: (t * 2).to("neuron:1") + 1)(x)
    assert y.device == torch.device("neuron:1") and y.tolist() == [1.0, 3.0, 5.0, 7.0]


def test_constants_lie_on_the_device(same_as_cpu: Callable) -> None:
    table = torch.arange(100.0, device="neuron")
    assert torch.compile(lambda t: t + table)(torch.ones(100, device="neuron")).tolist() == [
        i + 1.0 for i in range(100)
    ]
    same_as_cpu(lambda t: t + torch.tensor([1.0, 2.0, 3.0], device=t.device), torch.randn(3))


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_control_flow(value: float, same_as_cpu: Callable) -> None:
    from torch._higher_order_ops import while_loop

    x = torch.full((4,), value)
    same_as_cpu(lambda t: torch.cond(t.sum() > 0, lambda a: a * 2, lambda a: a - 1, (t,)), x)
    same_as_cpu(lambda t: t + 1 if t.sum().item() > 0 else t - 1, x)
    if value > 0:
        same_as_cpu(
            lambda t: while_loop(
                lambda i, a: i < 5, lambda i, a: (i + 1, a * 2), (torch.tensor(0, device=t.device), t)
            )[1],
            x,
        )


def test_custom_operator_sees_the_device() -> None:
    seen = []

    @torch.library.custom_op("torchneuron_tests::double", mutates_args=())
    def double(t: torch.Tensor) -> torch.Tensor:
        seen.append(t.device.type)
        return t * 2

    @double.register_fake
    def _(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(t)

    result = torch.compile(lambda t: double(t + 1) + 1, fullgraph=True)(torch.ones(3, device="neuron"))
    assert result.tolist() == [5.0] * 3
    assert seen == ["neuron"]


def test_autocast_inside_and_outside() -> None:
    linear = torch.nn.Linear(16, 16).to("neuron")
    x = torch.randn(8, 16, device="neuron")

    def inside(t: torch.Tensor) -> torch.Tensor:
        with torch.autocast("neuron", dtype=torch.bfloat16):
            return linear(t)

    expected = inside(x)
    assert expected.dtype == torch.bfloat16
    torch.testing.assert_close(torch.compile(inside)(x), expected)
    with torch.autocast("neuron", dtype=torch.bfloat16):
        torch.testing.assert_close(torch.compile(lambda t: linear(t))(x), expected)


def test_compiled_optimizer_step() -> None:
    torch.manual_seed(0)
    values = [torch.randn(5, 5) for _ in range(3)]
    ours = [torch.nn.Parameter(v.to("neuron")) for v in values]
    theirs = [torch.nn.Parameter(v.clone()) for v in values]
    optimizer, expected = torch.optim.AdamW(ours), torch.optim.AdamW(theirs)
    step = torch.compile(lambda: optimizer.step())
    for _ in range(3):
        for p in ours + theirs:
            p.grad = torch.full_like(p, 0.3)
        step()
        expected.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p.cpu(), q)


def test_function_transforms(same_as_cpu: Callable) -> None:
    x = torch.randn(4, 5)
    same_as_cpu(lambda t: torch.func.vmap(torch.func.grad(lambda r: (r**3).sum()))(t), x)
    same_as_cpu(lambda t: torch.func.jvp(torch.sin, (t,), (t,)), x)


def test_batch_norm_updates_its_buffers() -> None:
    torch.manual_seed(0)
    on_cpu = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    on_neuron = copy.deepcopy(on_cpu).to("neuron")
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(torch.compile(on_neuron)(x.to("neuron")).cpu(), on_cpu(x))
    torch.testing.assert_close(on_neuron[1].running_mean.cpu(), on_cpu[1].running_mean)


def test_exported_program() -> None:
    linear = torch.nn.Linear(16, 4).to("neuron")
    x = torch.randn(8, 16, device="neuron")
    exported = torch.export.export(linear, (x,)).module()
    torch.testing.assert_close(exported(x), linear(x))
    torch.testing.assert_close(torch.compile(exported)(x), linear(x))


def test_second_process_finds_the_graph_in_the_cache(run_script: Callable, tmp_path) -> None:
    script = """
        import torch
        from torch._dynamo.utils import counters
        f = torch.compile(lambda x: (x.sin() + 1).cos())
        print(f(torch.zeros(4, device="neuron")).tolist()[0])
        print(counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"])
    """
    outputs = [run_script(script, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache")) for _ in range(2)]
    assert all(result.returncode == 0 for result in outputs), outputs
    (first, misses), (second, hits) = (result.stdout.split() for result in outputs)
    assert float(first) == float(second) == pytest.approx(0.5403023)  # cos(1)
    assert int(misses) == 0 and int(hits) > 0
