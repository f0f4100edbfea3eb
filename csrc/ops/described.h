#pragma once

#include "ops/codegen/structured.h"
#include "ops/unstructured.h"

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <tuple>
#include <utility>

// Launches for operators that are not structured, from a description that makes them so: a struct with
//   kName        "aten::flip"
//   Meta         a meta function, as structured operators have: it checks and reports the outputs' geometry
//   run(out…, arguments…)   the body; the outputs are CPU views of the right geometry
// The types of the arguments are those of the operator's signature, given at the registration:
//   m.impl("flip", &functional<Flip, const at::Tensor&, at::IntArrayRef>);
namespace torchneuron::described {

// "aten::name.overload" with `suffix` in the place where in-place and out= forms have it.
inline std::string form_name(std::string_view name, std::string_view suffix) {
  std::string full(name);
  const bool out = suffix == "out";
  const size_t dot = full.find('.');
  if (out) {
    return full + (dot == std::string::npos ? ".out" : "_out");
  }
  return dot == std::string::npos ? full + std::string(suffix) : full.insert(dot, suffix);
}

// As structured::check_overlap, for the tensors among the arguments.
template <typename... Args>
void check_tensors_overlap(const at::Tensor& output, const Args&... args) {
  const auto check = [&](const auto& argument) {
    if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, at::Tensor>) {
      structured::check_overlap(output, argument);
    }
  };
  (check(args), ...);
}

template <typename Op, typename... Args>
at::Tensor functional(Args... args) {
  static OpRecord& record = op_record(Op::kName);
  structured::Functional<typename Op::Meta, 1> op;
  op.meta(args...);
  launch(record, [](at::Tensor out, const auto&... views) { Op::run(out, views...); }, op.outputs[0], args...);
  return std::move(op.outputs[0]);
}

template <typename Op, typename... Args>
std::tuple<at::Tensor, at::Tensor> functional_pair(Args... args) {
  static OpRecord& record = op_record(Op::kName);
  structured::Functional<typename Op::Meta, 2> op;
  op.meta(args...);
  launch(
      record, [](at::Tensor first, at::Tensor second, const auto&... views) { Op::run(first, second, views...); },
      op.outputs[0], op.outputs[1], args...);
  return {std::move(op.outputs[0]), std::move(op.outputs[1])};
}

// run(out, self, …) gets one view for both.
template <typename Op, typename... Args>
at::Tensor& in_place(at::Tensor& self, Args... args) {
  static OpRecord& record = op_record(form_name(Op::kName, "_"));
  structured::InPlace<typename Op::Meta> op(self);
  op.meta(self, args...);
  check_tensors_overlap(self, args...);
  launch(record, [](at::Tensor view, const auto&... views) { Op::run(view, view, views...); }, self, args...);
  return self;
}

template <typename Op, typename... Args>
at::Tensor& into(Args... args, at::Tensor& out) {
  static OpRecord& record = op_record(form_name(Op::kName, "out"));
  structured::Out<typename Op::Meta, 1> op(out);
  op.meta(args...);
  check_tensors_overlap(out, args...);
  launch(record, [](at::Tensor view, const auto&... views) { Op::run(view, views...); }, out, args...);
  return out;
}

template <typename Op, typename... Args>
std::tuple<at::Tensor&, at::Tensor&> into_pair(Args... args, at::Tensor& first, at::Tensor& second) {
  static OpRecord& record = op_record(form_name(Op::kName, "out"));
  structured::Out<typename Op::Meta, 2> op(first, second);
  op.meta(args...);
  check_tensors_overlap(first, args...);
  check_tensors_overlap(second, args...);
  launch(
      record, [](at::Tensor a, at::Tensor b, const auto&... views) { Op::run(a, b, views...); }, first, second,
      args...);
  return {first, second};
}

// Meta functions of operators whose results PyTorch's TensorIterator describes. They take what follows the tensors,
// too.

struct UnaryMeta : at::TensorIteratorBase {
  template <typename... Rest>
  void meta(const at::Tensor& self, const Rest&...) {
    build_borrowing_unary_op(maybe_get_output(), self);
  }
};

struct BinaryMeta : at::TensorIteratorBase {
  template <typename... Rest>
  void meta(const at::Tensor& self, const at::Tensor& other, const Rest&...) {
    build_borrowing_binary_op(maybe_get_output(), self, other);
  }
};

struct ComparisonMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self, const at::Tensor& other) {
    build_borrowing_comparison_op(maybe_get_output(), self, other);
  }
};

// Meta functions that compute sizes themselves report an output by this.
struct ShapeMeta : at::impl::MetaBase {
  void set(const at::Tensor& like, at::IntArrayRef sizes, at::ScalarType dtype, int64_t index = 0) {
    set_output_raw_strided(index, sizes, {}, like.options().dtype(dtype));
  }
  void set(const at::Tensor& like, at::IntArrayRef sizes, int64_t index = 0) {
    set(like, sizes, like.scalar_type(), index);
  }
};

}  // namespace torchneuron::described
