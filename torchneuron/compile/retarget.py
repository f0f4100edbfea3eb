"""Moves a graph from `neuron` to `cpu`, for which Inductor has a compiler."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_map

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Placement:
    """Where a graph ran before it was retargeted.

    home: the device whose stream the compiled graph runs on.
    outputs: for each output the device that its users expect it on, None for what is no tensor.
    """

    home: torch.device
    outputs: tuple[torch.device | None, ...]


def retarget(gm: GraphModule, example_inputs: Sequence[Any]) -> tuple[list[Any], Placement]:
    """Rewrite `gm` in place so that it computes on `cpu`; returns the inputs on `cpu` and where all was before."""
    placement = Placement(_home(gm), _output_devices(gm))
    moved = _FakeTensorMover()
    for module in _graph_modules(gm):
        _move_constants(module)
        for node in module.graph.nodes:
            node.args = map_aggregate(node.args, _cpu_for_neuron)
            node.kwargs = map_aggregate(node.kwargs, _cpu_for_neuron)
            for key in ("val", "example_value"):
                if key in node.meta:
                    node.meta[key] = tree_map(moved, node.meta[key])
        module.recompile()
    return [moved(value) for value in example_inputs], placement


def uses_neuron(gm: GraphModule) -> bool:
    """Whether a tensor of the graph lies on `neuron`."""
    return any(device.type == "neuron" for device in _devices(gm))


def _home(gm: GraphModule) -> torch.device:
    return next(device for device in _devices(gm) if device.type == "neuron")


def _devices(gm: GraphModule) -> list[torch.device]:
    devices: dict[torch.device, None] = {}
    for node in gm.graph.nodes:
        for value in torch.utils._pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                devices[value.device] = None
    return list(devices)


def _output_devices(gm: GraphModule) -> tuple[torch.device | None, ...]:
    (outputs,) = gm.graph.output_node().args
    assert isinstance(outputs, (tuple, list))
    values = [output.meta.get("val") if isinstance(output, torch.fx.Node) else None for output in outputs]
    return tuple(value.device if isinstance(value, torch.Tensor) else None for value in values)


def _move_constants(gm: GraphModule) -> None:
    for node in gm.graph.find_nodes(op="get_attr"):
        value = getattr(gm, node.target, None)
        if isinstance(value, torch.Tensor) and value.device.type == "neuron":
            setattr(gm, node.target, value.detach().cpu())


def _graph_modules(gm: GraphModule) -> list[GraphModule]:
    return [module for module in gm.modules() if isinstance(module, GraphModule)]


def _cpu_for_neuron(argument: Any) -> Any:
    return CPU if isinstance(argument, torch.device) and argument.type == "neuron" else argument


class _FakeTensorMover:
    """Gives for a fake tensor on `neuron` one on `cpu`, on a storage that the same tensors share."""

    def __init__(self) -> None:
        self._moved: dict[int, tuple[FakeTensor, FakeTensor]] = {}

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, FakeTensor) or value.device.type != "neuron":
            return value
        if id(value) not in self._moved:
            # The original stays alive, so that its id is not given to another.
            self._moved[id(value)] = (value, _on_cpu(value))
        return self._moved[id(value)][1]


def _on_cpu(value: FakeTensor) -> FakeTensor:
    mode = value.fake_mode
    with torch._C._DisableTorchDispatch(), torch._subclasses.fake_tensor.in_kernel_invocation_manager(mode):
        meta = value.as_subclass(torch.Tensor)  # shares the storage
    return FakeTensor(mode, meta, CPU)
