"""The conformance run: a sample of its databases passes, and it sees what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchneuron.testing.conformance import (
    databases,
    distributions,
    modules,
    nested,
    operators,
    optimizers,
    sparse,
    workers,
)
from torchneuron.testing.conformance.comparison import compare_calls, copy, move
from torchneuron.testing.conformance.outcomes import FAILED, PASSED, SKIPPED, Mismatch

# A few of each kind, and all entries in which the whole run once found a fault.
OPERATORS = ["add", "std", "cholesky", "nn.functional.conv2d", "index_put", "bernoulli", "sort", "empty_like"]
OPERATORS += ["arange", "as_strided", "gradient", "index_select", "masked_fill", "native_dropout_backward", "to_sparse"]
OPERATORS += ["nn.functional.linear", "nn.functional.mish", "nn.functional.rrelu", "tensor_split"]
OPERATORS += ["_batch_norm_with_update", "linspace", "signal.windows.hann", "sparse.sampled_addmm"]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64)
SPARSE = ["abs", "sum", "to_sparse"]
NESTED = ["sin", "sum", "nn.functional.linear"]
MODULES = ["nn.RMSNorm", "nn.LSTM", "nn.BatchNorm2d"]
DISTRIBUTIONS = ["randn", "multinomial", "randint"]
OPTIMIZERS = ["Adam", "SparseAdam", "LBFGS"]


@pytest.fixture(autouse=True)
def draws_of_the_cpu():
    torch.neuron.match_cpu_random(True)
    yield
    torch.neuron.match_cpu_random(False)


@pytest.mark.parametrize(
    ("database", "name"),
    [(operators, name) for name in OPERATORS]
    + [(modules, name) for name in MODULES]
    + [(optimizers, name) for name in OPTIMIZERS]
    + [(sparse, name) for name in SPARSE]
    + [(nested, name) for name in NESTED]
    + [(distributions, name) for name in DISTRIBUTIONS],
    ids=lambda value: value if isinstance(value, str) else value.__name__.rsplit(".", 1)[-1],
)
def test_sample(database, name: str) -> None:
    outcomes = list(database.check(name, DTYPES) if database is operators else database.check(name))
    assert len(outcomes) >= 2 and all(outcome.samples > 0 for outcome in outcomes)
    assert [outcome for outcome in outcomes if outcome.status == FAILED] == []


def test_linear_cross_entropy_with_one_accumulation_dtype_is_that_of_the_cpu() -> None:
    """What skips.py leaves out: with the dtype given, both devices compute the same."""
    options = torch.nn.LinearCrossEntropyOptions(acc_policy="balanced", acc_dtype=torch.float32, batch_chunk_size=4)
    torch.manual_seed(0)
    x, weight, target = torch.randn(8, 16).bfloat16(), torch.randn(5, 16).bfloat16(), torch.randint(5, (8,))

    def loss_and_gradients(device: str) -> list[torch.Tensor]:
        leaves = [t.detach().to(device).requires_grad_() for t in (x, weight)]
        loss = torch.nn.functional.linear_cross_entropy(*leaves, target.to(device), options=options)
        return [t.cpu() for t in (loss.detach(), *torch.autograd.grad(loss, leaves))]

    torch.testing.assert_close(loss_and_gradients("neuron"), loss_and_gradients("cpu"))


def test_a_skipped_check_has_its_reason() -> None:
    outcomes = [outcome for outcome in nested.check("split_with_sizes") if outcome.check == "backward"]
    assert [(outcome.status, outcome.samples) for outcome in outcomes] == [(SKIPPED, 0)]
    assert "segmentation fault" in outcomes[0].reason


def test_sample_on_a_side_stream() -> None:
    for job in (("operators", "sort"), ("modules", "nn.BatchNorm2d"), ("optimizers", "Adam")):
        assert {outcome.status for outcome in databases.check(job, side_stream=True)} == {PASSED}


def test_wrong_draws_do_not_have_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(draw) -> str:
        monkeypatch.setitem(distributions.ENTRIES, "x", ((draw, distributions.stats.uniform()), (torch.float32,)))
        (outcome,) = distributions.check("x")
        return outcome.reason

    assert "the statistic is" in check(lambda t: torch.rand_like(t).mul_(1.02))
    assert check(lambda t: t + torch.arange(len(t), device=t.device) / len(t)) == "another seed gives the same numbers"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x + 1e-3, "values"),
        (lambda x: x.double(), "dtype is torch.float64 instead of torch.float32"),
        (lambda x: x[:1], r"shape is \(1, 3\) instead of \(2, 3\)"),
        (lambda x: x.t().contiguous().t(), r"strides are \(1, 2\) instead of \(3, 1\)"),
        (lambda x: x.cpu(), "returns a tensor on cpu"),
        (lambda x: (x, x), "returns"),
        (lambda x: x.requires_grad_(), "requires_grad is True instead of False"),
        (lambda x: x.view(7), r"raises RuntimeError: shape '\[7\]' is invalid"),
    ],
)
def test_a_wrong_result_is_a_mismatch(wrong, message: str) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    with pytest.raises(Mismatch, match=message):
        compare_calls(lambda: copy(x), lambda: wrong(move(x)))


def test_errors_are_compared_without_the_name_of_the_device() -> None:
    def fail(kind: type[Exception], text: str):
        def call() -> None:
            raise kind(text)

        return call

    assert compare_calls(fail(ValueError, "not on cpu"), fail(ValueError, "not on neuron:0")) is False
    with pytest.raises(Mismatch, match="instead of ValueError"):
        compare_calls(fail(ValueError, "no"), fail(RuntimeError, "no"))
    with pytest.raises(Mismatch, match="does not raise ValueError: no"):
        compare_calls(fail(ValueError, "no"), lambda: 1)


def test_moved_tensors_keep_strides_and_laziness() -> None:
    x = torch.randn(4, 3, dtype=torch.complex64)
    for tensor in (x.t(), x[::2], x.conj(), x[0].expand(5, 3), torch._neg_view(x.real), x.conj().imag):
        moved = move(tensor)
        assert moved.device.type == "neuron" and moved.stride() == tensor.stride()
        assert (moved.is_conj(), moved.is_neg()) == (tensor.is_conj(), tensor.is_neg())
        assert torch.equal(moved.cpu(), tensor)


def work(job: tuple[str, str]) -> list[str]:
    """What the workers of the next test do."""
    if job[1] == "dies":
        os._exit(3)
    while job[1] == "hangs":
        pass
    return [job[1]]


def test_a_crash_or_a_hang_costs_only_its_own_job() -> None:
    jobs = [("", name) for name in ("a", "dies", "b", "hangs", "c")]
    results = {job[1]: (made, problem) for job, made, problem in workers.run(jobs, work, 2, seconds=40)}
    assert results.keys() == {"a", "dies", "b", "hangs", "c"}
    assert [results[name] for name in "abc"] == [(["a"], ""), (["b"], ""), (["c"], "")]
    assert results["dies"] == ([], "the process died with exit code 3")
    assert results["hangs"] == ([], "took longer than 40 s")


def test_command(tmp_path: Path) -> None:
    output = tmp_path / "conformance.json"
    command = [sys.executable, "-m", "torchneuron.testing.conformance", "--processes", "1", "--output", str(output)]
    command += ["--database", "operators", "--database", "modules"]
    result = subprocess.run([*command, "--entry", "neg", "--entry", "nn.ReLU"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    outcomes = json.loads(output.read_text())["outcomes"]
    assert {(o["database"], o["entry"]) for o in outcomes} == {("operators", "neg"), ("modules", "nn.ReLU")}
    assert {o["status"] for o in outcomes} == {"passed"}
    assert "operators: forward" in result.stdout and "100.00%" in result.stdout
    nothing = subprocess.run([*command, "--entry", "no such thing"], capture_output=True, text=True)
    assert nothing.returncode == 2 and "no such thing" in nothing.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--processes", "0"], "--processes 0: it takes at least 1"),
        (["--output", "no/such/folder.json"], "there is no folder no/such"),
        (["--entry", "no_such_entry"], "--entry no_such_entry: no entry of the databases matches"),
        (["--database", "no_such_database"], "invalid choice: 'no_such_database'"),
    ],
)
def test_wrong_use(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "torchneuron.testing.conformance", *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2 and message in result.stderr
