"""What stands in as `torch.neuron` where the device cannot be provided: every use of it says why."""

import sys
import warnings
from types import ModuleType
from typing import Any, NoReturn

import torch


class NeuronUnavailableError(RuntimeError, AttributeError):
    """The device `neuron` could not be provided; the cause is chained. `hasattr(torch.neuron, ...)` is False."""


class _UnavailableModule(ModuleType):
    """PyTorch's own questions (is it available, how many, may it be seeded) are answered; all else raises."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("torch.neuron", __doc__)
        self._cause = cause
        self._warned = False

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(f"module 'torch.neuron' has no attribute {name!r}")
        self._raise(f"torch.neuron.{name}")

    def _raise(self, what: str) -> NoReturn:
        raise NeuronUnavailableError(f"{what}: {self._reason()}") from self._cause

    def _reason(self) -> str:
        return f"the device 'neuron' is not available: {type(self._cause).__name__}: {self._cause}"

    # PyTorch calls this before it makes a tensor on the device.
    def _lazy_init(self) -> NoReturn:
        self._raise("device 'neuron'")

    # Libraries that ask choose the CPU, so the answer comes with the reason.
    def is_available(self) -> bool:
        return self.device_count() > 0

    def device_count(self) -> int:
        if not self._warned:
            self._warned = True
            warnings.warn(self._reason(), RuntimeWarning, stacklevel=2)
        return 0

    def is_initialized(self) -> bool:
        return False

    # torch.manual_seed leaves a device alone that is "in a bad fork".
    def _is_in_bad_fork(self) -> bool:
        return True

    def manual_seed_all(self, seed: int) -> None:
        pass


def register(cause: Exception) -> None:
    """Install the stand-in. Never raises: a device that is missing must not break `import torch`."""
    module: Any = _UnavailableModule(cause)
    owner = torch._C._get_privateuse1_backend_name()
    if getattr(torch, "neuron", None) is not None:
        return
    if owner == "privateuseone":
        torch.utils.rename_privateuse1_backend("neuron")
        owner = "neuron"
    setattr(torch, "neuron", module)  # noqa: B010 (mypy knows no torch.neuron)
    sys.modules["torch.neuron"] = module
    if owner == "neuron" and not hasattr(torch.Tensor, "neuron"):
        torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
