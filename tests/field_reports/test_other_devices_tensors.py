"""What broke on other young PyTorch devices, section P: storages, copies, views, casts, printing and pinned memory.

Left to torch.compile: P-02, P-04, P-39, P-41, P-46, P-56, P-57, and P-59 inside compiled code. Left to
torch.distributed: P-11, P-66, P-69. Left to the profiler: P-24. P-64 needs libraries: here are only the functions that
they call. The other entries of P are in the other files test_other_devices_*.py.
"""

from __future__ import annotations

import copy
import io
import pickle
import re
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import default_collate

DEVICE = "neuron"


def test_P_01_swapping_data_between_devices() -> None:
    parameter = nn.Parameter(torch.ones(2))
    identity = id(parameter)
    parameter.data = torch.full((2,), 5.0, device=DEVICE)
    assert parameter.device.type == DEVICE and parameter.tolist() == [5, 5] and id(parameter) == identity
    (parameter * 2).sum().backward()
    assert parameter.grad is not None and parameter.grad.device.type == DEVICE
    parameter.grad = None
    parameter.data = torch.zeros(3)
    assert parameter.device.type == "cpu" and parameter.tolist() == [0, 0, 0]


@pytest.mark.parametrize("overwrite", [False, True])
def test_P_01_module_to_keeps_parameters_and_ties(overwrite: bool) -> None:
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(overwrite)
    try:
        module = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2, bias=False)})
        module["b"].weight = module["a"].weight
        weight, expected = module["a"].weight, module["a"].weight.tolist()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        module.to(DEVICE)
        assert module["a"].weight.device.type == DEVICE and module["a"].weight.tolist() == expected
        if not overwrite:
            assert module["a"].weight is weight and module["b"].weight is weight
            module["b"](torch.ones(1, 2, device=DEVICE)).sum().backward()
            optimizer.step()
            expected = [[value - 0.5 for value in row] for row in expected]
            torch.testing.assert_close(module["a"].weight.cpu(), torch.tensor(expected))
        module.to("cpu")
        assert module["a"].weight.device.type == "cpu"
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)


def test_P_01_under_fake_tensors() -> None:
    with FakeTensorMode():
        parameter = nn.Parameter(torch.ones(2))
        parameter.data = torch.ones(3, device=DEVICE)
        assert parameter.shape == (3,)
        module = nn.Linear(2, 2, device=DEVICE)
        assert module(torch.ones(1, 2, device=DEVICE)).device.type == DEVICE


def test_P_06_module_is_registered_before_first_use(run_script: Callable) -> None:
    result = run_script(
        """
        import torch
        assert torch.get_device_module("neuron") is torch.neuron
        assert torch.get_device_module() is torch.neuron
        assert torch.rand(2).to("neuron").device.type == "neuron"
        assert torch._C._get_privateuse1_backend_name() == "neuron"
        """
    )
    assert result.returncode == 0, result.stderr


def test_P_06_collate() -> None:
    batch = default_collate([{"x": torch.ones(2, device=DEVICE), "y": i} for i in range(3)])
    assert batch["x"].device.type == DEVICE and batch["x"].shape == (3, 2)


def test_P_07_storages() -> None:
    t = torch.arange(4, dtype=torch.int32).to(DEVICE)
    host = torch.arange(4, dtype=torch.int32).untyped_storage()
    storage = t.untyped_storage()
    assert storage.device.type == DEVICE and storage.nbytes() == 16
    assert storage.tolist() == host.tolist()
    assert storage.cpu().tolist() == host.tolist()
    assert storage[4:8].tolist() == [1, 0, 0, 0]
    clone = storage.clone()
    assert clone.device.type == DEVICE and clone.data_ptr() != storage.data_ptr() and clone.tolist() == host.tolist()
    storage[0] = 9
    assert t.tolist() == [9, 1, 2, 3]
    moved = host.to(device=DEVICE)
    assert moved.device.type == DEVICE and moved.tolist() == host.tolist()
    storage.resize_(32)
    assert storage.nbytes() == 32 and t.tolist() == [9, 1, 2, 3]


def test_P_07_deepcopy_keeps_sharing() -> None:
    t = torch.arange(4.0, device=DEVICE)
    whole, tail = copy.deepcopy([t, t[1:]])
    assert whole.device.type == DEVICE and whole.tolist() == [0, 1, 2, 3] and tail.tolist() == [1, 2, 3]
    whole[2] = 9
    assert tail.tolist() == [1, 9, 3] and t.tolist() == [0, 1, 2, 3]
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(DEVICE)
    twin = copy.deepcopy(module)
    for (name, original), (_, copied) in zip(module.state_dict().items(), twin.state_dict().items()):
        assert copied.device.type == DEVICE and torch.equal(original.cpu(), copied.cpu()), name
        assert copied.data_ptr() != original.data_ptr(), name


def test_P_07_pickle_keeps_device_and_strides() -> None:
    t = torch.arange(6.0, device=DEVICE).view(2, 3).t()
    again, view = pickle.loads(pickle.dumps((t, t[1])))
    assert again.device == t.device and again.stride() == t.stride() and again.tolist() == t.tolist()
    assert view.device == t.device and view.tolist() == [1, 4]
    parameter = pickle.loads(pickle.dumps(nn.Parameter(t.clone())))
    assert isinstance(parameter, nn.Parameter) and parameter.requires_grad and parameter.device.type == DEVICE


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor([1.5, -2.0, float("nan"), float("inf"), 1e-9]),
        lambda: torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16),
        lambda: torch.tensor([1.0, 0.5]).to(torch.float8_e4m3fn),
        lambda: torch.tensor([True, False]),
        lambda: torch.tensor([-3, 100], dtype=torch.int8),
        lambda: torch.tensor([1 + 2j, -3.5j]),
        lambda: torch.tensor(3.25),
        lambda: torch.empty(0, 3),
        lambda: torch.arange(6.0).view(2, 3).t(),
        lambda: torch.arange(5000.0).view(50, 100),
        lambda: torch.tensor([1.0], requires_grad=True),
        lambda: torch.tensor([1.0], requires_grad=True) * 2,
        lambda: torch.tensor([1e10, 1.0]),
    ],
    ids="special bf16 f8 bool int8 complex 0-d empty strided large leaf graph wide".split(),
)
def test_P_09_repr_has_the_digits_of_cpu(make: Callable[[], torch.Tensor]) -> None:
    host = make()
    on_device = host.detach().to(DEVICE).requires_grad_(host.requires_grad)
    if host.grad_fn is not None:
        on_device = torch.tensor([1.0], device=DEVICE, requires_grad=True) * 2
    text, of_device = repr(on_device), re.compile(r",\s+device='neuron:0'")
    assert of_device.search(text)
    assert " ".join(of_device.sub("", text).split()) == " ".join(repr(host).split())
    assert f"{on_device}" == (f"{host}" if host.ndim == 0 else text)


def test_P_21_conversion_during_a_non_blocking_copy(random_tensor: Callable) -> None:
    host = random_tensor(1000, 33)
    pinned = host.pin_memory()
    for dtype in (torch.bfloat16, torch.float64, torch.int32):
        assert torch.equal(pinned.to(DEVICE, dtype, non_blocking=True).cpu(), host.to(dtype))
    assert torch.equal(pinned.t().to(DEVICE, torch.float16, non_blocking=True).cpu(), host.t().half())
    target = torch.empty(1000, 33, dtype=torch.float64, pin_memory=True)
    target.copy_(host.to(DEVICE), non_blocking=True)
    torch.neuron.synchronize()
    assert torch.equal(target, host.double())


def test_P_21_copies_are_ordered_on_their_stream(random_tensor: Callable) -> None:
    host = random_tensor(512, 512).pin_memory()
    x = torch.zeros(512, 512, device=DEVICE)
    for _ in range(5):
        x = x @ x
    x.copy_(host, non_blocking=True)
    assert torch.equal((x * 2).cpu(), host * 2)


def test_P_34_writes_reach_only_their_view() -> None:
    base = torch.ones(8, device=DEVICE)
    base[2:4].zero_()
    assert base.tolist() == [1, 1, 0, 0, 1, 1, 1, 1]
    base[::2].fill_(5)
    assert base.tolist() == [5, 1, 5, 0, 5, 1, 5, 1]
    base[5:7].copy_(torch.tensor([8.0, 9.0]))
    assert base.tolist() == [5, 1, 5, 0, 5, 8, 9, 1]
    base.view(2, 4).t()[1].zero_()
    assert base.tolist() == [5, 0, 5, 0, 5, 0, 9, 1]
    wide = torch.zeros(100, device=DEVICE)
    wide[10:20].random_(1, 3)
    wide[40:80:4].normal_(100, 1)
    assert wide.ne(0).nonzero().flatten().tolist() == [*range(10, 20), *range(40, 80, 4)]


def test_P_34_filling_an_expanded_view(on_both: Callable) -> None:
    def fill(device: str) -> list[list[float]]:
        one, other = torch.ones(1, device=device), torch.zeros(1, device=device)
        one.expand(4).zero_()
        other.expand(3).fill_(7)
        return [one.tolist(), other.tolist()]

    on_both(fill)
    message = "more than one element of the written-to tensor refers to a single memory location"
    on_both(lambda d: torch.ones(1, device=d).expand(4).add_(1), raises=RuntimeError, message=message)
    on_both(
        lambda d: torch.ones(1, device=d).expand(4).copy_(torch.ones(4, device=d)), raises=RuntimeError, message=message
    )


def test_P_36_overlap_rules(on_both: Callable) -> None:
    single = "more than one element of the written-to tensor refers to a single memory location"
    partial = "some elements of the input tensor and the written-to tensor refer to a single memory location"
    on_both(lambda d: torch.ones(3, device=d).expand(3, 3).add_(1), raises=RuntimeError, message=single)
    on_both(lambda d: torch.ones(3, device=d).expand(3, 3).mul_(2), raises=RuntimeError, message=single)

    def shifted(device: str) -> torch.Tensor:
        x = torch.arange(5.0, device=device)
        return torch.add(x[:-1], 1, out=x[1:])

    on_both(shifted, raises=RuntimeError, message=partial)

    def transposed(device: str) -> torch.Tensor:
        x = torch.arange(9.0, device=device).view(3, 3)
        return torch.add(x, 1, out=x.t())

    on_both(transposed, raises=RuntimeError, message=partial)

    def whole(device: str) -> torch.Tensor:
        x = torch.arange(9.0, device=device).view(3, 3)
        torch.add(x, 1, out=x)
        torch._foreach_add_([x, x], 1)
        return x

    on_both(whole)


def test_P_36_overlapping_copy_as_on_cpu(on_both: Callable) -> None:
    def run(device: str) -> torch.Tensor:
        x = torch.arange(5.0, device=device)
        x[1:].copy_(x[:-1].clone())
        return x

    on_both(run)


def test_P_37_reading_views_back(random_tensor: Callable) -> None:
    host = random_tensor(2, 4, 3)
    views = {
        "expand": lambda t: t[:1, :, :1].expand(1, 4, 3),
        "transpose": lambda t: t.transpose(0, 2),
        "step": lambda t: t[:, ::2],
        "offset": lambda t: t[1, 2:],
        "flip": lambda t: t.flip(1),
        "permute": lambda t: t.permute(1, 2, 0),
        "diagonal": lambda t: t.diagonal(dim1=0, dim2=1),
        "unfold": lambda t: t.unfold(1, 2, 1),
        "as_strided": lambda t: t.as_strided((3, 3), (1, 2), 1),
    }
    on_device = host.to(DEVICE)
    for name, view in views.items():
        assert torch.equal(view(on_device).cpu(), view(host)), name
        assert view(on_device).stride() == view(host).stride(), name
        assert torch.equal(view(host).to(DEVICE).cpu(), view(host)), name
        target = torch.empty(view(host).shape)
        assert torch.equal(target.copy_(view(on_device)), view(host)), name
    assert on_device.transpose(0, 2).cpu().stride() == host.transpose(0, 2).stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_P_42_casts_of_fractions(dtype: torch.dtype) -> None:
    host = torch.tensor([0.0, 1.5, -2.7, 300.0], dtype=dtype)
    for target in (torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.bool):
        assert torch.equal(host.to(DEVICE).to(target).cpu(), host.to(target)), target
    assert host.to(DEVICE).to(torch.int64).tolist() == [0, 1, -2, 300]
    small = torch.tensor([0.0, 1.5, 2.7, 100.0], dtype=dtype)
    for target in (torch.uint8, torch.int8, torch.float8_e5m2):
        assert torch.equal(small.to(DEVICE).to(target).float().cpu(), small.to(target).float()), target


@pytest.mark.parametrize(
    "arguments",
    [(0, 10, 3), (5, 0, -2), (0, 1, 0.1), (1.0, -1.0, -0.3), (2**53, 2**53 + 5), (2**62, 2**62 + 9, 4), (3, 3)],
    ids=str,
)
def test_P_44_arange(arguments: tuple[float, ...], on_both: Callable) -> None:
    on_both(lambda device: torch.arange(*arguments, device=device), rtol=0, atol=0)
    on_both(lambda device: torch.arange(*arguments, device=device, dtype=torch.float64), rtol=0, atol=0)


def test_P_44_huge_start_is_exact() -> None:
    assert torch.arange(2**62, 2**62 + 9, 4, device=DEVICE).tolist() == [2**62, 2**62 + 4, 2**62 + 8]


def test_P_67_activations_saved_on_the_host_keep_their_offset(random_tensor: Callable) -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return (x[1:].t() * w[::2].exp()).sin()

    x, w = random_tensor(4, 3), random_tensor(6, 3)
    expected = [t.clone().requires_grad_() for t in (x, w)]
    (expected[0][1:].t() * expected[1][::2].exp()).sin().sum().backward()
    actual = [t.to(DEVICE).requires_grad_() for t in (x, w)]
    run(*actual).sum().backward()
    for got, want in zip(actual, expected):
        torch.testing.assert_close(got.grad.cpu(), want.grad)


def test_P_77_conjugate_and_negative_bits_are_materialised(random_tensor: Callable) -> None:
    host = random_tensor(3, 4, dtype=torch.complex64)
    z = host.to(DEVICE)
    assert torch.equal(z.conj().cpu(), host.conj().resolve_conj())
    assert torch.equal(z.imag.neg().cpu(), host.imag.neg())
    assert torch.equal(torch._neg_view(z.real).cpu(), -host.real)
    parts = torch.view_as_real(z.conj().resolve_conj())
    assert torch.equal(parts.cpu(), torch.view_as_real(host.conj().resolve_conj()))
    assert torch.equal(host.conj().to(DEVICE).cpu(), host.conj().resolve_conj())
    assert torch.equal((z.conj().t() + z.t()).cpu(), (host.conj().t() + host.t()).resolve_conj())
    target = torch.zeros(3, 4, dtype=torch.complex64, device=DEVICE)
    target.conj().copy_(z)
    assert torch.equal(target.cpu(), host.conj().resolve_conj())
    buffer = io.BytesIO()
    torch.save(z.conj(), buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer).cpu(), host.conj().resolve_conj())
