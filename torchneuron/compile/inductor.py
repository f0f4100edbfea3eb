"""Makes Inductor compile graphs on `neuron`.

Inductor lowers and schedules for the device of a graph's tensors, and for `cpu` it does so best for this emulation: the
fusions, the vector code and the values are those of the CPU. So a graph on `neuron` is moved to `cpu` just before it is
lowered. The wrapper around its kernels, which `wrapper.py` writes, keeps to `neuron`: it allocates there and launches
the kernels on the current stream.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch._inductor.compile_fx as compile_fx
from torch._inductor.codegen.common import device_codegens, register_backend_for_device
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu as CppWrapperCodegen
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen
from torch._inductor.custom_graph_pass import CustomGraphModulePass, get_hash_for_files
from torch._inductor.output_code import OutputCode
from torch.fx import GraphModule

from .retarget import Placement, retarget, uses_neuron

_compile_on_cpu = compile_fx.fx_codegen_and_compile
_current = threading.local()


# What Inductor finds under these names in `torch.neuron`. No graph is lowered with them, see the module's docstring.
Scheduling = CppScheduling
__all__ = ["CppWrapperCodegen", "PythonWrapperCodegen", "Scheduling", "WrapperFxCodegen", "placement_being_compiled"]


def placement_being_compiled() -> Placement | None:
    """Where the graph was that this thread compiles for `neuron`; None while it compiles another."""
    return getattr(_current, "placement", None)


def _compile(
    gm: GraphModule, example_inputs: Sequence[Any], inputs_to_check: Sequence[int], *args: Any, **kwargs: Any
) -> OutputCode:
    if not uses_neuron(gm):
        return _compile_on_cpu(gm, example_inputs, inputs_to_check, *args, **kwargs)
    _refuse_streams(gm)
    inputs, placement = retarget(gm, example_inputs)
    with _compiling(placement):
        return _compile_on_cpu(gm, inputs, inputs_to_check, *args, **kwargs)


def _refuse_streams(gm: GraphModule) -> None:
    for node in gm.graph.nodes:
        is_stream_operator = node.op == "call_function" and getattr(node.target, "namespace", None) == "streams"
        if is_stream_operator or "stream" in node.meta.get("custom", {}):
            raise NotImplementedError(
                f"a compiled region on neuron cannot use streams or events ({node.name}): put their use outside of it, "
                "or into a function under torch.compiler.disable"
            )


class _CacheKey(CustomGraphModulePass):
    """Changes nothing in a graph; makes the keys of Inductor's caches differ between versions of this package, whose
    generated modules import it."""

    def __call__(self, gm: GraphModule) -> None:
        pass

    def uuid(self) -> bytes:
        return get_hash_for_files(tuple(str(path) for path in sorted(Path(__file__).parent.glob("*.py"))))


@contextlib.contextmanager
def _compiling(placement: Placement) -> Iterator[None]:
    previous, _current.placement = placement_being_compiled(), placement
    try:
        yield
    finally:
        _current.placement = previous


def register() -> None:
    """Called when Inductor asks for the device's code generators, before it compiles its first graph."""
    from .wrapper import NeuronOrCpuWrapper

    cpu = device_codegens["cpu"]
    register_backend_for_device(
        "cpu", cpu.scheduling, NeuronOrCpuWrapper, cpu.cpp_wrapper_codegen, cpu.fx_wrapper_codegen, _CacheKey()
    )
    compile_fx.fx_codegen_and_compile = _compile


register()
