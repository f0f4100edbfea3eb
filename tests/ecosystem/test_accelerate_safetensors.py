"""Accelerate finds `neuron` by itself; safetensors writes and reads its tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@pytest.fixture(autouse=True)
def forget_the_accelerator():
    """Accelerate keeps its state for the process; every test starts without it."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()


def regression(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader]:
    torch.manual_seed(seed)
    inputs = torch.randn(256, 8)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=32, shuffle=True)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2), loader


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerator_trains_on_neuron_without_being_told(precision: str) -> None:
    accelerator = Accelerator(mixed_precision=precision, gradient_accumulation_steps=2)
    assert accelerator.device.type == "neuron"
    model, optimizer, loader = accelerator.prepare(*regression())
    losses = []
    for _ in range(6):
        for inputs, targets in loader:
            assert inputs.device.type == "neuron"
            with accelerator.accumulate(model):
                loss = F.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()[None]))
    history = torch.cat(losses)
    assert history[-8:].mean() < 0.5 * history[:8].mean()


def test_accelerator_state_is_saved_and_loaded_with_its_random_numbers(tmp_path: Path) -> None:
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(*regression())
    inputs, targets = next(iter(loader))

    def step() -> float:
        loss = F.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        return loss.item()

    step()
    accelerator.save_state(str(tmp_path))
    expected = [step() for _ in range(3)]
    accelerator.load_state(str(tmp_path))
    assert [step() for _ in range(3)] == expected


def test_safetensors_round_trip(tmp_path: Path) -> None:
    tensors = {
        "weight": torch.randn(16, 8, device="neuron"),
        "half": torch.randn(5, device="neuron").to(torch.bfloat16),
        "index": torch.arange(7, device="neuron:1"),
    }
    save_file(tensors, tmp_path / "tensors.safetensors")
    for device, expected in (("cpu", torch.device("cpu")), (0, torch.device("neuron", 0))):
        loaded = load_file(tmp_path / "tensors.safetensors", device=device)
        for name, tensor in tensors.items():
            assert loaded[name].device == expected
            assert torch.equal(loaded[name].cpu(), tensor.cpu())


def test_safetensors_model_with_tied_weights(tmp_path: Path) -> None:
    def tied() -> nn.Sequential:
        model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10, bias=False))
        model[1].weight = model[0].weight
        return model

    model = tied().to("neuron")
    assert model[1].weight is model[0].weight
    save_model(model, str(tmp_path / "model.safetensors"))
    other = tied().to("neuron")
    load_model(other, str(tmp_path / "model.safetensors"))
    assert torch.equal(other[1].weight, model[0].weight)
