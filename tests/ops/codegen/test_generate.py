"""The generator of the structured operators' launches, against native_functions.yaml as PyTorch's wheel has it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
import torchgen
import yaml

CODEGEN = Path(__file__).resolve().parents[3] / "csrc" / "ops" / "codegen"
sys.path.insert(0, str(CODEGEN))

import generate  # noqa: E402
from structured_ops import EXCLUDED, hand_written_overloads  # noqa: E402


@pytest.fixture(scope="module")
def schemas() -> dict[str, dict]:
    """Every entry of native_functions.yaml by its overload's name."""
    path = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    entries = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    return {entry["func"].partition("(")[0]: entry for entry in entries}


@pytest.fixture(scope="module")
def nothing_by_hand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("no_hand_written_operators")


@pytest.fixture(scope="module")
def files(nothing_by_hand: Path) -> dict[str, str]:
    """The generated text by file, with no operator written by hand."""
    return generate.generate(nothing_by_hand)


@pytest.fixture(scope="module")
def registered(files: dict[str, str]) -> list[str]:
    return [name for text in files.values() for name in registrations(text)]


def registrations(text: str) -> list[str]:
    return re.findall(r'm\.impl\("([^"]+)"', text)


def function(files: dict[str, str], overload: str) -> str:
    """The text of one launch."""
    (found,) = (
        function for text in files.values() for function in text.split("\n\n") if f'("aten::{overload}")' in function
    )
    return found


def structured_with_cpu_kernels(schemas: dict[str, dict]) -> dict[str, set[str]]:
    """The overloads of each structured operator, by the name of the one with out=."""
    out_overloads = {
        name
        for name, entry in schemas.items()
        if entry.get("structured") and any("CPU" in re.split(r",\s*", keys) for keys in entry.get("dispatch", {}))
    }
    # A ufunc's CPU kernel is written by torchgen and so not in the dispatch table.
    out_overloads |= {name for name, entry in schemas.items() if "ufunc_inner_loop" in entry}
    groups: dict[str, set[str]] = {name: {name} for name in out_overloads}
    for name, entry in schemas.items():
        if entry.get("structured_delegate") in groups:
            groups[entry["structured_delegate"]].add(name)
    return groups


def test_all_forms_of_add_are_registered(registered: list[str]) -> None:
    assert {"add.Tensor", "add_.Tensor", "add.out"} <= set(registered)


def test_every_structured_operator_with_a_cpu_kernel_is_registered_once(
    registered: list[str], schemas: dict[str, dict]
) -> None:
    groups = structured_with_cpu_kernels(schemas)
    assert len(groups) == 275
    assert set(registered) == set().union(*groups.values()) - EXCLUDED.keys()
    assert [name for name, count in Counter(registered).items() if count > 1] == []


def test_every_name_is_an_operator_of_pytorch(registered: list[str], schemas: dict[str, dict]) -> None:
    assert set(registered) <= schemas.keys()
    for name in registered:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CPU"), name


def test_excluded_overloads_are_absent(registered: list[str], schemas: dict[str, dict]) -> None:
    assert {"index.Tensor", "index.Tensor_out"} <= EXCLUDED.keys() <= schemas.keys()
    assert not EXCLUDED.keys() & set(registered)
    assert all(EXCLUDED.values())


def test_every_record_is_named_after_the_overload_that_is_registered(files: dict[str, str]) -> None:
    for text in files.values():
        assert re.findall(r'static .+\("aten::([^"]+)"\);', text) == registrations(text)


def test_functional_launch(files: dict[str, str]) -> None:
    assert function(files, "add.Tensor").strip() == (
        "at::Tensor add_Tensor(const at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha) {\n"
        '  static CheckedOp launcher("aten::add.Tensor");\n'
        "  Functional<at::meta::structured_add_Tensor, 1> op;\n"
        "  op.meta(self, other, alpha);\n"
        "  launcher.launch<1>([]"
        "(const at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha, at::Tensor out) "
        "{ at::cpu::add_outf(self, other, alpha, out); }, self, other, alpha, op.outputs[0]);\n"
        "  return std::move(op.outputs[0]);\n"
        "}"
    )


def test_in_place_launch_passes_self_once(files: dict[str, str]) -> None:
    text = function(files, "add_.Tensor")
    assert "InPlace<at::meta::structured_add_Tensor> op(self);" in text
    assert "{ at::cpu::add_(self, other, alpha); }, self, other, alpha);" in text
    assert "return self;" in text


def test_launch_of_several_outputs(files: dict[str, str]) -> None:
    functional = function(files, "topk")
    assert "Functional<at::meta::structured_topk, 2> op;" in functional
    assert "at::cpu::topk_outf(self, k, dim, largest, sorted, values, indices)" in functional
    assert "return std::make_tuple(std::move(op.outputs[0]), std::move(op.outputs[1]));" in functional
    out = function(files, "topk.values")
    assert "Out<at::meta::structured_topk, 2> op(values, indices);" in out
    assert "return std::forward_as_tuple(values, indices);" in out


def test_outputs_are_known_to_the_check_of_dtypes(files: dict[str, str]) -> None:
    assert "launcher.launch<1>(" in function(files, "add.out")
    assert "launcher.launch<0>(" in function(files, "add_.Tensor")
    assert "launcher.launch<2>(" in function(files, "topk")


def test_pivots_of_zero_never_reach_lapack(files: dict[str, str]) -> None:
    for overload in ("linalg_lu_solve", "linalg_lu_solve.out", "linalg_ldl_solve", "linalg_ldl_solve.out"):
        assert "CheckedOp" not in function(files, overload)
        assert "launch(record, []" in function(files, overload)


def test_outputs_take_the_memory_format_that_the_kernel_gives_them(files: dict[str, str]) -> None:
    assert "take_memory_format(op.outputs[0], self);" in function(files, "replication_pad2d")
    assert "take_memory_format(out, self);" in function(files, "replication_pad2d.out")
    assert "take_memory_format(grad_input, self);" in function(files, "reflection_pad3d_backward.grad_input")
    assert "take_memory_format" not in function(files, "replication_pad1d")


def test_precomputed_arguments_are_left_to_the_cpu_kernel(files: dict[str, str]) -> None:
    # native_functions.yaml: max.dim_max precomputes "dim -> int dim", which the meta function returns.
    assert "at::cpu::max_outf(self, dim, keepdim, max, max_values)" in function(files, "max.dim")


def test_tensor_lists_reach_the_cpu_kernel(files: dict[str, str]) -> None:
    text = function(files, "cat")
    assert "[](const std::vector<at::Tensor>& tensors, int64_t dim, at::Tensor out)" in text
    assert "at::cpu::cat_outf(at::ITensorListRef(at::TensorList(tensors)), dim, out)" in text


def test_devices_are_checked_where_pytorch_checks_them(files: dict[str, str], schemas: dict[str, dict]) -> None:
    mm = 'check_same_device("wrapper_neuron_mm_out", std::array<const char*, 3>{"out", "self", "mat2"}, '
    assert mm + "out, self, mat2);" in function(files, "mm.out")
    cat = 'check_same_device("wrapper_neuron_cat", std::array<const char*, 1>{"tensors"}, tensors);'
    assert cat in function(files, "cat")
    # TensorIterator looks at the devices itself, and takes CPU scalars.
    assert schemas["add.Tensor"]["device_check"] == "NoCheck"
    assert "check_same_device" not in function(files, "add.Tensor")
    # One tensor can't differ from the others.
    assert "check_same_device" not in function(files, "exp2")


def test_no_body_captures(files: dict[str, str]) -> None:
    for text in files.values():
        bodies = re.findall(r"launch(?:<\d>\(|\(record, )\[(.*?)\]", text)
        assert len(bodies) == len(registrations(text))
        assert set(bodies) == {""}


def test_a_launch_is_left_out_for_what_is_written_by_hand(tmp_path: Path, files: dict[str, str]) -> None:
    (tmp_path / "linear.cpp").write_text(
        """
        TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("bmm", &autograd_bmm); }
        TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
          m.impl("mm", &mm);
          m.impl("aten::addmm.out", TORCH_FN(addmm_out));
        }
        TORCH_LIBRARY_IMPL(quantized, PrivateUse1, m) { m.impl("baddbmm", &baddbmm); }
        """
    )
    assert hand_written_overloads(tmp_path) == {"mm", "addmm.out"}
    changed = generate.generate(tmp_path)
    before = {name for text in files.values() for name in registrations(text)}
    after = {name for text in changed.values() for name in registrations(text)}
    assert before - after == {"mm", "addmm.out"}
    # The other files need no new compilation.
    assert sum(files[name] != changed[name] for name in files) <= 2


def test_the_files_are_of_similar_size(files: dict[str, str]) -> None:
    counts = [len(registrations(text)) for text in files.values()]
    assert max(counts) <= 1.5 * min(counts)


def test_operators_of_one_signature_share_a_file(files: dict[str, str]) -> None:
    unary = {"exp", "sin", "cos", "tanh", "sigmoid", "rsqrt", "erf", "floor"}
    holding = {name for name, text in files.items() if unary & set(registrations(text))}
    assert len(holding) <= 2  # the group may go over the end of one file


def test_unchanged_files_are_not_written(tmp_path: Path, nothing_by_hand: Path) -> None:
    assert [path.name for path in generate.write_files(tmp_path, nothing_by_hand)] == list(generate.FILES)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert generate.write_files(tmp_path, nothing_by_hand) == []
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before

    edited = tmp_path / generate.FILES[3]
    text = edited.read_text()
    edited.write_text("int edited;")
    assert generate.write_files(tmp_path, nothing_by_hand) == [edited]
    assert edited.read_text() == text


def test_list_names_the_files_and_writes_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(CODEGEN / "generate.py"), "--list"]
    listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert listed.stdout.split() == list(generate.FILES)
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_which_files_changed(tmp_path: Path) -> None:
    command = [sys.executable, str(CODEGEN / "generate.py"), "--output-dir", str(tmp_path / "new" / "folder")]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [Path(line).name for line in first.stdout.split()] == list(generate.FILES)
    second = subprocess.run(command, capture_output=True, text=True, check=True)
    assert second.stdout == ""
