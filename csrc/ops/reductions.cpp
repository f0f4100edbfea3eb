#include "engine/silence.h"
#include "ops/described.h"

#include <ATen/Dispatch.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/_cummax_helper.h>
#include <ATen/ops/_cummin_helper.h>
#include <ATen/ops/_logcumsumexp.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <ATen/ops/nansum.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/std.h>
#include <ATen/ops/std_mean.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/trace.h>
#include <ATen/ops/var.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/vdot.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

// Reductions that are not structured.
namespace torchneuron::described {

namespace {

using Dims = at::OptionalIntArrayRef;
using Correction = const std::optional<at::Scalar>&;
using OptionalDtype = std::optional<at::ScalarType>;

// `names`: of the operators in the error, "std and var"; `name`: of the one in the warning, "std".
void check_variance(const char* names, const char* name, const at::Tensor& self, Dims dims, Correction correction) {
  TORCH_CHECK(
      at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()), names,
      " only support floating point and complex dtypes");
  const auto mask = at::native::make_dim_mask(dims, self.dim());
  const int64_t kept = c10::multiply_integers(at::native::shape_from_dim_mask(self, mask, /*keepdim=*/false));
  const double divisor = kept == 0 ? 0.0 : static_cast<double>(self.numel() / kept);
  if (kept > 0 && divisor - correction.value_or(1).toDouble() <= 0) {
    TORCH_WARN(
        name,
        "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel "
        "divided by output numel).");
  }
}

template <typename Names>
struct VarianceMeta : ShapeMeta {
  void meta(const at::Tensor& self, Dims dims, Correction correction, bool keepdim) {
    const at::ScalarType real = c10::toRealValueType(self.scalar_type());
    check_variance("std and var", Names::kWarning, self, dims, correction);
    const at::Tensor& out = maybe_get_output();
    at::meta::resize_reduction(*this, self, dims, keepdim, out.defined() ? out.scalar_type() : real);
  }
};

struct StdNames {
  static constexpr const char* kWarning = "std";
};
struct VarNames {
  static constexpr const char* kWarning = "var";
};

struct Std {
  static constexpr const char* kName = "aten::std.correction";
  using Meta = VarianceMeta<StdNames>;
  static void run(at::Tensor& out, const at::Tensor& self, Dims dims, Correction correction, bool keepdim) {
    const Silence silence;
    at::std_out(out, self, dims, correction, keepdim);
  }
};

struct Var {
  static constexpr const char* kName = "aten::var.correction";
  using Meta = VarianceMeta<VarNames>;
  static void run(at::Tensor& out, const at::Tensor& self, Dims dims, Correction correction, bool keepdim) {
    const Silence silence;
    at::var_out(out, self, dims, correction, keepdim);
  }
};

template <typename Names>
struct VarianceAndMeanMeta : ShapeMeta {
  void meta(const at::Tensor& self, Dims dims, Correction correction, bool keepdim) {
    check_variance(Names::kWarning, Names::kWarning, self, dims, correction);
    const auto mask = at::native::make_dim_mask(dims, self.dim());
    const auto shape = at::native::shape_from_dim_mask(self, mask, keepdim);
    set(self, shape, c10::toRealValueType(self.scalar_type()), 0);
    set(self, shape, self.scalar_type(), 1);
  }
};

struct StdMeanNames {
  static constexpr const char* kWarning = "std_mean";
};
struct VarMeanNames {
  static constexpr const char* kWarning = "var_mean";
};

struct StdMean {
  static constexpr const char* kName = "aten::std_mean.correction";
  using Meta = VarianceAndMeanMeta<StdMeanNames>;
  static void run(
      at::Tensor& std, at::Tensor& mean, const at::Tensor& self, Dims dims, Correction correction, bool keepdim) {
    const Silence silence;
    run_into(std::array<at::Tensor, 2>{std, mean}, [&] { return at::std_mean(self, dims, correction, keepdim); });
  }
};

struct VarMean {
  static constexpr const char* kName = "aten::var_mean.correction";
  using Meta = VarianceAndMeanMeta<VarMeanNames>;
  static void run(
      at::Tensor& var, at::Tensor& mean, const at::Tensor& self, Dims dims, Correction correction, bool keepdim) {
    const Silence silence;
    run_into(std::array<at::Tensor, 2>{var, mean}, [&] { return at::var_mean(self, dims, correction, keepdim); });
  }
};

struct NansumMeta : ShapeMeta {
  void meta(const at::Tensor& self, Dims dims, bool keepdim, OptionalDtype dtype) {
    TORCH_CHECK(!self.is_complex(), "nansum on CPU does not support complex inputs");
    const at::Tensor& out = maybe_get_output();
    const at::ScalarType promoted = at::native::get_dtype_from_self(self, dtype, /*promote_integers=*/true);
    at::meta::resize_reduction(*this, self, dims, keepdim, out.defined() ? out.scalar_type() : promoted);
  }
};

struct Nansum {
  static constexpr const char* kName = "aten::nansum";
  using Meta = NansumMeta;
  static void run(at::Tensor& out, const at::Tensor& self, Dims dims, bool keepdim, OptionalDtype dtype) {
    at::nansum_out(out, self, dims, keepdim, dtype);
  }
};

// Of all elements.
struct ProdMeta : ShapeMeta {
  void meta(const at::Tensor& self, OptionalDtype dtype) {
    set(self, {}, at::native::get_dtype_from_self(self, dtype, /*promote_integers=*/true));
  }
};

struct Prod {
  static constexpr const char* kName = "aten::prod";
  using Meta = ProdMeta;
  static void run(at::Tensor& out, const at::Tensor& self, OptionalDtype dtype) { out.copy_(at::prod(self, dtype)); }
};

template <at::Tensor (*kKernel)(const at::Tensor&)>
struct ExtremumMeta : ShapeMeta {
  void meta(const at::Tensor& self) {
    if (self.numel() == 0 || self.is_complex()) {
      ask_cpu(kKernel, self);
    }
    set(self, {});
  }
};

struct Max {
  static constexpr const char* kName = "aten::max";
  using Meta = ExtremumMeta<at::max>;
  static void run(at::Tensor& out, const at::Tensor& self) { out.copy_(at::max(self)); }
};

struct Min {
  static constexpr const char* kName = "aten::min";
  using Meta = ExtremumMeta<at::min>;
  static void run(at::Tensor& out, const at::Tensor& self) { out.copy_(at::min(self)); }
};

struct CountNonzeroMeta : ShapeMeta {
  void meta(const at::Tensor& self, at::IntArrayRef dims) {
    // An empty list stands for all dimensions.
    const auto mask = at::native::make_dim_mask(dims, self.dim());
    set(self, at::native::shape_from_dim_mask(self, mask, /*keepdim=*/false), at::kLong);
  }
};

struct CountNonzero {
  static constexpr const char* kName = "aten::count_nonzero.dim_IntList";
  using Meta = CountNonzeroMeta;
  static void run(at::Tensor& out, const at::Tensor& self, at::IntArrayRef dims) {
    run_into(out, [&] { return at::count_nonzero(self, dims); });
  }
};

struct TraceMeta : ShapeMeta {
  void meta(const at::Tensor& self) {
    TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
    set(self, {}, at::native::get_dtype_from_self(self, std::nullopt, /*promote_integers=*/true));
  }
};

struct Trace {
  static constexpr const char* kName = "aten::trace";
  using Meta = TraceMeta;
  static void run(at::Tensor& out, const at::Tensor& self) { out.copy_(at::trace(self)); }
};

template <at::Tensor (*kKernel)(const at::Tensor&, const at::Tensor&)>
struct DotMeta : ShapeMeta {
  void meta(const at::Tensor& self, const at::Tensor& other) {
    check_one_device("dot", self, other);
    if (self.dim() != 1 || other.dim() != 1 || self.scalar_type() != other.scalar_type() ||
        self.numel() != other.numel()) {
      ask_cpu(kKernel, self, other);
    }
    set(self, {});
  }
};

struct Dot {
  static constexpr const char* kName = "aten::dot";
  using Meta = DotMeta<at::dot>;
  static void run(at::Tensor& out, const at::Tensor& self, const at::Tensor& other) { out.copy_(at::dot(self, other)); }
};

struct Vdot {
  static constexpr const char* kName = "aten::vdot";
  using Meta = DotMeta<at::vdot>;
  static void run(at::Tensor& out, const at::Tensor& self, const at::Tensor& other) {
    out.copy_(at::vdot(self, other));
  }
};

// The edges are those of the values where min == max, which is for the worker to see.
struct HistcMeta : ShapeMeta {
  void meta(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
    const bool has_numbers = at::isFloatingType(self.scalar_type()) || at::isIntegralType(self.scalar_type(), false);
    if (!has_numbers || bins <= 0 || min.toDouble() > max.toDouble()) {
      ask_cpu([&](const at::Tensor& t) { return at::histc(t, bins, min, max); }, self);
    }
    set(self, {bins});
  }
};

// Integers, which CPU refuses and CUDA counts: PyTorch models count by histc on every device but cpu. No rounding moves
// a value over an edge.
void count_integers(at::Tensor& out, const at::Tensor& self, int64_t bins, int64_t low, int64_t high) {
  if (low == high && self.numel() > 0) {
    low = self.min().item<int64_t>();
    high = self.max().item<int64_t>();
  }
  if (low == high) {
    --low;
    ++high;
  }
  const at::Tensor values = self.to(at::kLong).contiguous();
  std::vector<int64_t> counts(static_cast<size_t>(bins));
  for (const int64_t value : at::IntArrayRef(values.const_data_ptr<int64_t>(), static_cast<size_t>(values.numel()))) {
    if (value >= low && value <= high) {
      ++counts[static_cast<size_t>(std::min((value - low) * bins / (high - low), bins - 1))];
    }
  }
  out.copy_(at::tensor(counts, at::kLong));
}

struct Histc {
  static constexpr const char* kName = "aten::histc";
  using Meta = HistcMeta;
  static void run(at::Tensor& out, const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
    if (at::isFloatingType(self.scalar_type())) {
      out.copy_(at::histc(self, bins, min, max));
    } else {
      count_integers(out, self, bins, min.toLong(), max.toLong());
    }
  }
};

struct LogCumSumExpMeta : ShapeMeta {
  void meta(const at::Tensor& self, int64_t /*dim*/) { set(self, self.sizes()); }
};

struct LogCumSumExp {
  static constexpr const char* kName = "aten::_logcumsumexp";
  using Meta = LogCumSumExpMeta;
  static void run(at::Tensor& out, const at::Tensor& self, int64_t dim) { at::_logcumsumexp_out(out, self, dim); }
};

void cummax_helper(const at::Tensor& self, at::Tensor& values, at::Tensor& indices, int64_t dim) {
  static OpRecord& op = op_record("aten::_cummax_helper");
  launch(
      op,
      [dim](const at::Tensor& self, at::Tensor values, at::Tensor indices) {
        at::_cummax_helper(self, values, indices, dim);
      },
      self, values, indices);
}

void cummin_helper(const at::Tensor& self, at::Tensor& values, at::Tensor& indices, int64_t dim) {
  static OpRecord& op = op_record("aten::_cummin_helper");
  launch(
      op,
      [dim](const at::Tensor& self, at::Tensor values, at::Tensor indices) {
        at::_cummin_helper(self, values, indices, dim);
      },
      self, values, indices);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using Tensor = const at::Tensor&;
  using Scalar = const at::Scalar&;
  m.impl("std.correction", &functional<Std, Tensor, Dims, Correction, bool>);
  m.impl("std.correction_out", &into<Std, Tensor, Dims, Correction, bool>);
  m.impl("var.correction", &functional<Var, Tensor, Dims, Correction, bool>);
  m.impl("var.correction_out", &into<Var, Tensor, Dims, Correction, bool>);
  m.impl("std_mean.correction", &functional_pair<StdMean, Tensor, Dims, Correction, bool>);
  m.impl("var_mean.correction", &functional_pair<VarMean, Tensor, Dims, Correction, bool>);
  m.impl("nansum", &functional<Nansum, Tensor, Dims, bool, OptionalDtype>);
  m.impl("nansum.out", &into<Nansum, Tensor, Dims, bool, OptionalDtype>);
  m.impl("prod", &functional<Prod, Tensor, OptionalDtype>);
  m.impl("max", &functional<Max, Tensor>);
  m.impl("max.unary_out", &into<Max, Tensor>);
  m.impl("min", &functional<Min, Tensor>);
  m.impl("min.unary_out", &into<Min, Tensor>);
  m.impl("count_nonzero.dim_IntList", &functional<CountNonzero, Tensor, at::IntArrayRef>);
  m.impl("trace", &functional<Trace, Tensor>);
  m.impl("dot", &functional<Dot, Tensor, Tensor>);
  m.impl("vdot", &functional<Vdot, Tensor, Tensor>);
  m.impl("histc", &functional<Histc, Tensor, int64_t, Scalar, Scalar>);
  m.impl("histc.out", &into<Histc, Tensor, int64_t, Scalar, Scalar>);
  m.impl("_logcumsumexp", &functional<LogCumSumExp, Tensor, int64_t>);
  m.impl("_logcumsumexp.out", &into<LogCumSumExp, Tensor, int64_t>);
  m.impl("_cummax_helper", &cummax_helper);
  m.impl("_cummin_helper", &cummin_helper);
}

}  // namespace torchneuron::described
