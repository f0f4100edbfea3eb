#include "engine/tensor_engine.h"
#include "ops/plain.h"
#include "ops/unstructured.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

namespace torchneuron {

namespace {

// aten::linear is a composite of views, a matrix product and a sum, each with a node of the autograd graph. Here it is
// one launch forward and one backward, where nobody can tell; all others get PyTorch's composite.

// PyTorch adds the bias within the product, or else after it, which in half precision rounds twice.
bool adds_bias_within_product(const at::Tensor& input) {
  return input.dim() == 2 || (input.dim() == 3 && input.is_contiguous());
}

bool runs_as_one_launch(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  return input.dim() >= 2 && weight.dim() == 2 && at::isFloatingType(input.scalar_type()) && is_plain(input) &&
         is_plain(weight) && input.scalar_type() == weight.scalar_type() && input.device() == weight.device() &&
         input.size(-1) == weight.size(1) && input.numel() > 0 && weight.numel() > 0 &&
         (!bias.defined() || !at::isReducedFloatingType(input.scalar_type()) || adds_bias_within_product(input)) &&
         (!bias.defined() || (bias.dim() == 1 && is_plain(bias) && bias.scalar_type() == input.scalar_type() &&
                              bias.device() == input.device() && bias.size(0) == weight.size(0)));
}

at::Tensor rows(const at::Tensor& tensor) { return tensor.dim() == 2 ? tensor : tensor.reshape({-1, tensor.size(-1)}); }

at::Tensor launch_forward(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  c10::SmallVector<int64_t, 6> sizes(input.sizes().begin(), input.sizes().end());
  sizes.back() = weight.size(0);
  at::Tensor out = new_tensor(input, sizes, input.scalar_type());
  static OpRecord& op = op_record("aten::linear");
  launch(
      op,
      [](const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& out) {
        at::Tensor out_rows = out.view({-1, out.size(-1)});
        if (bias.defined()) {
          tensor_engine::addmm_outf(bias, rows(input), weight.t(), 1, 1, out_rows);
        } else {
          tensor_engine::mm_outf(rows(input), weight.t(), out_rows);
        }
      },
      input, weight, bias, out);
  return out;
}

// What the gradients' geometry follows from. A gradient is laid out as PyTorch's formula for a matrix product would: by
// columns where its operand is, else by rows.
struct Geometry {
  c10::SmallVector<int64_t, 6> input_sizes;
  bool input_by_columns;
  bool weight_by_rows;

  Geometry(const at::Tensor& input, const at::Tensor& weight)
      : input_sizes(input.sizes().begin(), input.sizes().end()),
        input_by_columns(input.dim() == 2 && input.stride(0) == 1 && input.stride(1) == input.size(0)),
        weight_by_rows(weight.stride(1) == 1 && weight.stride(0) == weight.size(1)) {}
};

std::array<at::Tensor, 3> launch_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, const Geometry& geometry,
    const std::array<bool, 3>& wanted) {
  const auto& sizes = geometry.input_sizes;
  const at::ScalarType dtype = grad.scalar_type();
  const int64_t out_features = grad.size(-1);
  std::array<at::Tensor, 3> grads;
  if (wanted[0]) {
    grads[0] =
        geometry.input_by_columns ? new_strided(grad, sizes, {1, sizes[0]}, dtype) : new_tensor(grad, sizes, dtype);
  }
  if (wanted[1]) {
    const std::array weight_sizes{out_features, sizes.back()};
    grads[1] = geometry.weight_by_rows ? new_tensor(grad, weight_sizes, dtype)
                                       : new_strided(grad, weight_sizes, {1, out_features}, dtype);
  }
  if (wanted[2]) {
    grads[2] = new_tensor(grad, {out_features}, grad.scalar_type());
  }
  static OpRecord& op = op_record("aten::linear_backward");
  launch(
      op,
      [](const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& grad_input,
         at::Tensor grad_weight, at::Tensor grad_bias) {
        const at::Tensor grad_rows = rows(grad);
        if (grad_input.defined()) {
          at::Tensor grad_input_rows = rows(grad_input);
          tensor_engine::mm_outf(grad_rows, weight, grad_input_rows);
        }
        if (grad_weight.defined()) {
          tensor_engine::mm_outf(grad_rows.t(), rows(input), grad_weight);
        }
        if (grad_bias.defined()) {
          at::cpu::sum_out(grad_bias, grad_rows, {0});
        }
      },
      grad, input, weight, grads[0], grads[1], grads[2]);
  return grads;
}

class LinearBackward final : public torch::autograd::Node {
 public:
  LinearBackward(const at::Tensor& input, const at::Tensor& weight) : geometry_(input, weight) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& output_grads) override {
    const at::Tensor& grad = output_grads[0];
    torch::autograd::variable_list grads(3);
    if (!grad.defined()) {
      return grads;
    }
    const std::array<bool, 3> wanted{
        task_should_compute_output(0), task_should_compute_output(1), task_should_compute_output(2)};
    const at::Tensor input = wanted[1] ? input_.unpack() : at::Tensor();
    const at::Tensor weight = wanted[0] ? weight_.unpack() : at::Tensor();
    if (!at::GradMode::is_enabled() && is_plain(grad) && (!input.defined() || is_plain(input)) &&
        (!weight.defined() || is_plain(weight))) {
      auto made = launch_backward(grad, input, weight, geometry_, wanted);
      std::move(made.begin(), made.end(), grads.begin());
      return grads;
    }
    const at::Tensor grad_rows = rows(grad);
    if (wanted[0]) {
      grads[0] = at::matmul(grad, weight);
    }
    if (wanted[1]) {
      grads[1] = at::mm(grad_rows.t(), rows(input));
    }
    if (wanted[2]) {
      grads[2] = at::sum(grad_rows, {0});
    }
    return grads;
  }

  void release_variables() override {
    input_.reset_data();
    weight_.reset_data();
  }

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    args.collect(input_, /*is_output=*/false);
    args.collect(weight_, /*is_output=*/false);
    for (const int64_t size : geometry_.input_sizes) {
      args.collect(size);
    }
  }

  torch::autograd::variable_list apply_with_saved(
      const torch::autograd::variable_list& output_grads, torch::dynamo::autograd::SwapSavedVariables& saved) override {
    saved.before(input_);
    saved.before(weight_);
    auto grads = apply(torch::autograd::variable_list(output_grads));
    saved.after(weight_);
    saved.after(input_);
    return grads;
  }

  torch::autograd::SavedVariable input_;
  torch::autograd::SavedVariable weight_;
  const Geometry geometry_;
};

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  if (!runs_as_one_launch(input, weight, value_or_undefined(bias))) {
    return at::native::linear(input, weight, bias);
  }
  return launch_forward(input, weight, value_or_undefined(bias));
}

at::Tensor linear_autograd(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias_opt) {
  const at::Tensor& bias = value_or_undefined(bias_opt);
  if (!runs_as_one_launch(input, weight, bias)) {
    return at::native::linear(input, weight, bias_opt);
  }
  at::Tensor out = launch_forward(input, weight, bias);
  if (torch::autograd::compute_requires_grad(input, weight, bias)) {
    auto node = c10::make_intrusive<LinearBackward>(input, weight);
    node->set_next_edges(torch::autograd::collect_next_edges(input, weight, bias));
    if (weight.requires_grad()) {
      node->input_ = torch::autograd::SavedVariable(input, /*is_output=*/false);
    }
    if (input.requires_grad()) {
      node->weight_ = torch::autograd::SavedVariable(weight, /*is_output=*/false);
    }
    torch::autograd::set_history(out, node);
  }
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("linear", &linear); }
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("linear", &linear_autograd); }

}  // namespace

}  // namespace torchneuron
