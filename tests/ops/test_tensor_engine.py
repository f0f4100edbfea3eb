"""The library that computes float32 matrix products: any choice gives the right values, and the choice is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

PRODUCTS = """
    import torch
    torch.manual_seed(0)
    a, b, bias = torch.randn(96, 80), torch.randn(80, 112), torch.randn(112)
    heads, keys = torch.randn(6, 64, 80), torch.randn(6, 80, 72)
    added, strided = torch.randn(6, 64, 72), torch.randn(96, 160)[:, ::2]
    x, w = torch.randn(4, 50, 80), torch.randn(112, 80)
    def products(d):
        a_, b_, bias_, heads_, keys_, added_, strided_, x_, w_ = (
            t.to(d) for t in (a, b, bias, heads, keys, added, strided, x, w))
        leaf, weight = x_.clone().requires_grad_(), w_.clone().requires_grad_()
        y = torch.nn.functional.linear(leaf, weight, bias_)
        y.square().sum().backward()
        return [
            a_ @ b_, b_.t() @ a_.t(), strided_ @ b_, torch.addmm(bias_, a_, b_, beta=0.5, alpha=2),
            torch.addmm(bias_, a_, b_, alpha=0), torch.addmm(torch.full_like(bias_, torch.nan), a_, b_, beta=0),
            torch.bmm(heads_, keys_), torch.bmm(keys_.mT, heads_.mT), torch.baddbmm(added_, heads_, keys_, beta=3),
            added_.clone().baddbmm_(heads_, keys_, alpha=-1), torch.mm(a_, b_, out=torch.empty(112, 96, device=d).t()),
            torch.ones(96, 112, device=d).addmm_(a_, b_), y, leaf.grad, weight.grad,
        ]
    for got, expected in zip(products("neuron"), products("cpu"), strict=True):
        assert got.device.type == "neuron" and got.stride() == expected.stride()
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-4)
    print("right")
"""


@pytest.mark.parametrize("engine", ["onednn", "mkl", "measured"])
def test_values(run_script: Callable, tmp_path: Path, engine: str) -> None:
    result = run_script(PRODUCTS, TORCHNEURON_TENSOR_ENGINE=engine, XDG_CACHE_HOME=str(tmp_path))
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "right", "")
    assert (tmp_path / "torchneuron" / "tensor_engine").exists() == (engine == "measured")


@pytest.mark.parametrize("content", ["", "another host\n5\n", "\x00\xff"])
def test_the_choice_is_measured_once(run_script: Callable, tmp_path: Path, content: str) -> None:
    kept = tmp_path / "torchneuron" / "tensor_engine"
    kept.parent.mkdir()
    kept.write_text(content)
    for _ in range(2):
        assert run_script(PRODUCTS, XDG_CACHE_HOME=str(tmp_path)).stdout.strip() == "right"
        first, threshold = kept.read_text().splitlines()
        assert "PyTorch 2.13" in first and float(threshold) >= 0
        kept.write_text(f"{first}\n12345\n")  # a second measurement would give another number
    assert kept.read_text().splitlines()[1] == "12345"
    assert [path.name for path in kept.parent.iterdir()] == ["tensor_engine"]


def test_a_cache_that_cannot_be_written(run_script: Callable, tmp_path: Path) -> None:
    (tmp_path / "torchneuron").write_text("a file where the folder would be")
    result = run_script(PRODUCTS, XDG_CACHE_HOME=str(tmp_path))
    assert (result.stdout.strip(), result.stderr) == ("right", "")


def test_the_random_state_of_cpu_is_left_alone(run_script: Callable, tmp_path: Path) -> None:
    script = """
        import torch
        x = torch.ones(256, 256, device="neuron")
        state = torch.get_rng_state()
        (x @ x).cpu()
        print(torch.equal(state, torch.get_rng_state()))
    """
    assert run_script(script, XDG_CACHE_HOME=str(tmp_path)).stdout.strip() == "True"


def test_wrong_engine(run_script: Callable) -> None:
    result = run_script("import torch; torch.ones(1, device='neuron')", TORCHNEURON_TENSOR_ENGINE="cublas")
    assert result.returncode == 1
    assert "TORCHNEURON_TENSOR_ENGINE='cublas' names no library of matrix products; it may be measured" in result.stderr
