"""Tests of PyTorch that a mature out-of-tree backend switches off, section N: gradients, modules and serialisation.

N-20 is a sample here; whole-database conformance is a program of its own. The rest of N is in
test_switched_off_values.py.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "neuron"


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[0],
        lambda x: x.narrow(1, 0, 2),
        lambda x: x.select(1, 2),
        lambda x: x.t()[1],
        lambda x: x.view(2, 6)[:, ::2],
        lambda x: x.diagonal(),
        lambda x: x.unsqueeze(0).squeeze(0),
        lambda x: x.as_strided((2, 2), (1, 4), 1),
        lambda x: x.expand(3, 4)[1],
    ],
    ids=["select0", "narrow", "select1", "transpose", "slice", "diagonal", "squeeze", "as_strided", "expand"],
)
def test_N_01_in_place_on_views(view: Callable, parity: Callable, random_tensor: Callable) -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        v = view(y)
        v.mul_(2).add_(w.sum())
        v.copy_(v + 1)
        return y * 3

    parity(run, random_tensor(3, 4), random_tensor(2), grad=True)


def test_N_01_in_place_on_several_outputs_of_a_view_raises(on_both: Callable) -> None:
    def run(device: str) -> torch.Tensor:
        x = torch.ones(4, 2, device=device, requires_grad=True).clone()
        first, _ = x.split(2)
        first.mul_(2)
        return x

    def of_leaf(device: str) -> torch.Tensor:
        return torch.ones(4, device=device, requires_grad=True)[1:].mul_(2)

    def of_saved(device: str) -> None:
        x = torch.ones(4, device=device, requires_grad=True)
        y = x.exp()
        y[0] = 2
        y.sum().backward()

    on_both(run, raises=RuntimeError, message="is a view and is being modified inplace")
    on_both(of_leaf, raises=RuntimeError, message="a view of a leaf Variable that requires grad")
    on_both(of_saved, raises=RuntimeError, message="modified by an inplace operation")


@pytest.mark.parametrize("target", ["cpu", "neuron", "neuron:1", "function", "dict", "meta"])
def test_N_13_map_location(target: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    torch.save({"x": x, "row": x[1], "bf16": x.bfloat16().t(), "flag": torch.tensor(True, device=DEVICE)}, path)
    location = {"function": lambda storage, place: storage, "dict": {"neuron:0": "neuron:1"}}.get(target, target)
    device = {"function": "cpu", "dict": "neuron:1", "neuron": "neuron:0"}.get(target, target)
    loaded = torch.load(path, map_location=location)
    assert {str(t.device) for t in loaded.values()} == {device}
    if target != "meta":
        assert loaded["x"].tolist() == x.tolist() and loaded["bf16"].tolist() == x.t().tolist()
        assert loaded["flag"].item() is True
        loaded["x"][1, 0] = 40
        assert loaded["row"].tolist() == [40, 4, 5]


def test_N_13_saved_on_the_device_loads_there_and_by_mmap(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    x = torch.arange(6.0, device="neuron:1")
    torch.save({"x": x}, path)
    assert torch.load(path)["x"].device == torch.device("neuron:1")
    assert torch.load(path, map_location="cpu", mmap=True)["x"].tolist() == x.tolist()
    torch.save({"x": torch.arange(4)}, path)
    assert torch.load(path, map_location=DEVICE)["x"].tolist() == [0, 1, 2, 3]
    assert torch.load(path, map_location=DEVICE, mmap=True)["x"].device.type == DEVICE
    optimizer_state = {"step": torch.tensor(3.0), "exp_avg": x}
    buffer = io.BytesIO()
    torch.save(optimizer_state, buffer)
    buffer.seek(0)
    assert torch.load(buffer, map_location=DEVICE)["exp_avg"].tolist() == x.tolist()


def test_N_13_pinned_memory_receives_device_data(random_tensor: Callable) -> None:
    x = random_tensor(1000, 3)
    target = torch.empty(1000, 3, pin_memory=True)
    target.copy_(x.to(DEVICE), non_blocking=True)
    torch.neuron.current_stream().synchronize()
    assert target.is_pinned() and torch.equal(target, x)


def test_N_19_forward_mode(random_tensor: Callable) -> None:
    x, t = random_tensor(3, 3), random_tensor(3, 3)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.t()).sin().softmax(-1) * x.exp()

    want = torch.func.jvp(function, (x,), (t,))
    got = torch.func.jvp(function, (x.to(DEVICE),), (t.to(DEVICE),))
    for a, b in zip(got, want):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)
    hessian = torch.func.hessian(lambda v: (v**3).sum())(torch.tensor([1.0, 2.0], device=DEVICE))
    assert hessian.tolist() == [[6, 0], [0, 12]]
    per_sample = torch.func.vmap(torch.func.grad(lambda v: (v * v).sum()))(x.to(DEVICE))
    torch.testing.assert_close(per_sample.cpu(), 2 * x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x @ x.t()).tanh(),
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.softmax(x, 0) * x.exp(),
        lambda x: F.conv1d(x[None], x[:2].view(2, 4, 1)[:, :3]),
        lambda x: F.gelu(x).cumsum(0)[1:].prod(1),
        lambda x: torch.linalg.norm(x, dim=1),
    ],
    ids=["matmul", "layer_norm", "softmax", "conv1d", "gelu", "norm"],
)
def test_N_19_gradgradcheck(function: Callable, random_tensor: Callable) -> None:
    x = random_tensor(3, 4, dtype=torch.float64).to(DEVICE).requires_grad_()
    assert torch.autograd.gradcheck(function, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, (x,))


MODULES = {
    "linear": (lambda: nn.Linear(6, 3), (4, 6)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 2), (2, 3, 7)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, padding=1, stride=2), (2, 3, 8, 8)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 2, 3, stride=2), (2, 3, 4, 4)),
    "grouped": (lambda: nn.Conv2d(4, 4, 3, groups=4), (2, 4, 6, 6)),
    "batch_norm": (lambda: nn.BatchNorm2d(3), (4, 3, 5, 5)),
    "layer_norm": (lambda: nn.LayerNorm(6), (4, 6)),
    "group_norm": (lambda: nn.GroupNorm(2, 4), (2, 4, 5)),
    "rms_norm": (lambda: nn.RMSNorm(6), (4, 6)),
    "instance_norm": (lambda: nn.InstanceNorm1d(3), (2, 3, 7)),
    "max_pool": (lambda: nn.MaxPool2d(2), (2, 3, 6, 6)),
    "avg_pool": (lambda: nn.AdaptiveAvgPool2d(2), (2, 3, 6, 6)),
    "lstm": (lambda: nn.LSTM(4, 5, 2), (3, 2, 4)),
    "gru": (lambda: nn.GRU(4, 5, bidirectional=True), (3, 2, 4)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), (5, 2, 8)),
    "prelu": (lambda: nn.PReLU(), (3, 4)),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 3, 3)),
    "bilinear": (lambda: nn.Sequential(nn.Flatten(), nn.Softmax(1)), (2, 3, 2)),
    "pixel_shuffle": (lambda: nn.PixelShuffle(2), (1, 8, 2, 2)),
}


def first_output(output: torch.Tensor | tuple) -> torch.Tensor:
    return output[0] if isinstance(output, tuple) else output


@pytest.mark.parametrize("strided", [False, True], ids=["contiguous", "strided"])
@pytest.mark.parametrize("name", MODULES)
def test_N_20_modules(name: str, strided: bool, random_tensor: Callable) -> None:
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module = make()
    twin = pickle.loads(pickle.dumps(module)).to(DEVICE).to("cpu").to("neuron:1").to(DEVICE)
    x = random_tensor(*shape)
    results = []
    for which, device in ((module, "cpu"), (twin, DEVICE)):
        inputs = x.clone().to(device)
        if strided:
            inputs = inputs.transpose(0, -1).contiguous().transpose(0, -1)
        inputs.requires_grad_()
        output = first_output(which(inputs))
        (output * output).sum().backward()
        parameters = [p.grad for p in which.parameters()]
        results.append([output.detach(), inputs.grad, *parameters, *which.buffers()])
    again = pickle.loads(pickle.dumps(twin))
    assert {p.device.type for p in again.parameters()} <= {DEVICE}
    for want, got in zip(*results):
        assert got.device == torch.device("neuron:0")
        torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
