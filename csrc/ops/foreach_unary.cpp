#include "ops/foreach.h"

#include <ATen/ops/_foreach_abs_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_acos_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_asin_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_atan_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_ceil_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_clone_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_copy_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_cos_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_cosh_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_erf_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_erfc_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_exp_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_expm1_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_floor_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_frac_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_lgamma_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_log10_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_log1p_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_log2_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_log_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_max_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_neg_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_norm_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_reciprocal_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_round_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_rsqrt_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sigmoid_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sign_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sin_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sinh_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sqrt_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_tan_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_tanh_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_trunc_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_zero_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/frac.h>
#include <ATen/ops/lgamma.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/round.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/trunc.h>
#include <torch/library.h>

#include <algorithm>
#include <string>

// The operators of one list, and copies between two.
namespace torchneuron::foreach {

namespace {

using Kernel = at::Tensor& (*)(at::Tensor& out, const at::Tensor& self);

void launch_unary(OpRecord& op, Kernel kernel, at::TensorList self, at::TensorList out) {
  launch(
      op,
      [kernel](Views self, Views out) {
        for_each(self, out, [&](at::Tensor& target, const at::Tensor& tensor, size_t) { kernel(target, tensor); });
      },
      self, out);
}

#define TORCHNEURON_UNARY(name)                                                                            \
  struct Unary_##name {                                                                                    \
    static constexpr const char* kName = "aten::_foreach_" #name;                                          \
    static constexpr Kernel kKernel = &at::name##_out;                                                     \
    static auto slow(at::TensorList self) { return at::compositeexplicitautograd::_foreach_##name(self); } \
    static void slow_(at::TensorList self) { at::compositeexplicitautograd::_foreach_##name##_(self); }    \
  }

TORCHNEURON_UNARY(abs);
TORCHNEURON_UNARY(acos);
TORCHNEURON_UNARY(asin);
TORCHNEURON_UNARY(atan);
TORCHNEURON_UNARY(ceil);
TORCHNEURON_UNARY(cos);
TORCHNEURON_UNARY(cosh);
TORCHNEURON_UNARY(erf);
TORCHNEURON_UNARY(erfc);
TORCHNEURON_UNARY(exp);
TORCHNEURON_UNARY(expm1);
TORCHNEURON_UNARY(floor);
TORCHNEURON_UNARY(frac);
TORCHNEURON_UNARY(lgamma);
TORCHNEURON_UNARY(log);
TORCHNEURON_UNARY(log10);
TORCHNEURON_UNARY(log1p);
TORCHNEURON_UNARY(log2);
TORCHNEURON_UNARY(neg);
TORCHNEURON_UNARY(reciprocal);
TORCHNEURON_UNARY(round);
TORCHNEURON_UNARY(rsqrt);
TORCHNEURON_UNARY(sigmoid);
TORCHNEURON_UNARY(sign);
TORCHNEURON_UNARY(sin);
TORCHNEURON_UNARY(sinh);
TORCHNEURON_UNARY(sqrt);
TORCHNEURON_UNARY(tan);
TORCHNEURON_UNARY(tanh);
TORCHNEURON_UNARY(trunc);
#undef TORCHNEURON_UNARY

template <typename Unary>
std::vector<at::Tensor> functional(at::TensorList self) {
  static OpRecord& op = op_record(Unary::kName);
  at::native::check_foreach_api_restrictions(self);
  if (!fits_one_launch({self})) {
    return Unary::slow(self);
  }
  auto out = results_like(self);
  launch_unary(op, Unary::kKernel, self, out);
  return out;
}

template <typename Unary>
void in_place(at::TensorList self) {
  static OpRecord& op = op_record(std::string(Unary::kName) + "_");
  at::native::check_foreach_api_restrictions(self);
  if (!fits_one_launch({self})) {
    return Unary::slow_(self);
  }
  launch_unary(op, Unary::kKernel, self, {});
}

void zero_(at::TensorList self) {
  static OpRecord& op = op_record("aten::_foreach_zero_");
  at::native::check_foreach_api_restrictions(self);
  if (!fits_one_launch({self})) {
    return at::compositeexplicitautograd::_foreach_zero_(self);
  }
  launch_unary(op, [](at::Tensor& out, const at::Tensor&) -> at::Tensor& { return out.zero_(); }, self, {});
}

std::vector<at::Tensor> clone(at::TensorList self, std::optional<at::MemoryFormat> format) {
  static OpRecord& op = op_record("aten::_foreach_clone");
  at::native::check_foreach_api_restrictions(self);
  if (!fits_one_launch({self}) || format.value_or(at::MemoryFormat::Preserve) != at::MemoryFormat::Preserve) {
    return at::compositeexplicitautograd::_foreach_clone(self, format);
  }
  auto out = results_like(self);
  launch_unary(op, [](at::Tensor& out, const at::Tensor& self) -> at::Tensor& { return out.copy_(self); }, self, out);
  return out;
}

// Copies on one device may convert; all others are left to copy_.
void copy_(at::TensorList self, at::TensorList source, bool non_blocking) {
  static OpRecord& op = op_record("aten::_foreach_copy_");
  at::native::check_foreach_api_restrictions(self, source);
  const at::Device device = self[0].device();
  bool one_device = device.type() == kNeuron;
  for (size_t i = 0; one_device && i < self.size(); ++i) {
    one_device = self[i].device() == device && source[i].device() == device && self[i].sizes() == source[i].sizes() &&
                 self[i].is_non_overlapping_and_dense() && !self[i].is_same(source[i]);
  }
  if (!one_device) {
    return at::compositeexplicitautograd::_foreach_copy_(self, source, non_blocking);
  }
  launch(
      op,
      [](Views self, Views source) {
        for (size_t i = 0; i < self.size(); ++i) {
          self[i].copy_(source[i]);
        }
      },
      self, source);
}

// Tensors without dimensions, one for each of `self`, of another dtype than it if that is given.
std::vector<at::Tensor> scalars_for(at::TensorList self, std::optional<at::ScalarType> dtype) {
  std::vector<at::Tensor> out;
  out.reserve(self.size());
  for (const at::Tensor& tensor : self) {
    out.push_back(new_tensor(tensor, {}, dtype.value_or(tensor.scalar_type())));
  }
  return out;
}

bool any_empty(at::TensorList self) {
  return std::any_of(self.begin(), self.end(), [](const at::Tensor& tensor) { return tensor.numel() == 0; });
}

std::vector<at::Tensor> norm(at::TensorList self, const at::Scalar& ord, std::optional<at::ScalarType> dtype) {
  static OpRecord& op = op_record("aten::_foreach_norm.Scalar");
  at::native::check_foreach_api_restrictions(self);
  if (!fits_one_launch({self}) || ord.isComplex() || any_empty(self) ||
      (dtype.has_value() && *dtype != self[0].scalar_type() && *dtype != at::kFloat)) {
    return at::compositeexplicitautograd::_foreach_norm(self, ord, dtype);
  }
  auto out = scalars_for(self, dtype);
  launch(
      op,
      [dtype](Views self, const at::Scalar& ord, Views out) {
        for_each(self, out, [&](at::Tensor& target, const at::Tensor& tensor, size_t) {
          at::linalg_vector_norm_out(target, tensor, ord, at::OptionalIntArrayRef(), /*keepdim=*/false, dtype);
        });
      },
      self, ord, out);
  return out;
}

std::vector<at::Tensor> max(at::TensorList self) {
  static OpRecord& op = op_record("aten::_foreach_max");
  at::native::check_foreach_api_restrictions(self);
  if (!fits_one_launch({self}) || any_empty(self)) {
    return at::compositeexplicitautograd::_foreach_max(self);
  }
  auto out = scalars_for(self, std::nullopt);
  launch_unary(
      op, [](at::Tensor& out, const at::Tensor& self) -> at::Tensor& { return at::amax_out(out, self); }, self, out);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_foreach_abs", &functional<Unary_abs>);
  m.impl("_foreach_abs_", &in_place<Unary_abs>);
  m.impl("_foreach_acos", &functional<Unary_acos>);
  m.impl("_foreach_acos_", &in_place<Unary_acos>);
  m.impl("_foreach_asin", &functional<Unary_asin>);
  m.impl("_foreach_asin_", &in_place<Unary_asin>);
  m.impl("_foreach_atan", &functional<Unary_atan>);
  m.impl("_foreach_atan_", &in_place<Unary_atan>);
  m.impl("_foreach_ceil", &functional<Unary_ceil>);
  m.impl("_foreach_ceil_", &in_place<Unary_ceil>);
  m.impl("_foreach_cos", &functional<Unary_cos>);
  m.impl("_foreach_cos_", &in_place<Unary_cos>);
  m.impl("_foreach_cosh", &functional<Unary_cosh>);
  m.impl("_foreach_cosh_", &in_place<Unary_cosh>);
  m.impl("_foreach_erf", &functional<Unary_erf>);
  m.impl("_foreach_erf_", &in_place<Unary_erf>);
  m.impl("_foreach_erfc", &functional<Unary_erfc>);
  m.impl("_foreach_erfc_", &in_place<Unary_erfc>);
  m.impl("_foreach_exp", &functional<Unary_exp>);
  m.impl("_foreach_exp_", &in_place<Unary_exp>);
  m.impl("_foreach_expm1", &functional<Unary_expm1>);
  m.impl("_foreach_expm1_", &in_place<Unary_expm1>);
  m.impl("_foreach_floor", &functional<Unary_floor>);
  m.impl("_foreach_floor_", &in_place<Unary_floor>);
  m.impl("_foreach_frac", &functional<Unary_frac>);
  m.impl("_foreach_frac_", &in_place<Unary_frac>);
  m.impl("_foreach_lgamma", &functional<Unary_lgamma>);
  m.impl("_foreach_lgamma_", &in_place<Unary_lgamma>);
  m.impl("_foreach_log", &functional<Unary_log>);
  m.impl("_foreach_log_", &in_place<Unary_log>);
  m.impl("_foreach_log10", &functional<Unary_log10>);
  m.impl("_foreach_log10_", &in_place<Unary_log10>);
  m.impl("_foreach_log1p", &functional<Unary_log1p>);
  m.impl("_foreach_log1p_", &in_place<Unary_log1p>);
  m.impl("_foreach_log2", &functional<Unary_log2>);
  m.impl("_foreach_log2_", &in_place<Unary_log2>);
  m.impl("_foreach_neg", &functional<Unary_neg>);
  m.impl("_foreach_neg_", &in_place<Unary_neg>);
  m.impl("_foreach_reciprocal", &functional<Unary_reciprocal>);
  m.impl("_foreach_reciprocal_", &in_place<Unary_reciprocal>);
  m.impl("_foreach_round", &functional<Unary_round>);
  m.impl("_foreach_round_", &in_place<Unary_round>);
  m.impl("_foreach_rsqrt", &functional<Unary_rsqrt>);
  m.impl("_foreach_rsqrt_", &in_place<Unary_rsqrt>);
  m.impl("_foreach_sigmoid", &functional<Unary_sigmoid>);
  m.impl("_foreach_sigmoid_", &in_place<Unary_sigmoid>);
  m.impl("_foreach_sign", &functional<Unary_sign>);
  m.impl("_foreach_sign_", &in_place<Unary_sign>);
  m.impl("_foreach_sin", &functional<Unary_sin>);
  m.impl("_foreach_sin_", &in_place<Unary_sin>);
  m.impl("_foreach_sinh", &functional<Unary_sinh>);
  m.impl("_foreach_sinh_", &in_place<Unary_sinh>);
  m.impl("_foreach_sqrt", &functional<Unary_sqrt>);
  m.impl("_foreach_sqrt_", &in_place<Unary_sqrt>);
  m.impl("_foreach_tan", &functional<Unary_tan>);
  m.impl("_foreach_tan_", &in_place<Unary_tan>);
  m.impl("_foreach_tanh", &functional<Unary_tanh>);
  m.impl("_foreach_tanh_", &in_place<Unary_tanh>);
  m.impl("_foreach_trunc", &functional<Unary_trunc>);
  m.impl("_foreach_trunc_", &in_place<Unary_trunc>);
  m.impl("_foreach_zero_", &zero_);
  m.impl("_foreach_clone", &clone);
  m.impl("_foreach_copy_", &copy_);
  m.impl("_foreach_norm.Scalar", &norm);
  m.impl("_foreach_max", &max);
}

}  // namespace torchneuron::foreach
