"""Device tensors in the queues, pipes and arguments of `torch.multiprocessing`.

Emulated device memory is host memory, so the processes share it for real: what one writes, the others see after the
writer has synchronised. The first time a storage is sent, its memory moves into shared memory and the device is waited
for.
"""

import multiprocessing.reduction
import os
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from .. import _C


def register() -> None:
    """Make `torch.multiprocessing` send storages on `neuron`; every other storage goes as before."""
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)


def ipc_collect() -> None:
    """Does nothing, unlike its namesake of torch.cuda: shared memory is free once no process has a tensor on it."""


def _reduce_storage(storage: torch.UntypedStorage) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    if storage.device.type != "neuron":
        return reductions.reduce_storage(storage)
    if storage.nbytes() == 0:
        return _empty_storage, (storage.device.index,)
    descriptor = multiprocessing.reduction.DupFd(_C.share_storage(storage))
    return _open_storage, (descriptor, storage.nbytes(), storage.device.index)


def _empty_storage(device: int) -> torch.UntypedStorage:
    return torch.UntypedStorage(0, device=f"neuron:{device}")


def _open_storage(descriptor: Any, nbytes: int, device: int) -> torch.UntypedStorage:
    received = descriptor.detach()
    try:
        return _C.open_shared_storage(received, nbytes, device)
    finally:
        os.close(received)
