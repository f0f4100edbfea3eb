#include "ops/foreach.h"

#include <ATen/ops/_foreach_addcdiv_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_addcmul_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_lerp_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/addcdiv_cpu_dispatch.h>
#include <ATen/ops/addcmul_cpu_dispatch.h>
#include <ATen/ops/lerp_cpu_dispatch.h>
#include <torch/library.h>

#include <string>

// addcmul, addcdiv and lerp.
namespace torchneuron::foreach {

namespace {

using TernaryKernel = void (*)(
    at::Tensor& out, const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& value);

// `b` may be empty, for kernels that have only one tensor beside `self`.
void launch_ternary(
    OpRecord& op, TernaryKernel kernel, at::TensorList self, at::TensorList a, at::TensorList b,
    at::ArrayRef<at::Scalar> values, at::TensorList out) {
  launch(
      op,
      [kernel](Views self, Views a, Views b, at::ArrayRef<at::Scalar> values, Views out) {
        for_each(self, out, [&](at::Tensor& target, const at::Tensor& tensor, size_t i) {
          kernel(target, tensor, a[i], b.empty() ? at::Tensor() : b[i], values.size() == 1 ? values[0] : values[i]);
        });
      },
      self, a, b, values, out);
}

#define TORCHNEURON_FAMILY(Family, name)                                                                              \
  struct Family {                                                                                                     \
    static constexpr const char* kName = "aten::_foreach_" #name;                                                     \
    static void kernel(                                                                                               \
        at::Tensor& out, const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& value) { \
      at::cpu::name##_out(out, self, a, b, value);                                                                    \
    }                                                                                                                 \
    template <typename... Args>                                                                                       \
    static auto slow(const Args&... args) {                                                                           \
      return at::compositeexplicitautograd::_foreach_##name(args...);                                                 \
    }                                                                                                                 \
    template <typename... Args>                                                                                       \
    static void slow_(const Args&... args) {                                                                          \
      at::compositeexplicitautograd::_foreach_##name##_(args...);                                                     \
    }                                                                                                                 \
  }

TORCHNEURON_FAMILY(Addcmul, addcmul);
TORCHNEURON_FAMILY(Addcdiv, addcdiv);
#undef TORCHNEURON_FAMILY

template <typename Family>
std::vector<at::Tensor> ternary_scalar_form(
    at::TensorList self, at::TensorList a, at::TensorList b, const at::Scalar& value) {
  static OpRecord& op = op_record(std::string(Family::kName) + ".Scalar");
  at::native::check_foreach_api_restrictions(self, a, b);
  if (!fits_one_launch({self, a, b}, {value})) {
    return Family::slow(self, a, b, value);
  }
  auto out = results_like(self);
  launch_ternary(op, &Family::kernel, self, a, b, value, out);
  return out;
}

template <typename Family>
void ternary_scalar_form_(at::TensorList self, at::TensorList a, at::TensorList b, const at::Scalar& value) {
  static OpRecord& op = op_record(std::string(Family::kName) + "_.Scalar");
  at::native::check_foreach_api_restrictions(self, a, b);
  if (!fits_one_launch({self, a, b}, {value})) {
    return Family::slow_(self, a, b, value);
  }
  launch_ternary(op, &Family::kernel, self, a, b, value, {});
}

template <typename Family>
std::vector<at::Tensor> ternary_scalar_list_form(
    at::TensorList self, at::TensorList a, at::TensorList b, at::ArrayRef<at::Scalar> values) {
  static OpRecord& op = op_record(std::string(Family::kName) + ".ScalarList");
  at::native::check_foreach_api_restrictions(self, a, b, values);
  if (!fits_one_launch({self, a, b}, values)) {
    return Family::slow(self, a, b, values);
  }
  auto out = results_like(self);
  launch_ternary(op, &Family::kernel, self, a, b, values, out);
  return out;
}

template <typename Family>
void ternary_scalar_list_form_(
    at::TensorList self, at::TensorList a, at::TensorList b, at::ArrayRef<at::Scalar> values) {
  static OpRecord& op = op_record(std::string(Family::kName) + "_.ScalarList");
  at::native::check_foreach_api_restrictions(self, a, b, values);
  if (!fits_one_launch({self, a, b}, values)) {
    return Family::slow_(self, a, b, values);
  }
  launch_ternary(op, &Family::kernel, self, a, b, values, {});
}

// The scalars come in a tensor, which PyTorch wants on the CPU.
template <typename Family>
std::vector<at::Tensor> ternary_tensor_form(
    at::TensorList self, at::TensorList a, at::TensorList b, const at::Tensor& values) {
  return ternary_scalar_list_form<Family>(
      self, a, b, at::native::convert_tensor_to_scalar_list(values, static_cast<int64_t>(self.size())));
}

template <typename Family>
void ternary_tensor_form_(at::TensorList self, at::TensorList a, at::TensorList b, const at::Tensor& values) {
  ternary_scalar_list_form_<Family>(
      self, a, b, at::native::convert_tensor_to_scalar_list(values, static_cast<int64_t>(self.size())));
}

void lerp_by_scalar(
    at::Tensor& out, const at::Tensor& self, const at::Tensor& end, const at::Tensor&, const at::Scalar& weight) {
  at::cpu::lerp_out(out, self, end, weight);
}

void lerp_by_tensor(
    at::Tensor& out, const at::Tensor& self, const at::Tensor& end, const at::Tensor& weight, const at::Scalar&) {
  at::cpu::lerp_out(out, self, end, weight);
}

std::vector<at::Tensor> lerp_list(at::TensorList self, at::TensorList end, at::TensorList weights) {
  static OpRecord& op = op_record("aten::_foreach_lerp.List");
  at::native::check_foreach_api_restrictions(self, end, weights);
  if (!fits_one_launch({self, end, weights})) {
    return at::compositeexplicitautograd::_foreach_lerp(self, end, weights);
  }
  auto out = results_like(self);
  launch_ternary(op, lerp_by_tensor, self, end, weights, at::Scalar(1), out);
  return out;
}

void lerp_list_(at::TensorList self, at::TensorList end, at::TensorList weights) {
  static OpRecord& op = op_record("aten::_foreach_lerp_.List");
  at::native::check_foreach_api_restrictions(self, end, weights);
  if (!fits_one_launch({self, end, weights})) {
    return at::compositeexplicitautograd::_foreach_lerp_(self, end, weights);
  }
  launch_ternary(op, lerp_by_tensor, self, end, weights, at::Scalar(1), {});
}

std::vector<at::Tensor> lerp_scalar(at::TensorList self, at::TensorList end, const at::Scalar& weight) {
  static OpRecord& op = op_record("aten::_foreach_lerp.Scalar");
  at::native::check_foreach_api_restrictions(self, end);
  if (!fits_one_launch({self, end}, {weight})) {
    return at::compositeexplicitautograd::_foreach_lerp(self, end, weight);
  }
  auto out = results_like(self);
  launch_ternary(op, lerp_by_scalar, self, end, {}, weight, out);
  return out;
}

void lerp_scalar_(at::TensorList self, at::TensorList end, const at::Scalar& weight) {
  static OpRecord& op = op_record("aten::_foreach_lerp_.Scalar");
  at::native::check_foreach_api_restrictions(self, end);
  if (!fits_one_launch({self, end}, {weight})) {
    return at::compositeexplicitautograd::_foreach_lerp_(self, end, weight);
  }
  launch_ternary(op, lerp_by_scalar, self, end, {}, weight, {});
}

std::vector<at::Tensor> lerp_scalar_list(at::TensorList self, at::TensorList end, at::ArrayRef<at::Scalar> weights) {
  static OpRecord& op = op_record("aten::_foreach_lerp.ScalarList");
  at::native::check_foreach_api_restrictions(self, end, weights);
  if (!fits_one_launch({self, end}, weights)) {
    return at::compositeexplicitautograd::_foreach_lerp(self, end, weights);
  }
  auto out = results_like(self);
  launch_ternary(op, lerp_by_scalar, self, end, {}, weights, out);
  return out;
}

void lerp_scalar_list_(at::TensorList self, at::TensorList end, at::ArrayRef<at::Scalar> weights) {
  static OpRecord& op = op_record("aten::_foreach_lerp_.ScalarList");
  at::native::check_foreach_api_restrictions(self, end, weights);
  if (!fits_one_launch({self, end}, weights)) {
    return at::compositeexplicitautograd::_foreach_lerp_(self, end, weights);
  }
  launch_ternary(op, lerp_by_scalar, self, end, {}, weights, {});
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_foreach_addcmul.Scalar", &ternary_scalar_form<Addcmul>);
  m.impl("_foreach_addcmul_.Scalar", &ternary_scalar_form_<Addcmul>);
  m.impl("_foreach_addcmul.ScalarList", &ternary_scalar_list_form<Addcmul>);
  m.impl("_foreach_addcmul_.ScalarList", &ternary_scalar_list_form_<Addcmul>);
  m.impl("_foreach_addcmul.Tensor", &ternary_tensor_form<Addcmul>);
  m.impl("_foreach_addcmul_.Tensor", &ternary_tensor_form_<Addcmul>);
  m.impl("_foreach_addcdiv.Scalar", &ternary_scalar_form<Addcdiv>);
  m.impl("_foreach_addcdiv_.Scalar", &ternary_scalar_form_<Addcdiv>);
  m.impl("_foreach_addcdiv.ScalarList", &ternary_scalar_list_form<Addcdiv>);
  m.impl("_foreach_addcdiv_.ScalarList", &ternary_scalar_list_form_<Addcdiv>);
  m.impl("_foreach_addcdiv.Tensor", &ternary_tensor_form<Addcdiv>);
  m.impl("_foreach_addcdiv_.Tensor", &ternary_tensor_form_<Addcdiv>);
  m.impl("_foreach_lerp.List", &lerp_list);
  m.impl("_foreach_lerp_.List", &lerp_list_);
  m.impl("_foreach_lerp.Scalar", &lerp_scalar);
  m.impl("_foreach_lerp_.Scalar", &lerp_scalar_);
  m.impl("_foreach_lerp.ScalarList", &lerp_scalar_list);
  m.impl("_foreach_lerp_.ScalarList", &lerp_scalar_list_);
}

}  // namespace torchneuron::foreach
