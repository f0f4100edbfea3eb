"""What broke on other young PyTorch devices, section P: loading, AMP, generators, streams and threads.

What is left out, and where it goes, stands in test_other_devices_tensors.py.
"""

from __future__ import annotations

import shutil
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "neuron"


def test_P_12_grad_scaler_skips_a_step_with_inf() -> None:
    parameter = nn.Parameter(torch.ones(2, device=DEVICE))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0, growth_interval=2)
    torch.neuron.clear_op_tracking()

    def step(factor: float) -> None:
        optimizer.zero_grad()
        scaler.scale((parameter * factor).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    step(0.25)
    assert parameter.tolist() == [0.75, 0.75] and scaler.get_scale() == 8 and scaler._get_growth_tracker() == 1
    step(float("inf"))
    assert parameter.tolist() == [0.75, 0.75] and scaler.get_scale() == 4 and scaler._get_growth_tracker() == 0
    step(0.25)
    step(0.25)
    assert parameter.tolist() == [0.25, 0.25] and scaler.get_scale() == 8 and scaler._get_growth_tracker() == 0
    again = torch.amp.GradScaler(DEVICE)
    again.load_state_dict(scaler.state_dict())
    assert again.get_scale() == 8
    assert not [name for name in torch.neuron.get_fallback_ops() if "_amp_" in str(name)]


@pytest.fixture
def broken_install(tmp_path: Path) -> Path:
    """A folder with a copy of the package whose compiled core is garbage, as after a failed or foreign build."""
    import torchneuron

    package = Path(torchneuron.__file__).parent
    shutil.copytree(package, tmp_path / "torchneuron", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    libraries = list(package.rglob("*.so"))
    assert libraries, "the compiled core is not in the package"
    for library in libraries:
        broken = tmp_path / "torchneuron" / library.relative_to(package)
        broken.write_bytes(b"not a library")
    return tmp_path


def test_P_16_torch_works_when_our_library_cannot_load(broken_install: Path, run_script: Callable) -> None:
    result = run_script(
        """
        import sys
        # Of an editable install: it would find the real package first.
        sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]
        import torch
        assert torch.ones(2).sum().item() == 2
        assert torch.neuron.is_available() is False
        makes, moves = lambda: torch.ones(1, device="neuron"), lambda: torch.ones(1).to("neuron")
        for use in (makes, moves, lambda: torch.neuron.synchronize()):
            try:
                use()
            except Exception as error:
                chain = []
                while error is not None:
                    chain.append(str(error))
                    error = error.__cause__ or error.__context__
                assert any("file too short" in text or "invalid ELF header" in text for text in chain), chain
            else:
                raise SystemExit("no error")
        """,
        PYTHONPATH=str(broken_install),
    )
    assert result.returncode == 0, result.stderr


def test_P_16_another_backend_is_installed(run_script: Callable) -> None:
    result = run_script(
        """
        import torch
        torch.utils.rename_privateuse1_backend("other")
        try:
            import torchneuron
        except Exception as error:
            assert "other" in str(error), error
        assert torch.ones(2).sum().item() == 2
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("first", ["torchneuron", "torch_neuronx"])
def test_P_16_importing_the_backend_before_torch(first: str, run_script: Callable) -> None:
    result = run_script(
        f"""
        try:
            import {first}
        except ModuleNotFoundError:
            assert "{first}" == "torch_neuronx"
        import torch
        assert torch.ones(2, device="neuron").sum().item() == 2
        """
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_P_17_fallbacks_are_visible() -> None:
    torch.neuron.clear_op_tracking()
    x = torch.tensor([0.0, 1.0, 2.0], device=DEVICE)
    assert (x + x).nonzero().tolist() == [[1], [2]]
    executed = [str(name) for name in torch.neuron.get_executed_ops()]
    fallbacks = [str(name) for name in torch.neuron.get_fallback_ops()]
    assert any(name.startswith("aten::add") for name in executed)
    assert any("nonzero" in name for name in fallbacks)
    assert not any("add" in name for name in fallbacks)
    torch.neuron.clear_op_tracking()
    assert len(torch.neuron.get_fallback_ops()) == 0 and len(torch.neuron.get_executed_ops()) == 0


def test_P_22_record_stream_prevents_reuse() -> None:
    n = 1 << 20
    side = torch.neuron.Stream()
    with torch.neuron.stream(side):
        slow = torch.eye(700, device=DEVICE)
    torch.neuron.synchronize()
    for _ in range(3):
        t = torch.full((n,), 3.0, device=DEVICE)
        address = t.data_ptr()
        side.wait_stream(torch.neuron.current_stream())
        with torch.neuron.stream(side):
            for _ in range(15):
                slow = slow @ slow
            seen = t * 1
        t.record_stream(side)
        del t
        fresh = [torch.full((n,), 9.0, device=DEVICE) for _ in range(3)]
        if not side.query():
            assert address not in [f.data_ptr() for f in fresh]
        side.synchronize()
        assert seen.eq(3).all().item()
        del fresh
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ones(1).record_stream(side)


def test_P_59_generic_events_and_streams_are_of_the_accelerator() -> None:
    event = torch.Event(DEVICE, enable_timing=True)
    assert event.device.type == DEVICE
    assert torch.Event().device.type == DEVICE
    stream = torch.Stream(DEVICE)
    assert stream.device == torch.device("neuron:0")
    with stream:
        assert torch.accelerator.current_stream() == stream
        x = torch.ones(3, device=DEVICE) + 1
        event.record(stream)
    event.wait()
    event.synchronize()
    assert event.query() and x.tolist() == [2, 2, 2]


SEND = """
    import torch, torch.multiprocessing as mp
    def child(queue, back):
        t = queue.get()
        assert t.device.type == "neuron" and t.tolist() == [1.0, 1.0]
        t.fill_(5)
        torch.neuron.synchronize()
        back.put("done")
        del t
    if __name__ == "__main__":
        context = mp.get_context("spawn")
        queue, back = context.Queue(), context.Queue()
        t = torch.ones(2, device="neuron")
        process = context.Process(target=child, args=(queue, back))
        process.start()
        queue.put(t)
        assert back.get(timeout=60) == "done"
        process.join()
        assert process.exitcode == 0 and t.tolist() == [5.0, 5.0], t
"""


def test_P_62_tensor_sent_to_another_process(run_script: Callable) -> None:
    result = run_script(SEND)
    assert (result.returncode, result.stderr) == (0, "")


def test_P_62_share_memory() -> None:
    module = nn.Linear(3, 3).to(DEVICE)
    before = [parameter.tolist() for parameter in module.parameters()]
    module.share_memory()
    assert [parameter.tolist() for parameter in module.parameters()] == before
    t = torch.ones(2, device=DEVICE).share_memory_()
    assert t.is_shared() and t.device.type == DEVICE and t.tolist() == [1, 1]


def test_P_64_functions_that_device_maps_call() -> None:
    assert torch.neuron.device_count() >= 2
    for index in range(torch.neuron.device_count()):
        free, total = torch.neuron.mem_get_info(index)
        assert 0 < free <= total
    assert torch.neuron.is_bf16_supported() is True
    assert torch.ones(1).to(1).device == torch.device("neuron:1")
    assert torch.device(0) == torch.device("neuron:0")


def test_P_72_autocast_follows_the_lists_of_cuda(random_tensor: Callable) -> None:
    x, w = random_tensor(4, 4).to(DEVICE), random_tensor(4, 4).to(DEVICE)
    image, kernel = random_tensor(1, 2, 6, 6).to(DEVICE), random_tensor(3, 2, 3, 3).to(DEVICE)
    q = random_tensor(1, 2, 4, 8).to(DEVICE)
    narrow = x.bfloat16()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        lower = {
            "matmul": x @ w,
            "linear": F.linear(x, w),
            "conv2d": F.conv2d(image, kernel),
            "attention": F.scaled_dot_product_attention(q, q, q),
            "bmm": torch.bmm(x[None], w[None]),
            "addmm": torch.addmm(x, x, w),
            "einsum": torch.einsum("ij,jk->ik", x, w),
        }
        wide = {
            "softmax": narrow.softmax(-1),
            "layer_norm": F.layer_norm(narrow, (4,)),
            "cross_entropy": F.cross_entropy(narrow, torch.arange(4, device=DEVICE)),
            "pow": narrow.pow(2),
            "sum": narrow.sum(),
            "exp": narrow.exp(),
            "norm": narrow.norm(),
            "mse_loss": F.mse_loss(narrow, narrow),
        }
        assert torch.cat([narrow, x]).dtype == torch.float32
        assert torch.cat([narrow, narrow]).dtype == torch.bfloat16
        assert (narrow + narrow).dtype == torch.bfloat16
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(w))
    assert {name: t.dtype for name, t in lower.items() if t.dtype != torch.bfloat16} == {}
    assert {name: t.dtype for name, t in wide.items() if t.dtype != torch.float32} == {}
    torch.testing.assert_close(lower["matmul"].cpu(), x.cpu().bfloat16() @ w.cpu().bfloat16())


def test_P_72_autocast_dtypes_and_custom_functions() -> None:
    assert {torch.bfloat16, torch.float16} <= set(torch.neuron.get_amp_supported_dtype())
    assert torch.amp.is_autocast_available(DEVICE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autocast(DEVICE, dtype=torch.float64):
            assert not torch.is_autocast_enabled(DEVICE)
    assert any("float64" in str(w.message) or "not supported" in str(w.message) for w in caught)

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=DEVICE, cast_inputs=torch.float32)
        def forward(ctx, x: torch.Tensor) -> torch.Tensor:
            assert x.dtype == torch.float32 and not torch.is_autocast_enabled(DEVICE)
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type=DEVICE)
        def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    x = torch.ones(2, dtype=torch.bfloat16, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        y = Double.apply(x)
    y.sum().backward()
    assert y.dtype == torch.float32 and x.grad.tolist() == [2, 2]


def test_P_74_sparse_tensors(random_tensor: Callable) -> None:
    indices, values = torch.tensor([[0, 1, 1], [1, 0, 0]]), torch.tensor([1.0, 2.0, 3.0])
    sparse = torch.sparse_coo_tensor(indices.to(DEVICE), values.to(DEVICE), (2, 2), device=DEVICE)
    assert sparse.is_sparse and sparse.device.type == DEVICE
    assert sparse.to_dense().tolist() == [[0, 1], [5, 0]]
    assert sparse.coalesce().values().tolist() == [1, 5]
    dense = random_tensor(2, 3)
    torch.testing.assert_close((sparse @ dense.to(DEVICE)).cpu(), torch.tensor([[0.0, 1.0], [5.0, 0.0]]) @ dense)
    coo = dense.to(DEVICE).to_sparse()
    assert coo.device.type == DEVICE and coo.to_dense().cpu().equal(dense)
    csr = torch.tensor([[0.0, 1.0], [5.0, 0.0]]).to(DEVICE).to_sparse_csr()
    assert csr.device.type == DEVICE
    torch.testing.assert_close((csr @ dense.to(DEVICE)).cpu(), torch.tensor([[0.0, 1.0], [5.0, 0.0]]) @ dense)
    embedding = nn.Embedding(5, 2, sparse=True).to(DEVICE)
    embedding(torch.tensor([1, 3, 1], device=DEVICE)).sum().backward()
    assert embedding.weight.grad.is_sparse
    assert embedding.weight.grad.to_dense().tolist() == [[0, 0], [2, 2], [0, 0], [1, 1], [0, 0]]
    before = embedding.weight.tolist()
    torch.optim.SGD(embedding.parameters(), lr=1.0).step()
    assert embedding.weight[0].tolist() == before[0] and embedding.weight[1].tolist() != before[1]


def test_P_74_jagged_nested_tensors(random_tensor: Callable) -> None:
    parts = [random_tensor(n, 4) for n in (2, 5, 1)]
    weight = random_tensor(3, 4)
    nested = torch.nested.nested_tensor([p.to(DEVICE) for p in parts], layout=torch.jagged, device=DEVICE)
    assert nested.device.type == DEVICE
    for got, part in zip(F.linear(nested * 2, weight.to(DEVICE)).unbind(), parts):
        torch.testing.assert_close(got.cpu(), F.linear(part * 2, weight))
    assert torch.nested.to_padded_tensor(nested, 0.0).shape == (3, 5, 4)


def test_P_76_backward_from_many_threads(random_tensor: Callable) -> None:
    weights = random_tensor(8, 6, 6)
    gradients: list[torch.Tensor | None] = [None] * 8

    def work(i: int) -> None:
        w = weights[i].to(f"neuron:{i % 2}").requires_grad_()
        for _ in range(5):
            w.grad = None
            checkpoint(lambda t: (t @ t).sin(), w, use_reentrant=bool(i % 2)).sum().backward()
        gradients[i] = w.grad.cpu()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    for i, gradient in enumerate(gradients):
        w = weights[i].clone().requires_grad_()
        (w @ w).sin().sum().backward()
        torch.testing.assert_close(gradient, w.grad, rtol=1e-4, atol=1e-5)


def test_P_76_hooks_that_read_and_single_threaded_backward() -> None:
    seen = []
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = x * 3
    y.register_hook(lambda grad: seen.append((grad.sum().item(), torch.neuron.current_device())))
    with torch.autograd.set_multithreading_enabled(False):
        y.sum().backward()
    assert seen == [(2.0, 0)] and x.grad.tolist() == [3, 3]
    z = torch.ones(2, device="neuron:1", requires_grad=True)
    (z.to("neuron:0") * 2).sum().backward()
    assert z.grad.tolist() == [2, 2] and z.grad.device == torch.device("neuron:1")


def test_P_84_accelerator_interface() -> None:
    accelerator = torch.accelerator
    assert accelerator.is_available() and accelerator.current_accelerator() == torch.device("neuron")
    assert accelerator.device_count() == torch.neuron.device_count() > 0
    assert accelerator.current_device_index() == 0
    with accelerator.device_index(1):
        assert accelerator.current_device_index() == torch.neuron.current_device() == 1
    accelerator.synchronize()
    base = accelerator.memory_allocated()
    x = torch.empty(1 << 20, dtype=torch.uint8, device=DEVICE)
    assert accelerator.memory_allocated() - base == 1 << 20
    del x
    assert accelerator.memory_allocated() == base
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()
    assert accelerator.max_memory_allocated() == base
    free, total = accelerator.get_memory_info()
    assert 0 < free <= total
    capability = accelerator.get_device_capability()
    assert {torch.float32, torch.bfloat16, torch.int64} <= set(capability["supported_dtypes"])


def test_P_86_a_missing_device_is_never_the_cpu(run_script: Callable) -> None:
    result = run_script(
        """
        import torch
        assert torch.neuron.is_available() is False and torch.neuron.device_count() == 0
        try:
            x = torch.ones(1, device="neuron")
        except Exception as error:
            assert "TORCHNEURON_INSTANCE" in str(error) and "trn2.48xlarge" in str(error), error
        else:
            raise SystemExit(f"made {x}")
        """,
        TORCHNEURON_INSTANCE="nonsense",
    )
    assert result.returncode == 0, result.stderr


def test_P_86_the_emulation_announces_itself() -> None:
    properties = torch.neuron.get_device_properties(0)
    assert properties.is_emulated is True
    assert "trn2" in properties.name
    assert "emulat" in torch.neuron.get_device_name(0).lower()
    assert "emulat" in repr(properties).lower()
