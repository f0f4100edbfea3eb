#include "ops/unstructured.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_prelu_kernel_backward_native.h>
#include <ATen/ops/_prelu_kernel_native.h>
#include <ATen/ops/glu_backward_native.h>
#include <ATen/ops/hardswish_backward_native.h>
#include <ATen/ops/hardswish_native.h>
#include <ATen/ops/hardtanh_backward_native.h>
#include <ATen/ops/hardtanh_native.h>
#include <ATen/ops/log_sigmoid_backward_native.h>
#include <ATen/ops/log_sigmoid_forward_native.h>
#include <ATen/ops/logit_native.h>
#include <ATen/ops/mish_backward_native.h>
#include <torch/library.h>

namespace torchneuron {

namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;

at::Tensor new_contiguous(const at::Tensor& input) { return new_tensor(input, input.sizes(), input.scalar_type()); }

// kernel(input, parameters...), whose result has the geometry of `input` if it is floating.
template <typename Kernel, typename... Parameters>
at::Tensor activate(OpRecord& op, Kernel kernel, const at::Tensor& input, const Parameters&... parameters) {
  at::Tensor out =
      at::isFloatingType(input.scalar_type())
          ? new_like(input)
          : new_as_on_cpu(input, [&](const at::Tensor& input) { return kernel(input, parameters...); }, input);
  launch_into(op, out, kernel, input, parameters...);
  return out;
}

template <typename Kernel, typename... Parameters>
at::Tensor activate_backward(
    OpRecord& op, Kernel kernel, const at::Tensor& grad, const at::Tensor& input, const Parameters&... parameters) {
  check_one_device(op.name.c_str(), grad, input);
  const bool regular = at::isFloatingType(input.scalar_type()) && grad.scalar_type() == input.scalar_type() &&
                       grad.sizes() == input.sizes();
  at::Tensor grad_input =
      regular ? new_like(grad)
              : new_as_on_cpu(
                    input,
                    [&](const at::Tensor& grad, const at::Tensor& input) { return kernel(grad, input, parameters...); },
                    grad, input);
  launch_into(op, grad_input, kernel, grad, input, parameters...);
  return grad_input;
}

at::Tensor hardtanh(const at::Tensor& input, const at::Scalar& low, const at::Scalar& high) {
  static OpRecord& op = op_record("aten::hardtanh");
  return activate(op, &at::native::hardtanh, input, low, high);
}

at::Tensor hardtanh_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Scalar& low, const at::Scalar& high) {
  static OpRecord& op = op_record("aten::hardtanh_backward");
  return activate_backward(op, &at::native::hardtanh_backward, grad, input, low, high);
}

at::Tensor hardswish(const at::Tensor& input) {
  static OpRecord& op = op_record("aten::hardswish");
  return activate(op, &at::native::hardswish, input);
}

at::Tensor hardswish_backward(const at::Tensor& grad, const at::Tensor& input) {
  static OpRecord& op = op_record("aten::hardswish_backward");
  return activate_backward(op, &at::native::hardswish_backward, grad, input);
}

at::Tensor mish_backward(const at::Tensor& grad, const at::Tensor& input) {
  static OpRecord& op = op_record("aten::mish_backward");
  return activate_backward(op, &at::native::mish_backward, grad, input);
}

at::Tensor& hardtanh_(at::Tensor& self, const at::Scalar& low, const at::Scalar& high) {
  if (!at::isFloatingType(self.scalar_type())) {
    ask_cpu([&](at::Tensor self) { return at::native::hardtanh_(self, low, high); }, self);
  }
  static OpRecord& op = op_record("aten::hardtanh_");
  launch(
      op,
      [](at::Tensor self, const at::Scalar& low, const at::Scalar& high) { at::native::hardtanh_(self, low, high); },
      self, low, high);
  return self;
}

at::Tensor& hardswish_(at::Tensor& self) {
  if (!at::isFloatingType(self.scalar_type())) {
    ask_cpu([](at::Tensor self) { return at::native::hardswish_(self); }, self);
  }
  static OpRecord& op = op_record("aten::hardswish_");
  launch(op, [](at::Tensor self) { at::native::hardswish_(self); }, self);
  return self;
}

at::Tensor logit(const at::Tensor& input, std::optional<double> eps) {
  static OpRecord& op = op_record("aten::logit");
  return activate(op, &at::native::logit, input, eps);
}

Two log_sigmoid_forward(const at::Tensor& input) {
  if (!at::isFloatingType(input.scalar_type())) {
    ask_cpu([](const at::Tensor& input) { return at::native::log_sigmoid_forward_cpu(input); }, input);
  }
  at::Tensor out = new_contiguous(input);
  at::Tensor buffer = new_contiguous(input);
  static OpRecord& op = op_record("aten::log_sigmoid_forward");
  launch_into(op, std::array{out, buffer}, &at::native::log_sigmoid_forward_cpu, input);
  return {out, buffer};
}

at::Tensor log_sigmoid_backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& buffer) {
  check_one_device("log_sigmoid_backward", grad, input, buffer);
  at::Tensor grad_input = new_like(grad);
  static OpRecord& op = op_record("aten::log_sigmoid_backward");
  launch_into(op, grad_input, &at::native::log_sigmoid_backward_cpu, grad, input, buffer);
  return grad_input;
}

at::Tensor prelu(const at::Tensor& input, const at::Tensor& weight) {
  check_one_device("_prelu_kernel", input, weight);
  const bool regular = at::isFloatingType(input.scalar_type()) && weight.scalar_type() == input.scalar_type() &&
                       at::is_expandable_to(weight.sizes(), input.sizes());
  at::Tensor out = regular ? new_like(input)
                           : new_as_on_cpu(
                                 input,
                                 [](const at::Tensor& input, const at::Tensor& weight) {
                                   return at::native::_prelu_kernel(input, weight);
                                 },
                                 input, weight);
  static OpRecord& op = op_record("aten::_prelu_kernel");
  launch_into(op, out, &at::native::_prelu_kernel, input, weight);
  return out;
}

// Both gradients have the sizes of the input; PyTorch sums that of the weight.
Two prelu_backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight) {
  check_one_device("_prelu_kernel_backward", grad, input, weight);
  at::Tensor grad_input = new_like(input);
  at::Tensor grad_weight = new_like(input);
  static OpRecord& op = op_record("aten::_prelu_kernel_backward");
  launch_into(op, std::array{grad_input, grad_weight}, &at::native::_prelu_kernel_backward, grad, input, weight);
  return {grad_input, grad_weight};
}

at::Tensor glu_backward(const at::Tensor& grad, const at::Tensor& input, int64_t dim) {
  check_one_device("glu_backward", grad, input);
  if (input.dim() == 0 || !at::isFloatingType(input.scalar_type()) || grad.scalar_type() != input.scalar_type() ||
      grad.numel() * 2 != input.numel()) {
    ask_cpu(
        [&](const at::Tensor& grad, const at::Tensor& input) { return at::native::glu_backward_cpu(grad, input, dim); },
        grad, input);
  }
  at::maybe_wrap_dim(dim, input.dim());
  at::Tensor grad_input = new_contiguous(input);
  static OpRecord& op = op_record("aten::glu_backward");
  launch_into(op, grad_input, &at::native::glu_backward_cpu, grad, input, dim);
  return grad_input;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("hardtanh", &hardtanh);
  m.impl("hardtanh_", &hardtanh_);
  m.impl("hardswish_", &hardswish_);
  m.impl("hardtanh_backward", &hardtanh_backward);
  m.impl("hardswish", &hardswish);
  m.impl("hardswish_backward", &hardswish_backward);
  m.impl("mish_backward", &mish_backward);
  m.impl("logit", &logit);
  m.impl("log_sigmoid_forward", &log_sigmoid_forward);
  m.impl("log_sigmoid_backward", &log_sigmoid_backward);
  m.impl("_prelu_kernel", &prelu);
  m.impl("_prelu_kernel_backward", &prelu_backward);
  m.impl("glu_backward", &glu_backward);
}

}  // namespace

}  // namespace torchneuron
