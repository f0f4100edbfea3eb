"""Which operators get a generated launch: the structured operators of ATen that have CPU kernels.

The source of truth is `native_functions.yaml` as it ships with PyTorch's wheel (package `torchgen`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torchgen
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import DispatchKey, NativeFunction, NativeFunctionsGroup

NATIVE_FUNCTIONS = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"

# Overloads whose generated launch would be wrong -> reason. They run through the fallback unless written by hand.
_MASK = "its meta function reads the values of a boolean mask, on which the size of the result depends"
_CONVERGENCE = "it raises at the call for a matrix for which it does not converge, as CUDA does after a wait"
EXCLUDED = {
    "index.Tensor": _MASK,
    "index.Tensor_out": _MASK,
    "_linalg_eigh": _CONVERGENCE,
    "_linalg_eigh.eigenvalues": _CONVERGENCE,
    "_linalg_svd": _CONVERGENCE,
    "_linalg_svd.U": _CONVERGENCE,
}

# Operators that csrc/engine/tensor_engine.h computes instead of PyTorch's CPU kernel -> the matrices.
MATRIX_PRODUCTS = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
}

# Operators whose CPU kernel gives its output the memory format of `self`, whatever the meta function said.
TAKE_MEMORY_FORMAT_OF_SELF = frozenset(
    {"reflection_pad3d", "reflection_pad3d_backward", "replication_pad2d", "replication_pad3d"}
)

# Operators whose CPU kernel may set the conjugate bit of its result instead of writing the conjugate.
MAY_SET_CONJUGATE_BIT = frozenset({"linalg_lu_solve", "_linalg_solve_ex", "linalg_inv_ex"})

# Operators whose CPU kernel resizes its result to the size of the input for a while, and would warn of it.
RESIZE_THEIR_RESULT = frozenset({"mse_loss", "smooth_l1_loss"})

# Operators whose CPU kernel can't be tried on one element of zeros to see whether it takes a dtype -> reason.
_PIVOTS = "LAPACK reads and writes at the pivots that it is given, which count from one"
NOT_TRIED = {"linalg_ldl_solve": _PIVOTS, "linalg_lu_solve": _PIVOTS}


@dataclass(frozen=True)
class StructuredOp:
    """A group of overloads that share one meta function, and those of them that get a generated launch."""

    group: NativeFunctionsGroup
    overloads: tuple[NativeFunction, ...]

    @property
    def name(self) -> str:
        """Name of the functional overload, such as "add.Tensor"."""
        return str(self.group.functional.func.name)

    @property
    def signature(self) -> str:
        """Types of the arguments, such as "Tensor, Tensor, Scalar", and the number of results."""
        function = self.group.functional.func
        types = ", ".join(str(argument.type) for argument in function.arguments.flat_non_out)
        return f"{types} -> {len(function.returns)}"


def structured_ops(hand_written: Iterable[str] = ()) -> list[StructuredOp]:
    """All structured operators with CPU kernels, in the order of native_functions.yaml.

    Overloads in `hand_written` and `EXCLUDED` get no launch. An operator without any stays in the list, so that the
    place of the others does not depend on it.
    """
    skipped = EXCLUDED.keys() | frozenset(hand_written)
    parsed = parse_native_yaml(str(NATIVE_FUNCTIONS / "native_functions.yaml"), str(NATIVE_FUNCTIONS / "tags.yaml"))
    cpu = parsed.backend_indices[DispatchKey.CPU]
    ops = []
    for group in get_grouped_native_functions(parsed.native_functions):
        if not isinstance(group, NativeFunctionsGroup) or not group.structured or not cpu.has_kernel(group.out):
            continue
        overloads = tuple(f for f in group.functions() if str(f.func.name) not in skipped)
        ops.append(StructuredOp(group, overloads))
    return ops


_LIBRARY_OR_IMPL = re.compile(r'TORCH_LIBRARY_IMPL\(\s*(\w+)\s*,\s*(\w+)|\bm\.impl\(\s*"(?:aten::)?([\w.]+)"')


def hand_written_overloads(folder: Path) -> set[str]:
    """The overloads that the C++ files in `folder` register for PrivateUse1, such as {"copy_", "mm.out"}."""
    found = set()
    for path in sorted(folder.glob("*.cpp")):
        library = None
        for match in _LIBRARY_OR_IMPL.finditer(path.read_text(encoding="utf-8")):
            if match[1]:
                library = (match[1], match[2])
            elif library == ("aten", "PrivateUse1"):
                found.add(match[3])
    return found
