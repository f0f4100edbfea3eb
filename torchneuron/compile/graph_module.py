"""What the modules that Inductor writes for graphs on `neuron` import."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor.async_compile import AsyncCompile as InductorAsyncCompile
from torch._inductor.async_compile import get_compile_threads
from torch._inductor.codecache import CppCodeCache

from .. import _C
from ..neuron.devices import device as device_guard

empty_strided = _C.empty_strided


def device(*args: Any, **kwargs: Any) -> torch.device:
    """As torch.device, but where the graph says `cpu` it means the device that it was moved from."""
    named = torch.device(*args, **kwargs)
    return torch.device("neuron", _C.current_device()) if named.type == "cpu" else named


class AsyncCompile(InductorAsyncCompile):
    """Compiles kernels as Inductor does, and makes launches of them."""

    def cpp_pybinding(self, argtypes: list[str], source_code: str) -> Any:
        """A kernel with arguments of the C++ types `argtypes`."""
        kinds = "".join(map(_kind, argtypes))
        source = source_code + _entry(argtypes)
        submit = self.submit if get_compile_threads() > 1 else None
        return PendingKernel(CppCodeCache.load_async(source, submit_fn=submit), kinds)

    def wait(self, scope: dict[str, Any]) -> None:
        """Put the kernels into `scope` under their names as soon as they are compiled."""
        for name, value in scope.items():
            if isinstance(value, PendingKernel):
                scope[name] = value.load(name)
        super().wait(scope)


@dataclass
class PendingKernel:
    """A kernel that the compiler works on."""

    library: Callable[[], ctypes.CDLL]
    kinds: str

    def load(self, name: str) -> _C.CompiledKernel:
        """Waits for the compiler. Raises CppCompileError if it failed."""
        entry = ctypes.cast(self.library().neuron_entry, ctypes.c_void_p)
        return _C.CompiledKernel(name, entry.value or 0, self.kinds)


def _kind(argtype: str) -> str:
    if "*" in argtype:
        return "t"
    return "d" if argtype.split()[-1] in ("double", "float") else "i"


def _entry(argtypes: list[str]) -> str:
    """The C++ function that takes the arguments of a kernel from an array, as CompiledKernel calls it."""
    arguments = []
    for i, argtype in enumerate(argtypes):
        if (kind := _kind(argtype)) == "t":
            arguments.append(f"static_cast<{argtype}>(arguments[{i}])")
        else:
            stored = "int64_t" if kind == "i" else "double"
            arguments.append(f"*static_cast<const {stored}*>(arguments[{i}])")
    return f"""
extern "C" void neuron_entry(void* const* arguments) {{
  kernel({", ".join(arguments)});
}}
"""


class CompiledGraph:
    """Runs a compiled graph: `call(inputs)` launches its kernels and returns its outputs.

    call: what Inductor wrote; takes and empties a list of inputs, all on one device. home: the device to run on.
    outputs: for each output the device where it belongs. mutated: which inputs the graph writes to. constants: the
    names of tensors in the module of `call`.

    Inputs that lie elsewhere than on `home` are copied there, and back if the graph writes to them.
    """

    def __init__(
        self,
        call: Callable[[list[Any]], Any],
        home: str,
        outputs: Sequence[str | None],
        mutated: Sequence[int],
        constants: Sequence[str],
    ):
        self._call = call
        self._home = torch.device(home)
        self._moved_outputs = [
            (i, torch.device(d)) for i, d in enumerate(outputs) if d is not None and torch.device(d) != self._home
        ]
        self._mutated = frozenset(mutated)
        self._constants = list(constants)

    def __call__(self, inputs: list[Any]) -> Any:
        if self._constants:
            self._place_constants()
        to_copy_back = []
        for i, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and value.device != self._home:
                inputs[i] = value.to(self._home)
                if i in self._mutated:
                    to_copy_back.append((value, inputs[i]))
        with device_guard(self._home):
            outputs = self._call(inputs)
        for original, written in to_copy_back:
            original.copy_(written)
        if self._moved_outputs:
            outputs = list(outputs)
            for i, target in self._moved_outputs:
                outputs[i] = outputs[i].to(target)
        return outputs

    def _place_constants(self) -> None:
        # They are put into the module after it was executed.
        function = getattr(self._call, "__func__", self._call)
        for name in self._constants:
            if isinstance(value := function.__globals__.get(name), torch.Tensor):
                function.__globals__[name] = value.to(self._home)
        self._constants = []
