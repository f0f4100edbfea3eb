#include "engine/launch.h"
#include "ops/unstructured.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_cpu_dispatch.h>
#include <ATen/ops/_amp_update_scale_cpu_dispatch.h>
#include <ATen/ops/_fused_adagrad_cpu_dispatch.h>
#include <ATen/ops/_fused_adam_cpu_dispatch.h>
#include <ATen/ops/_fused_adamw_cpu_dispatch.h>
#include <ATen/ops/_fused_sgd_cpu_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <optional>
#include <utility>
#include <vector>

// One launch for an optimiser's step over all its parameters, and for what torch.amp.GradScaler does to them.
namespace torchneuron {

namespace {

using Views = const std::vector<at::Tensor>&;
using OptionalTensor = std::optional<at::Tensor>;

// What CPU's fused kernels work on in place of tensors that they would take amiss: copies of some of them, written back
// at the end.
class Lent {
 public:
  Lent(Views originals, std::vector<at::Tensor> tensors) : originals_(originals), tensors_(std::move(tensors)) {}
  ~Lent() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].is_same(originals_[i])) {
        originals_[i].copy_(tensors_[i]);
      }
    }
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  operator at::TensorList() const { return tensors_; }

 private:
  Views originals_;
  std::vector<at::Tensor> tensors_;
};

// The kernels walk through a parameter, its gradient and its state as flat memory: gradients of the parameters'
// strides. They are written back since unscaling changes them.
std::vector<at::Tensor> in_strides_of(Views parameters, Views gradients) {
  std::vector<at::Tensor> tensors = gradients;
  for (size_t i = 0; i < tensors.size() && i < parameters.size(); ++i) {
    if (tensors[i].strides() != parameters[i].strides() && tensors[i].numel() > 1) {
      tensors[i] = at::empty_like(parameters[i], gradients[i].options()).copy_(gradients[i]);
    }
  }
  return tensors;
}

Lent lend_gradients(Views parameters, Views gradients) { return {gradients, in_strides_of(parameters, gradients)}; }

// PyTorch 2.13's kernel of SGD updates few of the parameters of half precision and reads their momenta as if they were
// of float (pytorch/pytorch#191763): it computes with copies in float, as CUDA's does.
Lent lend_in_float(Views originals, std::vector<at::Tensor> tensors) {
  for (at::Tensor& tensor : tensors) {
    if (at::isReducedFloatingType(tensor.scalar_type())) {
      tensor = tensor.to(at::kFloat);
    }
  }
  return {originals, std::move(tensors)};
}

void check_device(const char* name, const at::Tensor& tensor, c10::Device device) {
  TORCH_CHECK(
      tensor.device() == device, "Expected all tensors to be on the same device, but got ", name, " on ",
      tensor.device(), ", different from others on ", device);
}

struct NamedList {
  const char* name;
  at::TensorList tensors;
};

// A launch would update copies of tensors on the host, such as a state that was left there, and nobody would notice.
void check_lists(const NamedList& parameters, std::initializer_list<NamedList> state) {
  if (parameters.tensors.empty()) {
    return;
  }
  const c10::Device device = parameters.tensors[0].device();
  TORCH_CHECK(
      device.type() == kNeuron, "Expected all tensors to be on the same device, but got ", parameters.name, " on ",
      device, " and others on neuron");
  for (const at::Tensor& tensor : parameters.tensors) {
    check_device(parameters.name, tensor, device);
  }
  for (const auto& [name, tensors] : state) {
    TORCH_CHECK(
        tensors.size() == parameters.tensors.size(), "Expected as many ", name, " as ", parameters.name, ", but got ",
        tensors.size(), " and ", parameters.tensors.size());
    for (const at::Tensor& tensor : tensors) {
      check_device(name, tensor, device);
    }
  }
}

void check_scaling(at::TensorList parameters, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  for (const auto& [name, tensor] : {std::pair("grad_scale", grad_scale), std::pair("found_inf", found_inf)}) {
    if (!parameters.empty() && tensor.has_value() && tensor->defined()) {
      check_device(name, *tensor, parameters[0].device());
    }
  }
}

// Rate: double, or const at::Tensor& for a learning rate in a tensor.
template <typename Rate>
void fused_adam_(
    at::TensorList self, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs, at::TensorList steps, Rate lr, double beta1, double beta2, double weight_decay,
    double eps, bool amsgrad, bool maximize, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  static OpRecord& op = op_record("aten::_fused_adam_");
  check_lists(
      {"params", self},
      {{"grads", grads}, {"exp_avgs", exp_avgs}, {"exp_avg_sqs", exp_avg_sqs}, {"state_steps", steps}});
  check_lists({"params", amsgrad ? self : at::TensorList()}, {{"max_exp_avg_sqs", max_exp_avg_sqs}});
  check_scaling(self, grad_scale, found_inf);
  launch(
      op,
      [=](Views self, Views grads, Views exp_avgs, Views exp_avg_sqs, Views max_exp_avg_sqs, Views steps,
          const std::decay_t<Rate>& lr, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
        at::cpu::_fused_adam_(
            self, lend_gradients(self, grads), exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, beta1, beta2,
            weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
      },
      self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, grad_scale, found_inf);
}

template <typename Rate>
void fused_adamw_(
    at::TensorList self, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs, at::TensorList steps, Rate lr, double beta1, double beta2, double weight_decay,
    double eps, bool amsgrad, bool maximize, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  static OpRecord& op = op_record("aten::_fused_adamw_");
  check_lists(
      {"params", self},
      {{"grads", grads}, {"exp_avgs", exp_avgs}, {"exp_avg_sqs", exp_avg_sqs}, {"state_steps", steps}});
  check_lists({"params", amsgrad ? self : at::TensorList()}, {{"max_exp_avg_sqs", max_exp_avg_sqs}});
  check_scaling(self, grad_scale, found_inf);
  launch(
      op,
      [=](Views self, Views grads, Views exp_avgs, Views exp_avg_sqs, Views max_exp_avg_sqs, Views steps,
          const std::decay_t<Rate>& lr, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
        at::cpu::_fused_adamw_(
            self, lend_gradients(self, grads), exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, beta1, beta2,
            weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
      },
      self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, grad_scale, found_inf);
}

template <typename Rate>
void fused_sgd_(
    at::TensorList self, at::TensorList grads, at::TensorList momentum_buffers, double weight_decay, double momentum,
    Rate lr, double dampening, bool nesterov, bool maximize, bool is_first_step, const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  static OpRecord& op = op_record("aten::_fused_sgd_");
  check_lists({"params", self}, {{"grads", grads}});
  check_lists({"params", momentum != 0 ? self : at::TensorList()}, {{"momentum_buffer_list", momentum_buffers}});
  check_scaling(self, grad_scale, found_inf);
  launch(
      op,
      [=](Views self, Views grads, Views momentum_buffers, const std::decay_t<Rate>& lr,
          const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
        at::cpu::_fused_sgd_(
            lend_in_float(self, self), lend_in_float(grads, in_strides_of(self, grads)),
            lend_in_float(momentum_buffers, momentum_buffers), weight_decay, momentum, lr, dampening, nesterov,
            maximize, is_first_step, grad_scale, found_inf);
      },
      self, grads, momentum_buffers, lr, grad_scale, found_inf);
}

template <typename Rate>
void fused_adagrad_(
    at::TensorList self, at::TensorList grads, at::TensorList state_sums, at::TensorList steps, Rate lr,
    double lr_decay, double weight_decay, double eps, bool maximize, const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  static OpRecord& op = op_record("aten::_fused_adagrad_");
  check_lists({"params", self}, {{"grads", grads}, {"state_sums", state_sums}, {"state_steps", steps}});
  check_scaling(self, grad_scale, found_inf);
  launch(
      op,
      [=](Views self, Views grads, Views state_sums, Views steps, const std::decay_t<Rate>& lr,
          const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
        at::cpu::_fused_adagrad_(
            self, lend_gradients(self, grads), state_sums, steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale,
            found_inf);
      },
      self, grads, state_sums, steps, lr, grad_scale, found_inf);
}

void unscale_and_check(at::TensorList grads, at::Tensor& found_inf, const at::Tensor& inv_scale) {
  static OpRecord& op = op_record("aten::_amp_foreach_non_finite_check_and_unscale_");
  if (grads.empty()) {
    return;
  }
  TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(inv_scale.scalar_type() == at::kFloat, "inv_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  check_lists({"scaled_grads", grads}, {});
  check_device("found_inf", found_inf, grads[0].device());
  check_device("inv_scale", inv_scale, grads[0].device());
  launch(
      op,
      [](Views grads, at::Tensor found_inf, const at::Tensor& inv_scale) {
        at::cpu::_amp_foreach_non_finite_check_and_unscale_(grads, found_inf, inv_scale);
      },
      grads, found_inf, inv_scale);
}

at::Tensor& update_scale(
    at::Tensor& scale, at::Tensor& growth_tracker, const at::Tensor& found_inf, double growth_factor,
    double backoff_factor, int64_t growth_interval) {
  static OpRecord& op = op_record("aten::_amp_update_scale_");
  TORCH_CHECK(growth_tracker.numel() == 1, "growth_tracker must be a 1-element tensor.");
  TORCH_CHECK(scale.numel() == 1, "current_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(growth_tracker.scalar_type() == at::kInt, "growth_tracker must be an int tensor.");
  TORCH_CHECK(scale.scalar_type() == at::kFloat, "current_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  check_lists({"current_scale", scale}, {});
  check_device("growth_tracker", growth_tracker, scale.device());
  check_device("found_inf", found_inf, scale.device());
  launch(
      op,
      [=](at::Tensor scale, at::Tensor growth_tracker, const at::Tensor& found_inf) {
        at::cpu::_amp_update_scale_(scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval);
      },
      scale, growth_tracker, found_inf);
  return scale;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_adam_", &fused_adam_<double>);
  m.impl("_fused_adam_.tensor_lr", &fused_adam_<const at::Tensor&>);
  m.impl("_fused_adamw_", &fused_adamw_<double>);
  m.impl("_fused_adamw_.tensor_lr", &fused_adamw_<const at::Tensor&>);
  m.impl("_fused_sgd_", &fused_sgd_<double>);
  m.impl("_fused_sgd_.tensor_lr", &fused_sgd_<const at::Tensor&>);
  m.impl("_fused_adagrad_", &fused_adagrad_<double>);
  m.impl("_fused_adagrad_.tensor_lr", &fused_adagrad_<const at::Tensor&>);
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &unscale_and_check);
  m.impl("_amp_update_scale_", &update_scale);
}

}  // namespace torchneuron
