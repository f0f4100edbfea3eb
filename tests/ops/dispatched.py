"""The operators that reach the dispatcher below autograd while a function runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class _Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def dispatched(function: Callable[..., Any], *args: Any) -> list[str]:
    """Calls `function` and returns the names of the operators it dispatched, in order, as "aten.add.Tensor"."""
    with _Names() as mode:
        function(*args)
    return mode.names
