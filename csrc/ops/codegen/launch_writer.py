"""The C++ text of one structured operator's launches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from structured_ops import (
    MATRIX_PRODUCTS,
    MAY_SET_CONJUGATE_BIT,
    NOT_TRIED,
    RESIZE_THEIR_RESULT,
    TAKE_MEMORY_FORMAT_OF_SELF,
)
from torchgen.api import meta, structured
from torchgen.api.translate import translate
from torchgen.api.types import Binding, CppSignatureGroup, DispatcherSignature
from torchgen.context import native_function_manager
from torchgen.model import DeviceCheckType, NativeFunction, NativeFunctionsGroup, SchemaKind

# How a type of the dispatcher's signature arrives in the body of a launch, where that is another type, and the
# expression that makes the CPU function's argument of it.
_BODY_TYPES = {
    "const at::ITensorListRef &": ("const std::vector<at::Tensor>&", "at::ITensorListRef(at::TensorList({name}))"),
}


def launch_functions(group: NativeFunctionsGroup, overloads: Sequence[NativeFunction]) -> str:
    """C++ functions, one for each of `overloads`, that compute sizes, allocate and launch."""
    return "\n".join(_launch_function(group, f) for f in overloads)


def registrations(overloads: Sequence[NativeFunction]) -> str:
    """The lines that register what `launch_functions` defines, for the block of TORCH_LIBRARY_IMPL."""
    return "".join(f'  m.impl("{f.func.name}", &{_function_name(f)});\n' for f in overloads)


def headers(group: NativeFunctionsGroup) -> list[str]:
    """The headers that `launch_functions` needs."""
    root = group.functional.root_name
    return [f"ATen/ops/{root}_meta.h", f"ATen/ops/{root}_cpu_dispatch.h"]


def _function_name(f: NativeFunction) -> str:
    return f.func.name.unambiguous_name()


def _launch_function(group: NativeFunctionsGroup, f: NativeFunction) -> str:
    with native_function_manager(f):
        signature = DispatcherSignature.from_schema(f.func, symint=False)
        head = signature.defn(name=_function_name(f))
        arguments = signature.arguments()
        meta_arguments = translate(arguments, structured.meta_arguments(group), method=False)
    meta_class = f"at::meta::structured_{meta.name(group)}"
    names = [a.name for a in group.out.func.arguments.out]
    allocated: list[str] = []
    kind = f.func.kind()
    if kind is SchemaKind.functional:
        operator = f"Functional<{meta_class}, {len(names)}> op;"
        allocated = [f"op.outputs[{i}]" for i in range(len(names))]
        moved = [f"std::move({output})" for output in allocated]
        result = moved[0] if len(moved) == 1 else f"std::make_tuple({', '.join(moved)})"
    elif kind is SchemaKind.inplace:
        operator = f"InPlace<{meta_class}> op(self);"
        result = "self"
    elif kind is SchemaKind.out:
        operator = f"Out<{meta_class}, {len(names)}> op({', '.join(names)});"
        result = names[0] if len(names) == 1 else f"std::forward_as_tuple({', '.join(names)})"
    else:
        raise AssertionError(f"{f.func.name}: no launch is known for {kind}")

    overload = f"aten::{f.func.name}"
    if str(group.functional.func.name) in NOT_TRIED:
        launcher, launch = f'static OpRecord& record = op_record("{overload}");', "launch(record, "
    else:
        written = 0 if kind is SchemaKind.inplace else len(names)
        launcher, launch = f'static CheckedOp launcher("{overload}");', f"launcher.launch<{written}>("
    parameters = [_body_parameter(a) for a in arguments] + [f"at::Tensor {name}" for name, _ in zip(names, allocated)]
    statements = [_cpu_call(group, f, arguments)]
    if str(group.functional.func.name) in RESIZE_THEIR_RESULT and allocated:
        statements[:0] = [f"{name}.resize_(0)" for name in names]
    if str(group.functional.func.name) in MAY_SET_CONJUGATE_BIT:
        statements += [f"write_conjugate({name})" for name in names]
    body = f"[]({', '.join(parameters)}) {{ {'; '.join(statements)}; }}"
    lines = [
        launcher,
        *_device_check(f),
        operator,
        f"op.meta({', '.join(e.expr for e in meta_arguments)});",
        *_dtype_check(group),
        *_overlap_check(group, f),
        *_memory_format(group, allocated or names),
        f"{launch}{body}, {', '.join([a.name for a in arguments] + allocated)});",
        *_wait_for_errors(arguments),
        f"return {result};",
    ]
    return f"{head} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def _body_parameter(argument: Binding) -> str:
    type_ = argument.type
    if type_ in _BODY_TYPES:
        return f"{_BODY_TYPES[type_][0]} {argument.name}"
    if type_ == "at::Tensor &":
        return f"at::Tensor {argument.name}"
    return f"{type_} {argument.name}"


def _cpu_call(group: NativeFunctionsGroup, f: NativeFunction, arguments: Sequence[Binding]) -> str:
    """The call of the CPU kernel. In place it gets one view for input and output, as its checks for overlap need."""
    called = f if f.func.kind() is SchemaKind.inplace else group.out
    with native_function_manager(called):
        signatures = CppSignatureGroup.from_native_function(called, method=False, fallback_binding=False)
        signature = signatures.most_faithful_signature()
        bindings = list(arguments)
        if f.func.kind() is SchemaKind.functional:
            wanted = DispatcherSignature.from_schema(group.out.func, symint=False).arguments()
            names = {a.name for a in arguments}
            bindings += [a for a in wanted if a.name not in names]
        expressions = [e.expr for e in translate(bindings, signature.arguments(), method=False)]
    restored = {a.name: _BODY_TYPES[a.type][1].format(name=a.name) for a in arguments if a.type in _BODY_TYPES}
    kernels = "tensor_engine" if str(group.functional.func.name) in MATRIX_PRODUCTS else "at::cpu"
    return f"{kernels}::{signature.name()}({', '.join(restored.get(e, e) for e in expressions)})"


def _device_check(f: NativeFunction) -> list[str]:
    if f.device_check is DeviceCheckType.NoCheck:
        return []
    ordered = chain(f.func.arguments.out, f.func.arguments.flat_positional)
    checked = [a for a in ordered if a.type.is_tensor_like()]
    if len(checked) == 1 and not checked[0].type.is_list_like():
        return []
    names = [a.name for a in checked]
    quoted = ", ".join(f'"{name}"' for name in names)
    array = f"std::array<const char*, {len(names)}>{{{quoted}}}"
    return [f'check_same_device("wrapper_neuron_{_function_name(f)}", {array}, {", ".join(names)});']


def _dtype_check(group: NativeFunctionsGroup) -> list[str]:
    """Only the kernels of matrix products look at the dtypes of their operands."""
    operands = MATRIX_PRODUCTS.get(str(group.functional.func.name))
    return [f"check_dtypes_of_product({', '.join(operands)});"] if operands else []


def _overlap_check(group: NativeFunctionsGroup, f: NativeFunction) -> list[str]:
    """On the worker every argument is a tensor of its own, so kernels do not see that two share memory."""
    if group.out.structured_inherits is not None or f.func.kind() is SchemaKind.functional:
        return []
    written = [a.name for a in f.func.arguments.out] or ["self"]
    read = [a.name for a in f.func.arguments.flat_non_out if a.type.is_tensor_like() and a.name not in written]
    return [f"check_overlap({output}, {', '.join(read)});" for output in written if read]


def _wait_for_errors(arguments: Sequence[Binding]) -> list[str]:
    """Whoever asks for errors wants them at the call."""
    return [f"wait_for_errors(check_errors, {arguments[0].name});" for a in arguments if a.name == "check_errors"]


def _memory_format(group: NativeFunctionsGroup, outputs: Sequence[str]) -> list[str]:
    if str(group.functional.func.name) not in TAKE_MEMORY_FORMAT_OF_SELF:
        return []
    return [f"take_memory_format({output}, self);" for output in outputs]
