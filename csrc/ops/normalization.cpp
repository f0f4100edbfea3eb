#include "ops/unstructured.h"

#include <ATen/native/cpu/mixed_data_type.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <ATen/ops/native_group_norm_backward_native.h>
#include <ATen/ops/native_group_norm_native.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/native_layer_norm_backward_native.h>
#include <ATen/ops/native_layer_norm_native.h>
#include <torch/library.h>

namespace torchneuron {

namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Sizes = c10::SmallVector<int64_t, 6>;

// CPU normalises floating tensors; weight and bias have the input's dtype or, for 16-bit inputs, both fp32.
template <typename... Parameters>
bool dtypes_are_regular(const at::Tensor& input, const Parameters&... parameters) {
  const at::ScalarType dtype = input.scalar_type();
  if (!at::isFloatingType(dtype)) {
    return false;
  }
  const auto all_are = [&](at::ScalarType type) {
    return ((!parameters.defined() || parameters.scalar_type() == type) && ...);
  };
  return all_are(dtype) || (at::isReducedFloatingType(dtype) && all_are(at::kFloat));
}

template <typename... Parameters>
at::ScalarType statistics_dtype(const at::Tensor& input, const Parameters&... parameters) {
  return at::native::param_scalar_type(input, at::native::is_mixed_type(input, parameters...));
}

Three native_layer_norm(
    const at::Tensor& input, at::IntArrayRef normalized_shape, const std::optional<at::Tensor>& weight_opt,
    const std::optional<at::Tensor>& bias_opt, double eps) {
  const at::Tensor& weight = value_or_undefined(weight_opt);
  const at::Tensor& bias = value_or_undefined(bias_opt);
  check_one_device("native_layer_norm", input, weight, bias);
  at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  if (!dtypes_are_regular(input, weight, bias)) {
    ask_cpu(
        [&](const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
          return at::native_layer_norm(input, normalized_shape, weight, bias, eps);
        },
        input, weight, bias);
  }
  Sizes statistics(input.sizes().begin(), input.sizes().end());
  std::fill(statistics.end() - normalized_shape.size(), statistics.end(), 1);
  const at::ScalarType dtype = statistics_dtype(input, weight, bias);
  at::Tensor out = new_tensor(input, input.sizes(), input.scalar_type());
  at::Tensor mean = new_tensor(input, statistics, dtype);
  at::Tensor rstd = new_tensor(input, statistics, dtype);
  static OpRecord& op = op_record("aten::native_layer_norm");
  launch(
      op,
      [](const at::Tensor& input, at::IntArrayRef normalized_shape, const at::Tensor& weight, const at::Tensor& bias,
         double eps, const at::Tensor& out, const at::Tensor& mean, const at::Tensor& rstd) {
        // Before the kernel would, which then might take the output's place for the copy.
        const at::Tensor x = input.contiguous();
        run_into({out, mean, rstd}, [&] { return at::native::layer_norm_cpu(x, normalized_shape, weight, bias, eps); });
      },
      input, normalized_shape, weight, bias, eps, out, mean, rstd);
  return {out, mean, rstd};
}

Three native_layer_norm_backward(
    const at::Tensor& grad_out, const at::Tensor& input, at::IntArrayRef normalized_shape, const at::Tensor& mean,
    const at::Tensor& rstd, const std::optional<at::Tensor>& weight_opt, const std::optional<at::Tensor>& bias_opt,
    std::array<bool, 3> wanted) {
  const at::Tensor& weight = value_or_undefined(weight_opt);
  const at::Tensor& bias = value_or_undefined(bias_opt);
  check_one_device("native_layer_norm_backward", grad_out, input, mean, rstd, weight, bias);
  at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  if (!dtypes_are_regular(input, weight, bias) || grad_out.scalar_type() != input.scalar_type() ||
      grad_out.sizes() != input.sizes() || (wanted[1] && !weight.defined()) || (wanted[2] && !bias.defined())) {
    ask_cpu(
        [&](const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
            const at::Tensor& weight, const at::Tensor& bias) {
          return at::native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, wanted);
        },
        grad_out, input, mean, rstd, weight, bias);
  }
  at::Tensor grad_input, grad_weight, grad_bias;
  if (wanted[0]) {
    grad_input = new_tensor(input, input.sizes(), input.scalar_type());
  }
  if (wanted[1]) {
    grad_weight = new_tensor(weight, weight.sizes(), weight.scalar_type());
  }
  if (wanted[2]) {
    grad_bias = new_tensor(bias, bias.sizes(), bias.scalar_type());
  }
  static OpRecord& op = op_record("aten::native_layer_norm_backward");
  launch(
      op,
      [](const at::Tensor& grad_out, const at::Tensor& input, at::IntArrayRef normalized_shape, const at::Tensor& mean,
         const at::Tensor& rstd, const at::Tensor& weight, const at::Tensor& bias, const std::array<bool, 3>& wanted,
         const at::Tensor& grad_input, const at::Tensor& grad_weight, const at::Tensor& grad_bias) {
        const at::Tensor dy = grad_out.contiguous();
        const at::Tensor x = input.contiguous();
        run_into({grad_input, grad_weight, grad_bias}, [&] {
          return at::native::layer_norm_backward_cpu(dy, x, normalized_shape, mean, rstd, weight, bias, wanted);
        });
      },
      grad_out, input, normalized_shape, mean, rstd, weight, bias, wanted, grad_input, grad_weight, grad_bias);
  return {grad_input, grad_weight, grad_bias};
}

bool group_shapes_are_regular(
    const at::Tensor& input, const at::Tensor& weight, int64_t N, int64_t C, int64_t HxW, int64_t groups) {
  return groups > 0 && C % groups == 0 && input.numel() == N * C * HxW && input.dim() >= 2 &&
         (!weight.defined() || (weight.dim() == 1 && weight.size(0) == C));
}

// PyTorch's group_norm makes its input dense for CPU but not for this device, so any strides may come.
Three native_group_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight_opt, const std::optional<at::Tensor>& bias_opt,
    int64_t N, int64_t C, int64_t HxW, int64_t groups, double eps) {
  const at::Tensor& weight = value_or_undefined(weight_opt);
  const at::Tensor& bias = value_or_undefined(bias_opt);
  check_one_device("native_group_norm", input, weight, bias);
  if (!dtypes_are_regular(input, weight, bias) || !group_shapes_are_regular(input, weight, N, C, HxW, groups) ||
      !group_shapes_are_regular(input, bias, N, C, HxW, groups)) {
    ask_cpu(
        [&](const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
          const at::Tensor x = input.contiguous(input.suggest_memory_format());
          return at::native_group_norm(x, weight, bias, N, C, HxW, groups, eps);
        },
        input, weight, bias);
  }
  const at::ScalarType dtype = statistics_dtype(input, weight, bias);
  at::Tensor out = new_tensor(input, input.sizes(), input.scalar_type(), input.suggest_memory_format());
  at::Tensor mean = new_tensor(input, {N, groups}, dtype);
  at::Tensor rstd = new_tensor(input, {N, groups}, dtype);
  static OpRecord& op = op_record("aten::native_group_norm");
  launch(
      op,
      [](const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, int64_t N, int64_t C, int64_t HxW,
         int64_t groups, double eps, const at::Tensor& out, const at::Tensor& mean, const at::Tensor& rstd) {
        const at::Tensor x = input.contiguous(input.suggest_memory_format());
        run_into(
            {out, mean, rstd}, [&] { return at::native::native_group_norm(x, weight, bias, N, C, HxW, groups, eps); });
      },
      input, weight, bias, N, C, HxW, groups, eps, out, mean, rstd);
  return {out, mean, rstd};
}

Three native_group_norm_backward(
    const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
    const std::optional<at::Tensor>& weight_opt, int64_t N, int64_t C, int64_t HxW, int64_t groups,
    std::array<bool, 3> wanted) {
  const at::Tensor& weight = value_or_undefined(weight_opt);
  check_one_device("native_group_norm_backward", grad_out, input, mean, rstd, weight);
  if (!dtypes_are_regular(input, weight) || !group_shapes_are_regular(input, weight, N, C, HxW, groups) ||
      grad_out.scalar_type() != input.scalar_type() || grad_out.numel() != input.numel() ||
      ((wanted[1] || wanted[2]) && !weight.defined()) || mean.numel() != N * groups || rstd.numel() != N * groups) {
    ask_cpu(
        [&](const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
            const at::Tensor& weight) {
          return at::native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, groups, wanted);
        },
        grad_out, input, mean, rstd, weight);
  }
  at::Tensor grad_input, grad_weight, grad_bias;
  if (wanted[0]) {
    grad_input = new_tensor(input, input.sizes(), input.scalar_type(), input.suggest_memory_format());
  }
  if (wanted[1]) {
    grad_weight = new_tensor(input, {C}, weight.scalar_type());
  }
  if (wanted[2]) {
    grad_bias = new_tensor(input, {C}, weight.scalar_type());
  }
  static OpRecord& op = op_record("aten::native_group_norm_backward");
  launch(
      op,
      [](const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
         const at::Tensor& weight, int64_t N, int64_t C, int64_t HxW, int64_t groups, const std::array<bool, 3>& wanted,
         const at::Tensor& grad_input, const at::Tensor& grad_weight, const at::Tensor& grad_bias) {
        const at::MemoryFormat format = input.suggest_memory_format();
        const at::Tensor dy = grad_out.contiguous(format);
        const at::Tensor x = input.contiguous(format);
        run_into({grad_input, grad_weight, grad_bias}, [&] {
          return at::native::native_group_norm_backward(dy, x, mean, rstd, weight, N, C, HxW, groups, wanted);
        });
      },
      grad_out, input, mean, rstd, weight, N, C, HxW, groups, wanted, grad_input, grad_weight, grad_bias);
  return {grad_input, grad_weight, grad_bias};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_layer_norm", &native_layer_norm);
  m.impl("native_layer_norm_backward", &native_layer_norm_backward);
  m.impl("native_group_norm", &native_group_norm);
  m.impl("native_group_norm_backward", &native_group_norm_backward);
}

}  // namespace

}  // namespace torchneuron
