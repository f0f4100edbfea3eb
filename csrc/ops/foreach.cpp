#include "ops/foreach.h"

#include <ATen/ScalarOps.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/ops/_foreach_add_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_clamp_max_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_clamp_min_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_div_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_maximum_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_minimum_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_mul_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_pow_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sub_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/clamp_max_cpu_dispatch.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/pow_cpu_dispatch.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#include <torch/library.h>

#include <string>
#include <utility>

// The operators of a list and a second operand: a scalar, a list, a list of scalars or a single tensor.
namespace torchneuron::foreach {

namespace {

// What one tensor of the list is computed by, on the worker.
using TensorKernel =
    void (*)(at::Tensor& out, const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha);
using ScalarKernel =
    void (*)(at::Tensor& out, const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha);

void launch_tensors(
    OpRecord& op, TensorKernel kernel, at::TensorList self, at::TensorList other, const at::Scalar& alpha,
    at::TensorList out) {
  launch(
      op,
      [kernel](Views self, Views other, const at::Scalar& alpha, Views out) {
        for_each(self, out, [&](at::Tensor& target, const at::Tensor& tensor, size_t i) {
          kernel(target, tensor, other.size() == 1 ? other[0] : other[i], alpha);
        });
      },
      self, other, alpha, out);
}

void launch_scalars(
    OpRecord& op, ScalarKernel kernel, at::TensorList self, at::ArrayRef<at::Scalar> other, const at::Scalar& alpha,
    at::TensorList out) {
  launch(
      op,
      [kernel](Views self, at::ArrayRef<at::Scalar> other, const at::Scalar& alpha, Views out) {
        for_each(self, out, [&](at::Tensor& target, const at::Tensor& tensor, size_t i) {
          kernel(target, tensor, other.size() == 1 ? other[0] : other[i], alpha);
        });
      },
      self, other, alpha, out);
}

// A family of operators: `name`, the kernels, and PyTorch's loops, `slow` and the in-place `slow_`.
#define TORCHNEURON_FAMILY(Family, name)                                                      \
  struct Family {                                                                             \
    static constexpr const char* kName = "aten::_foreach_" #name;                             \
    static void tensor(at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Scalar&); \
    static void scalar(at::Tensor&, const at::Tensor&, const at::Scalar&, const at::Scalar&); \
    template <typename... Args>                                                               \
    static auto slow(const Args&... args) {                                                   \
      return at::compositeexplicitautograd::_foreach_##name(args...);                         \
    }                                                                                         \
    template <typename... Args>                                                               \
    static void slow_(const Args&... args) {                                                  \
      at::compositeexplicitautograd::_foreach_##name##_(args...);                             \
    }                                                                                         \
  }

TORCHNEURON_FAMILY(Add, add);
TORCHNEURON_FAMILY(Sub, sub);
TORCHNEURON_FAMILY(Mul, mul);
TORCHNEURON_FAMILY(Div, div);
TORCHNEURON_FAMILY(ClampMin, clamp_min);
TORCHNEURON_FAMILY(ClampMax, clamp_max);
TORCHNEURON_FAMILY(Maximum, maximum);
TORCHNEURON_FAMILY(Minimum, minimum);
TORCHNEURON_FAMILY(Pow, pow);
#undef TORCHNEURON_FAMILY

// A scalar operand is a wrapped number to these kernels, as it is in at::add(tensor, scalar).
at::Tensor wrapped(const at::Scalar& scalar) { return at::native::wrapped_scalar_tensor(scalar); }

void Add::tensor(at::Tensor& out, const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  at::cpu::add_out(out, self, other, alpha);
}
void Add::scalar(at::Tensor& out, const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  at::cpu::add_out(out, self, wrapped(other), alpha);
}
void Sub::tensor(at::Tensor& out, const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  at::cpu::sub_out(out, self, other, alpha);
}
void Sub::scalar(at::Tensor& out, const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  at::cpu::sub_out(out, self, wrapped(other), alpha);
}
void Mul::tensor(at::Tensor& out, const at::Tensor& self, const at::Tensor& other, const at::Scalar&) {
  at::cpu::mul_out(out, self, other);
}
// In place, at::mul_(tensor, scalar) multiplies the other way round, and half precision then rounds the scalar first.
void Mul::scalar(at::Tensor& out, const at::Tensor& self, const at::Scalar& other, const at::Scalar&) {
  if (out.is_same(self)) {
    at::cpu::mul_out(out, wrapped(other), self);
  } else {
    at::cpu::mul_out(out, self, wrapped(other));
  }
}
void Div::tensor(at::Tensor& out, const at::Tensor& self, const at::Tensor& other, const at::Scalar&) {
  at::cpu::div_out(out, self, other);
}
void Div::scalar(at::Tensor& out, const at::Tensor& self, const at::Scalar& other, const at::Scalar&) {
  at::cpu::div_out(out, self, wrapped(other));
}
void ClampMin::tensor(at::Tensor& out, const at::Tensor& self, const at::Tensor& other, const at::Scalar&) {
  at::cpu::clamp_min_out(out, self, other);
}
void ClampMin::scalar(at::Tensor& out, const at::Tensor& self, const at::Scalar& other, const at::Scalar&) {
  at::cpu::clamp_min_out(out, self, other);
}
void ClampMax::tensor(at::Tensor& out, const at::Tensor& self, const at::Tensor& other, const at::Scalar&) {
  at::cpu::clamp_max_out(out, self, other);
}
void ClampMax::scalar(at::Tensor& out, const at::Tensor& self, const at::Scalar& other, const at::Scalar&) {
  at::cpu::clamp_max_out(out, self, other);
}
// PyTorch's loops clamp for these, too.
void Maximum::tensor(at::Tensor& out, const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  ClampMin::tensor(out, self, other, alpha);
}
void Maximum::scalar(at::Tensor& out, const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  ClampMin::scalar(out, self, other, alpha);
}
void Minimum::tensor(at::Tensor& out, const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  ClampMax::tensor(out, self, other, alpha);
}
void Minimum::scalar(at::Tensor& out, const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  ClampMax::scalar(out, self, other, alpha);
}
void Pow::tensor(at::Tensor& out, const at::Tensor& self, const at::Tensor& other, const at::Scalar&) {
  at::cpu::pow_out(out, self, other);
}
void Pow::scalar(at::Tensor& out, const at::Tensor& self, const at::Scalar& other, const at::Scalar&) {
  at::cpu::pow_out(out, self, other);
}

template <typename Family>
std::vector<at::Tensor> scalar_form(at::TensorList self, const at::Scalar& scalar) {
  static OpRecord& op = op_record(std::string(Family::kName) + ".Scalar");
  at::native::check_foreach_api_restrictions(self);
  if (!fits_one_launch({self}, {scalar})) {
    return Family::slow(self, scalar);
  }
  auto out = results_like(self);
  launch_scalars(op, &Family::scalar, self, scalar, 1, out);
  return out;
}

template <typename Family>
void scalar_form_(at::TensorList self, const at::Scalar& scalar) {
  static OpRecord& op = op_record(std::string(Family::kName) + "_.Scalar");
  at::native::check_foreach_api_restrictions(self);
  if (!fits_one_launch({self}, {scalar})) {
    return Family::slow_(self, scalar);
  }
  launch_scalars(op, &Family::scalar, self, scalar, 1, {});
}

template <typename Family>
std::vector<at::Tensor> scalar_list_form(at::TensorList self, at::ArrayRef<at::Scalar> scalars) {
  static OpRecord& op = op_record(std::string(Family::kName) + ".ScalarList");
  at::native::check_foreach_api_restrictions(self, scalars);
  if (!fits_one_launch({self}, scalars)) {
    return Family::slow(self, scalars);
  }
  auto out = results_like(self);
  launch_scalars(op, &Family::scalar, self, scalars, 1, out);
  return out;
}

template <typename Family>
void scalar_list_form_(at::TensorList self, at::ArrayRef<at::Scalar> scalars) {
  static OpRecord& op = op_record(std::string(Family::kName) + "_.ScalarList");
  at::native::check_foreach_api_restrictions(self, scalars);
  if (!fits_one_launch({self}, scalars)) {
    return Family::slow_(self, scalars);
  }
  launch_scalars(op, &Family::scalar, self, scalars, 1, {});
}

// Alpha... is the scalar alpha of add and sub, nothing for the others.
template <typename Family, typename... Alpha>
std::vector<at::Tensor> list_form(at::TensorList self, at::TensorList other, const Alpha&... alpha) {
  static OpRecord& op = op_record(std::string(Family::kName) + ".List");
  at::native::check_foreach_api_restrictions(self, other);
  if (!fits_one_launch({self, other}, {alpha...})) {
    return Family::slow(self, other, alpha...);
  }
  auto out = results_like(self);
  launch_tensors(op, &Family::tensor, self, other, at::Scalar(alpha...), out);
  return out;
}

template <typename Family, typename... Alpha>
void list_form_(at::TensorList self, at::TensorList other, const Alpha&... alpha) {
  static OpRecord& op = op_record(std::string(Family::kName) + "_.List");
  at::native::check_foreach_api_restrictions(self, other);
  if (!fits_one_launch({self, other}, {alpha...})) {
    return Family::slow_(self, other, alpha...);
  }
  launch_tensors(op, &Family::tensor, self, other, at::Scalar(alpha...), {});
}

// Whether a single tensor can be the second operand of all: it has no dimensions and the dtype of the list.
bool is_scalar_like(at::TensorList self, const at::Tensor& other) {
  return other.dim() == 0 && other.scalar_type() == self[0].scalar_type() &&
         (other.device() == self[0].device() || other.is_cpu());
}

template <typename Family, typename... Alpha>
std::vector<at::Tensor> tensor_form(at::TensorList self, const at::Tensor& other, const Alpha&... alpha) {
  static OpRecord& op = op_record(std::string(Family::kName) + ".Tensor");
  at::native::check_foreach_api_restrictions(self);
  if (!is_scalar_like(self, other) || !fits_one_launch({self}, {alpha...})) {
    return Family::slow(self, other, alpha...);
  }
  auto out = results_like(self);
  launch_tensors(op, &Family::tensor, self, at::TensorList(other), at::Scalar(alpha...), out);
  return out;
}

template <typename Family, typename... Alpha>
void tensor_form_(at::TensorList self, const at::Tensor& other, const Alpha&... alpha) {
  static OpRecord& op = op_record(std::string(Family::kName) + "_.Tensor");
  at::native::check_foreach_api_restrictions(self);
  if (!is_scalar_like(self, other) || !fits_one_launch({self}, {alpha...})) {
    return Family::slow_(self, other, alpha...);
  }
  launch_tensors(op, &Family::tensor, self, at::TensorList(other), at::Scalar(alpha...), {});
}

std::vector<at::Tensor> scalar_to_powers(const at::Scalar& self, at::TensorList exponent) {
  static OpRecord& op = op_record("aten::_foreach_pow.ScalarAndTensor");
  at::native::check_foreach_api_restrictions(exponent);
  if (!fits_one_launch({exponent}, {self})) {
    return at::compositeexplicitautograd::_foreach_pow(self, exponent);
  }
  // at::pow(scalar, tensor) gives contiguous results.
  std::vector<at::Tensor> out;
  out.reserve(exponent.size());
  for (const at::Tensor& tensor : exponent) {
    out.push_back(new_tensor(tensor, tensor.sizes(), tensor.scalar_type()));
  }
  launch_scalars(
      op,
      [](at::Tensor& out, const at::Tensor& exponent, const at::Scalar& self, const at::Scalar&) {
        at::cpu::pow_out(out, self, exponent);
      },
      exponent, self, 1, out);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_foreach_add.Scalar", &scalar_form<Add>);
  m.impl("_foreach_add_.Scalar", &scalar_form_<Add>);
  m.impl("_foreach_add.List", &list_form<Add, at::Scalar>);
  m.impl("_foreach_add_.List", &list_form_<Add, at::Scalar>);
  m.impl("_foreach_add.ScalarList", &scalar_list_form<Add>);
  m.impl("_foreach_add_.ScalarList", &scalar_list_form_<Add>);
  m.impl("_foreach_add.Tensor", &tensor_form<Add, at::Scalar>);
  m.impl("_foreach_add_.Tensor", &tensor_form_<Add, at::Scalar>);
  m.impl("_foreach_sub.Scalar", &scalar_form<Sub>);
  m.impl("_foreach_sub_.Scalar", &scalar_form_<Sub>);
  m.impl("_foreach_sub.List", &list_form<Sub, at::Scalar>);
  m.impl("_foreach_sub_.List", &list_form_<Sub, at::Scalar>);
  m.impl("_foreach_sub.ScalarList", &scalar_list_form<Sub>);
  m.impl("_foreach_sub_.ScalarList", &scalar_list_form_<Sub>);
  m.impl("_foreach_mul.Scalar", &scalar_form<Mul>);
  m.impl("_foreach_mul_.Scalar", &scalar_form_<Mul>);
  m.impl("_foreach_mul.List", &list_form<Mul>);
  m.impl("_foreach_mul_.List", &list_form_<Mul>);
  m.impl("_foreach_mul.ScalarList", &scalar_list_form<Mul>);
  m.impl("_foreach_mul_.ScalarList", &scalar_list_form_<Mul>);
  m.impl("_foreach_mul.Tensor", &tensor_form<Mul>);
  m.impl("_foreach_mul_.Tensor", &tensor_form_<Mul>);
  m.impl("_foreach_div.Scalar", &scalar_form<Div>);
  m.impl("_foreach_div_.Scalar", &scalar_form_<Div>);
  m.impl("_foreach_div.List", &list_form<Div>);
  m.impl("_foreach_div_.List", &list_form_<Div>);
  m.impl("_foreach_div.ScalarList", &scalar_list_form<Div>);
  m.impl("_foreach_div_.ScalarList", &scalar_list_form_<Div>);
  m.impl("_foreach_div.Tensor", &tensor_form<Div>);
  m.impl("_foreach_div_.Tensor", &tensor_form_<Div>);
  m.impl("_foreach_clamp_min.Scalar", &scalar_form<ClampMin>);
  m.impl("_foreach_clamp_min_.Scalar", &scalar_form_<ClampMin>);
  m.impl("_foreach_clamp_min.List", &list_form<ClampMin>);
  m.impl("_foreach_clamp_min_.List", &list_form_<ClampMin>);
  m.impl("_foreach_clamp_min.ScalarList", &scalar_list_form<ClampMin>);
  m.impl("_foreach_clamp_min_.ScalarList", &scalar_list_form_<ClampMin>);
  m.impl("_foreach_clamp_max.Scalar", &scalar_form<ClampMax>);
  m.impl("_foreach_clamp_max_.Scalar", &scalar_form_<ClampMax>);
  m.impl("_foreach_clamp_max.List", &list_form<ClampMax>);
  m.impl("_foreach_clamp_max_.List", &list_form_<ClampMax>);
  m.impl("_foreach_clamp_max.ScalarList", &scalar_list_form<ClampMax>);
  m.impl("_foreach_clamp_max_.ScalarList", &scalar_list_form_<ClampMax>);
  m.impl("_foreach_maximum.Scalar", &scalar_form<Maximum>);
  m.impl("_foreach_maximum_.Scalar", &scalar_form_<Maximum>);
  m.impl("_foreach_maximum.List", &list_form<Maximum>);
  m.impl("_foreach_maximum_.List", &list_form_<Maximum>);
  m.impl("_foreach_maximum.ScalarList", &scalar_list_form<Maximum>);
  m.impl("_foreach_maximum_.ScalarList", &scalar_list_form_<Maximum>);
  m.impl("_foreach_minimum.Scalar", &scalar_form<Minimum>);
  m.impl("_foreach_minimum_.Scalar", &scalar_form_<Minimum>);
  m.impl("_foreach_minimum.List", &list_form<Minimum>);
  m.impl("_foreach_minimum_.List", &list_form_<Minimum>);
  m.impl("_foreach_minimum.ScalarList", &scalar_list_form<Minimum>);
  m.impl("_foreach_minimum_.ScalarList", &scalar_list_form_<Minimum>);
  m.impl("_foreach_pow.Scalar", &scalar_form<Pow>);
  m.impl("_foreach_pow_.Scalar", &scalar_form_<Pow>);
  m.impl("_foreach_pow.List", &list_form<Pow>);
  m.impl("_foreach_pow_.List", &list_form_<Pow>);
  m.impl("_foreach_pow.ScalarList", &scalar_list_form<Pow>);
  m.impl("_foreach_pow_.ScalarList", &scalar_list_form_<Pow>);
  m.impl("_foreach_pow.ScalarAndTensor", &scalar_to_powers);
}

}  // namespace torchneuron::foreach
