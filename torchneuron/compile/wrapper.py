"""Writes the Python module that Inductor makes of a graph, for graphs on `neuron`."""

from typing import Any

from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V

from .inductor import placement_being_compiled
from .retarget import Placement


class NeuronOrCpuWrapper(PythonWrapperCodegen):
    """Registered for `cpu`: takes NeuronWrapper for a graph that was moved from `neuron`."""

    @staticmethod
    def create(
        is_subgraph: bool, subgraph_name: str | None, parent_wrapper: Any, partition_signatures: Any = None
    ) -> PythonWrapperCodegen:
        placement = placement_being_compiled()
        if is_subgraph or placement is None:
            return PythonWrapperCodegen.create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures)
        return NeuronWrapper(placement)


class NeuronWrapper(PythonWrapperCodegen):
    """As the wrapper for `cpu`, with names of `graph_module` in place of Inductor's: it allocates on `neuron`, and its
    kernels are launches."""

    def __init__(self, placement: Placement):
        self._placement = placement
        super().__init__()

    def write_header(self) -> None:
        super().write_header()
        self.imports.splice(
            """
            from torchneuron.compile.graph_module import CompiledGraph, AsyncCompile, empty_strided, device
            """,
            strip=True,
        )
        self.header.writeline("empty_strided_cpu = empty_strided")

    def generate_after_suffix(self, result: IndentedBuffer) -> None:
        super().generate_after_suffix(result)
        outputs = [device and str(device) for device in self._placement.outputs]
        mutated = [i for i, name in enumerate(V.graph.graph_input_names) if name in V.graph.mutated_inputs]
        constants = list(V.graph.constants)
        home = str(self._placement.home)
        result.writeline(f"call = CompiledGraph(call, {home!r}, {outputs!r}, {mutated!r}, {constants!r})")
