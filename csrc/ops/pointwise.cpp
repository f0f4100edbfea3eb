#include "ops/described.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/angle.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/div.h>
#include <ATen/ops/isnan_native.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logical_xor.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/relu_native.h>
#include <ATen/ops/remainder_native.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

// Elementwise operators that are not structured. Some are one structured operator in ATen's own words: those are
// registered as they are.
namespace torchneuron::described {

namespace {

// A result of real dtype where the input is complex.
struct AbsMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self) {
    const at::Tensor& out = maybe_get_output();
    if (!self.is_complex()) {
      build_borrowing_unary_op(out, self);
      return;
    }
    at::TensorIteratorConfig config;
    config.check_all_same_dtype(false).add_output(out).add_const_input(self);
    if (!out.defined()) {
      config.declare_static_dtype(c10::toRealValueType(self.scalar_type()));
    }
    build(config);
  }
};

struct Abs {
  static constexpr const char* kName = "aten::abs";
  using Meta = AbsMeta;
  static void run(at::Tensor& out, const at::Tensor& self) { at::abs_out(out, self); }
};

struct AngleMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self) { build_borrowing_unary_float_op(maybe_get_output(), self); }
};

struct Angle {
  static constexpr const char* kName = "aten::angle";
  using Meta = AngleMeta;
  static void run(at::Tensor& out, const at::Tensor& self) { at::angle_out(out, self); }
};

// CPU lays out the angles of complex numbers contiguously.
at::Tensor angle(const at::Tensor& self) {
  if (!self.is_complex()) {
    return functional<Angle, const at::Tensor&>(self);
  }
  static OpRecord& op = op_record(Angle::kName);
  at::Tensor out = new_tensor(self, self.sizes(), c10::toRealValueType(self.scalar_type()));
  launch(op, [](at::Tensor out, const at::Tensor& self) { Angle::run(out, self); }, out, self);
  return out;
}

// Two real tensors that make a complex one.
using ComplexOfTwo = at::Tensor& (*)(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

template <ComplexOfTwo kKernel>
struct ComplexOfTwoMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor& out = maybe_get_output();
    const at::ScalarType dtype = a.scalar_type();
    if ((dtype != at::kFloat && dtype != at::kDouble && dtype != at::kHalf) || b.scalar_type() != dtype ||
        out.scalar_type() != c10::toComplexType(dtype)) {
      ask_cpu([](const at::Tensor& a, const at::Tensor& b, at::Tensor out) { return kKernel(out, a, b); }, a, b, out);
    }
    at::TensorIteratorConfig config;
    config.check_all_same_dtype(false).add_output(out).add_const_input(a).add_const_input(b);
    build(config);
  }
};

struct Complex {
  static constexpr const char* kName = "aten::complex";
  using Meta = ComplexOfTwoMeta<&at::complex_out>;
  static void run(at::Tensor& out, const at::Tensor& real, const at::Tensor& imaginary) {
    at::complex_out(out, real, imaginary);
  }
};

struct Polar {
  static constexpr const char* kName = "aten::polar";
  using Meta = ComplexOfTwoMeta<&at::polar_out>;
  static void run(at::Tensor& out, const at::Tensor& radius, const at::Tensor& angle) {
    at::polar_out(out, radius, angle);
  }
};

struct LogicalNotMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self) {
    const at::Tensor& out = maybe_get_output();
    at::TensorIteratorConfig config;
    config.check_all_same_dtype(false).add_output(out).add_const_input(self);
    if (!out.defined()) {
      config.declare_static_dtype(at::kBool);
    }
    build(config);
  }
};

struct LogicalNot {
  static constexpr const char* kName = "aten::logical_not";
  using Meta = LogicalNotMeta;
  static void run(at::Tensor& out, const at::Tensor& self) { at::logical_not_out(out, self); }
};

struct LogicalAnd {
  static constexpr const char* kName = "aten::logical_and";
  using Meta = ComparisonMeta;
  static void run(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) { at::logical_and_out(out, a, b); }
};

struct LogicalOr {
  static constexpr const char* kName = "aten::logical_or";
  using Meta = ComparisonMeta;
  static void run(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) { at::logical_or_out(out, a, b); }
};

struct LogicalXor {
  static constexpr const char* kName = "aten::logical_xor";
  using Meta = ComparisonMeta;
  static void run(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) { at::logical_xor_out(out, a, b); }
};

struct NanToNumMeta : UnaryMeta {
  template <typename... Rest>
  void meta(const at::Tensor& self, const Rest&...) {
    const at::Tensor& out = maybe_get_output();
    TORCH_CHECK(
        !out.defined() || self.scalar_type() == out.scalar_type(), "nan_to_num: dtype of out: ", out.scalar_type(),
        " should be same as input: ", self.scalar_type());
    UnaryMeta::meta(self);
  }
};

struct NanToNum {
  static constexpr const char* kName = "aten::nan_to_num";
  using Meta = NanToNumMeta;
  static void run(
      at::Tensor& out, const at::Tensor& self, std::optional<double> nan, std::optional<double> positive,
      std::optional<double> negative) {
    at::nan_to_num_out(out, self, nan, positive, negative);
  }
};

struct WhereMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
    const at::Tensor& out = maybe_get_output();
    const at::ScalarType dtype = at::result_type(self, other);
    TORCH_CHECK(
        !out.defined() || out.scalar_type() == dtype, "Expected out type to be ", dtype, " but got ",
        out.scalar_type());
    if (condition.scalar_type() == at::kByte) {
      TORCH_WARN_ONCE(
          "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future "
          "version "
          "of PyTorch. Use a boolean condition instead.");
    } else {
      TORCH_CHECK(
          condition.scalar_type() == at::kBool,
          "where expected condition to be a boolean tensor, but got a tensor with "
          "dtype ",
          condition.scalar_type());
    }
    at::TensorIteratorConfig config;
    config.check_all_same_dtype(false)
        .allow_cpu_scalars(true)
        .add_output(out)
        .add_const_input(condition)
        .add_const_input(self)
        .add_const_input(other);
    if (!out.defined()) {
      config.declare_static_dtype(dtype);
    }
    build(config);
  }
};

struct Where {
  static constexpr const char* kName = "aten::where.self";
  using Meta = WhereMeta;
  static void run(at::Tensor& out, const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
    // The warning about uint8 has been given.
    at::where_out(out, condition.scalar_type() == at::kByte ? condition.to(at::kBool) : condition, self, other);
  }
};

struct LeftShift {
  static constexpr const char* kName = "aten::__lshift__.Tensor";
  using Meta = BinaryMeta;
  static void run(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
    run_into(out, [&] { return a.__lshift__(b); });
  }
};

struct RightShift {
  static constexpr const char* kName = "aten::__rshift__.Tensor";
  using Meta = BinaryMeta;
  static void run(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
    run_into(out, [&] { return a.__rshift__(b); });
  }
};

at::Tensor left_shift_scalar(const at::Tensor& self, const at::Scalar& other) {
  return functional<LeftShift, const at::Tensor&, const at::Tensor&>(self, at::native::wrapped_scalar_tensor(other));
}

at::Tensor right_shift_scalar(const at::Tensor& self, const at::Scalar& other) {
  return functional<RightShift, const at::Tensor&, const at::Tensor&>(self, at::native::wrapped_scalar_tensor(other));
}

at::Tensor rsub(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return at::sub(other, self, alpha);
}

// div rounds as floor_divide does, and is structured.
at::Tensor floor_divide(const at::Tensor& self, const at::Tensor& other) { return at::div(self, other, "floor"); }
at::Tensor& floor_divide_(at::Tensor& self, const at::Tensor& other) { return self.div_(other, "floor"); }
at::Tensor& floor_divide_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  return at::div_out(out, self, other, "floor");
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using Tensor = const at::Tensor&;
  m.impl("relu", &at::native::relu);
  m.impl("relu_", &at::native::relu_);
  m.impl("isnan", &at::native::isnan);
  m.impl("rsub.Tensor", &rsub);
  m.impl("abs", &functional<Abs, Tensor>);
  m.impl("abs.out", &into<Abs, Tensor>);
  m.impl("angle", &angle);
  m.impl("complex.out", &into<Complex, Tensor, Tensor>);
  m.impl("polar.out", &into<Polar, Tensor, Tensor>);
  m.impl("logical_not", &functional<LogicalNot, Tensor>);
  m.impl("logical_not.out", &into<LogicalNot, Tensor>);
  m.impl("logical_and", &functional<LogicalAnd, Tensor, Tensor>);
  m.impl("logical_and.out", &into<LogicalAnd, Tensor, Tensor>);
  m.impl("logical_or", &functional<LogicalOr, Tensor, Tensor>);
  m.impl("logical_or.out", &into<LogicalOr, Tensor, Tensor>);
  m.impl("logical_xor", &functional<LogicalXor, Tensor, Tensor>);
  m.impl("logical_xor.out", &into<LogicalXor, Tensor, Tensor>);
  using Value = std::optional<double>;
  m.impl("nan_to_num", &functional<NanToNum, Tensor, Value, Value, Value>);
  m.impl("nan_to_num.out", &into<NanToNum, Tensor, Value, Value, Value>);
  m.impl("where.self", &functional<Where, Tensor, Tensor, Tensor>);
  m.impl("where.self_out", &into<Where, Tensor, Tensor, Tensor>);
  m.impl("__lshift__.Tensor", &functional<LeftShift, Tensor, Tensor>);
  m.impl("__lshift__.Scalar", &left_shift_scalar);
  m.impl("__rshift__.Tensor", &functional<RightShift, Tensor, Tensor>);
  m.impl("__rshift__.Scalar", &right_shift_scalar);
  m.impl(
      "remainder.Scalar_Tensor",
      static_cast<at::Tensor (*)(const at::Scalar&, const at::Tensor&)>(&at::native::remainder));
  m.impl("floor_divide", &floor_divide);
  m.impl("floor_divide_.Tensor", &floor_divide_);
  m.impl("floor_divide.out", &floor_divide_out);
}

}  // namespace torchneuron::described
