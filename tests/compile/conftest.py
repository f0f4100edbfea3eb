"""Fixtures of the tests of torch.compile."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map


@pytest.fixture(autouse=True, scope="session")
def compiler_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Inductor's caches in a folder of this run, so that the compiler works and the user's caches stay as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.fixture(autouse=True)
def no_compiled_code() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def same_as_cpu() -> Callable[..., None]:
    """`check(function, *inputs, **options)`: for inputs made on the CPU, `function` compiled on `neuron` gives the
    values and strides that it gives uncompiled on `cpu`."""

    def check(function: Callable[..., Any], *inputs: Any, **options: Any) -> None:
        def on(device: str) -> list[Any]:
            return [
                tree_map(lambda t: t.to(device, copy=True) if isinstance(t, torch.Tensor) else t, i) for i in inputs
            ]

        expected = function(*on("cpu"))
        actual = torch.compile(function, **options)(*on("neuron"))
        for got, wanted in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
            assert got.device.type == "neuron"
            assert got.stride() == wanted.stride()
            torch.testing.assert_close(got.cpu(), wanted)

    return check
