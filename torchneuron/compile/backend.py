"""`torch.compile(model, backend="neuron")`, the spelling of AWS's documents."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def neuron(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[torch.Tensor],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile `gm` as torch.compile's default backend does.

    mode, options: as torch.compile takes them. Raises RuntimeError for a name that is none of Inductor's options, with
    the known ones in its message, and ValueError for both at once.
    """
    if mode is not None and options is not None:
        raise ValueError(f"torch.compile takes either mode or options, but got mode={mode!r} and options={options!r}")
    return torch._TorchCompileInductorWrapper(mode, options, None)(gm, list(example_inputs))
