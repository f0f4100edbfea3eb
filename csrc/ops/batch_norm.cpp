#include "ops/unstructured.h"

#include <ATen/native/cpu/mixed_data_type.h>
#include <ATen/ops/_native_batch_norm_legit_native.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/batch_norm_update_stats_native.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_batch_norm_backward_native.h>
#include <ATen/ops/native_batch_norm_native.h>
#include <torch/library.h>

namespace torchneuron {

namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// One value for each channel, in the input's dtype or, for 16-bit inputs, all in fp32.
template <typename... Parameters>
bool is_regular(const at::Tensor& input, const Parameters&... parameters) {
  const at::ScalarType dtype = input.scalar_type();
  if (input.dim() < 2 || !at::isFloatingType(dtype) || input.numel() == 0) {
    return false;
  }
  const int64_t channels = input.size(1);
  const bool shapes = ((!parameters.defined() || (parameters.dim() == 1 && parameters.size(0) == channels)) && ...);
  const auto all_are = [&](at::ScalarType type) {
    return ((!parameters.defined() || parameters.scalar_type() == type) && ...);
  };
  return shapes && (all_are(dtype) || (at::isReducedFloatingType(dtype) && all_are(at::kFloat)));
}

template <typename... Parameters>
at::ScalarType statistics_dtype(const at::Tensor& input, const Parameters&... parameters) {
  return at::native::param_scalar_type(input, at::native::is_mixed_type(input, parameters...));
}

Three batch_norm(
    OpRecord& op, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
    const at::Tensor& running_mean, const at::Tensor& running_var, bool training, double momentum, double eps) {
  check_one_device("native_batch_norm", input, weight, bias, running_mean, running_var);
  TORCH_CHECK(
      training || (running_mean.defined() && running_var.defined()),
      "running_mean and running_var must be defined in evaluation mode");
  if (!is_regular(input, weight, bias, running_mean, running_var) || running_mean.defined() != running_var.defined()) {
    ask_cpu(
        [&](const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& running_mean,
            const at::Tensor& running_var) {
          return at::native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
        },
        input, weight, bias, running_mean, running_var);
  }
  const at::ScalarType dtype = statistics_dtype(input, weight, bias, running_mean, running_var);
  const int64_t statistics = training ? input.size(1) : 0;
  at::Tensor out = new_tensor(input, input.sizes(), input.scalar_type(), input.suggest_memory_format());
  at::Tensor mean = new_tensor(input, {statistics}, dtype);
  at::Tensor invstd = new_tensor(input, {statistics}, dtype);
  launch_into(
      op, {out, mean, invstd}, &at::native::batch_norm_cpu, input, weight, bias, running_mean, running_var, training,
      momentum, eps);
  return {out, mean, invstd};
}

Three native_batch_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var, bool training,
    double momentum, double eps) {
  static OpRecord& op = op_record("aten::native_batch_norm");
  return batch_norm(
      op, input, value_or_undefined(weight), value_or_undefined(bias), value_or_undefined(running_mean),
      value_or_undefined(running_var), training, momentum, eps);
}

Three native_batch_norm_legit(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    at::Tensor& running_mean, at::Tensor& running_var, bool training, double momentum, double eps) {
  static OpRecord& op = op_record("aten::_native_batch_norm_legit");
  return batch_norm(
      op, input, value_or_undefined(weight), value_or_undefined(bias), running_mean, running_var, training, momentum,
      eps);
}

Three native_batch_norm_legit_no_stats(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    bool training, double momentum, double eps) {
  static OpRecord& op = op_record("aten::_native_batch_norm_legit.no_stats");
  return batch_norm(op, input, value_or_undefined(weight), value_or_undefined(bias), {}, {}, training, momentum, eps);
}

Four batch_norm_with_update(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    at::Tensor& running_mean, at::Tensor& running_var, double momentum, double eps) {
  static OpRecord& op = op_record("aten::_batch_norm_with_update");
  auto [out, mean, invstd] = batch_norm(
      op, input, value_or_undefined(weight), value_or_undefined(bias), running_mean, running_var, /*training=*/true,
      momentum, eps);
  return {out, mean, invstd, new_tensor(input, {0}, at::kByte)};
}

Four batch_norm_no_update(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var, double momentum,
    double eps) {
  static OpRecord& op = op_record("aten::_batch_norm_no_update");
  auto [out, mean, invstd] = batch_norm(
      op, input, value_or_undefined(weight), value_or_undefined(bias), value_or_undefined(running_mean),
      value_or_undefined(running_var), /*training=*/false, momentum, eps);
  return {out, mean, invstd, new_tensor(input, {0}, at::kByte)};
}

std::tuple<at::Tensor, at::Tensor> batch_norm_update_stats(
    const at::Tensor& input, const std::optional<at::Tensor>& running_mean_opt,
    const std::optional<at::Tensor>& running_var_opt, double momentum) {
  const at::Tensor& running_mean = value_or_undefined(running_mean_opt);
  const at::Tensor& running_var = value_or_undefined(running_var_opt);
  check_one_device("batch_norm_update_stats", input, running_mean, running_var);
  if (!is_regular(input, running_mean, running_var)) {
    ask_cpu(
        [&](const at::Tensor& input, const at::Tensor& running_mean, const at::Tensor& running_var) {
          return at::batch_norm_update_stats(input, running_mean, running_var, momentum);
        },
        input, running_mean, running_var);
  }
  const at::ScalarType dtype = statistics_dtype(input, running_mean, running_var);
  at::Tensor mean = new_tensor(input, {input.size(1)}, dtype);
  at::Tensor var = new_tensor(input, {input.size(1)}, dtype);
  static OpRecord& op = op_record("aten::batch_norm_update_stats");
  launch_into(
      op, std::array{mean, var}, &at::native::batch_norm_update_stats_cpu, input, running_mean, running_var, momentum);
  return {mean, var};
}

Three batch_norm_gradients(
    OpRecord& op, const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& weight,
    const at::Tensor& running_mean, const at::Tensor& running_var, const at::Tensor& mean, const at::Tensor& invstd,
    bool training, double eps, const std::array<bool, 3>& wanted) {
  check_one_device("native_batch_norm_backward", grad_out, input, weight, running_mean, running_var, mean, invstd);
  if (!is_regular(input, weight, running_mean, running_var) || grad_out.sizes() != input.sizes() ||
      grad_out.scalar_type() != input.scalar_type()) {
    ask_cpu(
        [&](const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& weight,
            const at::Tensor& running_mean, const at::Tensor& running_var, const at::Tensor& mean,
            const at::Tensor& invstd) {
          return at::native_batch_norm_backward(
              grad_out, input, weight, running_mean, running_var, mean, invstd, training, eps, wanted);
        },
        grad_out, input, weight, running_mean, running_var, mean, invstd);
  }
  const at::ScalarType dtype = statistics_dtype(input, weight, running_mean, running_var, mean, invstd);
  at::Tensor grad_input, grad_weight, grad_bias;
  if (wanted[0]) {
    grad_input = new_tensor(input, input.sizes(), input.scalar_type(), input.suggest_memory_format());
  }
  if (wanted[1]) {
    grad_weight = new_tensor(input, {input.size(1)}, dtype);
  }
  if (wanted[2]) {
    grad_bias = new_tensor(input, {input.size(1)}, dtype);
  }
  launch_into(
      op, {grad_input, grad_weight, grad_bias}, &at::native::batch_norm_backward_cpu, grad_out, input, weight,
      running_mean, running_var, mean, invstd, training, eps, wanted);
  return {grad_input, grad_weight, grad_bias};
}

Three native_batch_norm_backward(
    const at::Tensor& grad_out, const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
    const std::optional<at::Tensor>& mean, const std::optional<at::Tensor>& invstd, bool training, double eps,
    std::array<bool, 3> wanted) {
  static OpRecord& op = op_record("aten::native_batch_norm_backward");
  return batch_norm_gradients(
      op, grad_out, input, value_or_undefined(weight), value_or_undefined(running_mean),
      value_or_undefined(running_var), value_or_undefined(mean), value_or_undefined(invstd), training, eps, wanted);
}

Three batch_norm_backward(
    const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& weight,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
    const std::optional<at::Tensor>& mean, const std::optional<at::Tensor>& var, bool update, double eps,
    std::array<bool, 3> wanted, const at::Tensor& /*reserve*/) {
  static OpRecord& op = op_record("aten::batch_norm_backward");
  return batch_norm_gradients(
      op, grad_out, input, weight, value_or_undefined(running_mean), value_or_undefined(running_var),
      value_or_undefined(mean), value_or_undefined(var), update, eps, wanted);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", &native_batch_norm);
  m.impl("_native_batch_norm_legit", &native_batch_norm_legit);
  m.impl("_native_batch_norm_legit.no_stats", &native_batch_norm_legit_no_stats);
  m.impl("_batch_norm_with_update", &batch_norm_with_update);
  m.impl("_batch_norm_no_update", &batch_norm_no_update);
  m.impl("batch_norm_update_stats", &batch_norm_update_stats);
  m.impl("native_batch_norm_backward", &native_batch_norm_backward);
  m.impl("batch_norm_backward", &batch_norm_backward);
}

}  // namespace

}  // namespace torchneuron
