#include "ops/unstructured.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/_ctc_loss_backward_native.h>
#include <ATen/ops/_ctc_loss_native.h>
#include <ATen/ops/binary_cross_entropy_backward_native.h>
#include <ATen/ops/binary_cross_entropy_native.h>
#include <ATen/ops/binary_cross_entropy_with_logits_native.h>
#include <ATen/ops/huber_loss_backward_native.h>
#include <ATen/ops/huber_loss_native.h>
#include <ATen/ops/mse_loss_backward_native.h>
#include <ATen/ops/multi_margin_loss_backward_native.h>
#include <ATen/ops/multi_margin_loss_native.h>
#include <ATen/ops/multilabel_margin_loss_backward_native.h>
#include <ATen/ops/multilabel_margin_loss_forward_native.h>
#include <ATen/ops/nll_loss2d_backward_native.h>
#include <ATen/ops/nll_loss2d_forward_native.h>
#include <ATen/ops/smooth_l1_loss_backward_native.h>
#include <ATen/ops/soft_margin_loss_backward_native.h>
#include <ATen/ops/soft_margin_loss_native.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>

namespace torchneuron {

namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;

bool agree(const at::Tensor& input, const at::Tensor& target) {
  return at::isFloatingType(input.scalar_type()) && input.scalar_type() == target.scalar_type() &&
         input.sizes() == target.sizes();
}

bool scales(const at::Tensor& weight, const at::Tensor& input) {
  return !weight.defined() ||
         (weight.scalar_type() == input.scalar_type() && at::is_expandable_to(weight.sizes(), input.sizes()));
}

bool is_grad_of_loss(const at::Tensor& grad, const at::Tensor& input) {
  return grad.scalar_type() == input.scalar_type() && (grad.dim() == 0 || grad.sizes() == input.sizes());
}

// What a loss of `input` and `target` returns: one value for each element, as `elementwise` makes them, or one for all.
template <typename Elementwise>
at::Tensor new_loss(const at::Tensor& input, int64_t reduction, Elementwise elementwise) {
  return reduction == at::Reduction::None ? elementwise() : new_tensor(input, {}, input.scalar_type());
}

at::Tensor new_contiguous(const at::Tensor& input) { return new_tensor(input, input.sizes(), input.scalar_type()); }

at::Tensor binary_cross_entropy(
    const at::Tensor& input, const at::Tensor& target, const std::optional<at::Tensor>& weight, int64_t reduction) {
  check_one_device("binary_cross_entropy", input, target, value_or_undefined(weight));
  at::Tensor out;
  if (agree(input, target) && scales(value_or_undefined(weight), input)) {
    out = new_loss(input, reduction, [&] { return new_like(input); });
  } else {
    out = new_as_on_cpu(
        input,
        [&](const at::Tensor& input, const at::Tensor& target, const std::optional<at::Tensor>& weight) {
          return at::native::binary_cross_entropy_cpu(input, target, weight, reduction);
        },
        input, target, weight);
  }
  static OpRecord& op = op_record("aten::binary_cross_entropy");
  launch_into(op, out, &at::native::binary_cross_entropy_cpu, input, target, weight, reduction);
  return out;
}

at::Tensor binary_cross_entropy_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target, const std::optional<at::Tensor>& weight,
    int64_t reduction) {
  check_one_device("binary_cross_entropy_backward", grad, input, target, value_or_undefined(weight));
  at::Tensor grad_input;
  if (agree(input, target) && scales(value_or_undefined(weight), input) && is_grad_of_loss(grad, input)) {
    grad_input = new_like(input);
  } else {
    grad_input = new_as_on_cpu(
        input,
        [&](const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target,
            const std::optional<at::Tensor>& weight) {
          return at::native::binary_cross_entropy_backward_cpu(grad, input, target, weight, reduction);
        },
        grad, input, target, weight);
  }
  static OpRecord& op = op_record("aten::binary_cross_entropy_backward");
  launch_into(op, grad_input, &at::native::binary_cross_entropy_backward_cpu, grad, input, target, weight, reduction);
  return grad_input;
}

at::Tensor binary_cross_entropy_with_logits(
    const at::Tensor& input, const at::Tensor& target, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& pos_weight, int64_t reduction) {
  check_one_device(
      "binary_cross_entropy_with_logits", input, target, value_or_undefined(weight), value_or_undefined(pos_weight));
  at::Tensor out;
  if (agree(input, target) && scales(value_or_undefined(weight), input) &&
      scales(value_or_undefined(pos_weight), input) && reduction <= at::Reduction::Sum) {
    out = new_loss(input, reduction, [&] { return new_like(target); });
  } else {
    out = new_as_on_cpu(
        input,
        [&](const at::Tensor& input, const at::Tensor& target, const std::optional<at::Tensor>& weight,
            const std::optional<at::Tensor>& pos_weight) {
          return at::native::binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction);
        },
        input, target, weight, pos_weight);
  }
  static OpRecord& op = op_record("aten::binary_cross_entropy_with_logits");
  launch_into(op, out, &at::native::binary_cross_entropy_with_logits, input, target, weight, pos_weight, reduction);
  return out;
}

// Losses and gradients of an input and a target of its sizes, with the numbers that shape the loss in `parameters`.
template <typename Kernel, typename... Parameters>
at::Tensor pointwise_loss(
    OpRecord& op, Kernel kernel, const at::Tensor& input, const at::Tensor& target, int64_t reduction,
    const Parameters&... parameters) {
  check_one_device(op.name.c_str(), input, target);
  at::Tensor out;
  if (agree(input, target) && ((parameters > 0) && ...)) {
    out = new_loss(input, reduction, [&] { return new_like(input); });
  } else {
    out = new_as_on_cpu(
        input,
        [&](const at::Tensor& input, const at::Tensor& target) {
          return kernel(input, target, reduction, parameters...);
        },
        input, target);
  }
  launch_into(op, out, kernel, input, target, reduction, parameters...);
  return out;
}

template <typename Kernel, typename... Parameters>
at::Tensor pointwise_loss_backward(
    OpRecord& op, Kernel kernel, at::Tensor (*new_gradient)(const at::Tensor& target), const at::Tensor& grad,
    const at::Tensor& input, const at::Tensor& target, int64_t reduction, const Parameters&... parameters) {
  check_one_device(op.name.c_str(), grad, input, target);
  at::Tensor grad_input;
  if (agree(input, target) && is_grad_of_loss(grad, input)) {
    grad_input = new_gradient(target);
  } else {
    grad_input = new_as_on_cpu(
        input,
        [&](const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target) {
          return kernel(grad, input, target, reduction, parameters...);
        },
        grad, input, target);
  }
  launch_into(op, grad_input, kernel, grad, input, target, reduction, parameters...);
  return grad_input;
}

at::Tensor huber_loss(const at::Tensor& input, const at::Tensor& target, int64_t reduction, double delta) {
  static OpRecord& op = op_record("aten::huber_loss");
  return pointwise_loss(op, &at::native::huber_loss, input, target, reduction, delta);
}

at::Tensor huber_loss_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target, int64_t reduction, double delta) {
  static OpRecord& op = op_record("aten::huber_loss_backward");
  return pointwise_loss_backward(
      op, &at::native::huber_loss_backward, new_contiguous, grad, input, target, reduction, delta);
}

at::Tensor smooth_l1_loss_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target, int64_t reduction, double beta) {
  static OpRecord& op = op_record("aten::smooth_l1_loss_backward");
  return pointwise_loss_backward(
      op, &at::native::smooth_l1_loss_backward, new_contiguous, grad, input, target, reduction, beta);
}

at::Tensor mse_loss_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target, int64_t reduction) {
  static OpRecord& op = op_record("aten::mse_loss_backward");
  return pointwise_loss_backward(op, &at::native::mse_loss_backward, new_contiguous, grad, input, target, reduction);
}

at::Tensor soft_margin_loss(const at::Tensor& input, const at::Tensor& target, int64_t reduction) {
  static OpRecord& op = op_record("aten::soft_margin_loss");
  return pointwise_loss(op, &at::native::soft_margin_loss, input, target, reduction);
}

at::Tensor soft_margin_loss_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target, int64_t reduction) {
  static OpRecord& op = op_record("aten::soft_margin_loss_backward");
  return pointwise_loss_backward(op, &at::native::soft_margin_loss_backward, new_like, grad, input, target, reduction);
}

// The class-margin losses are rare and their rules many: CPU tells their geometry.
at::Tensor multi_margin_loss(
    const at::Tensor& input, const at::Tensor& target, const at::Scalar& p, const at::Scalar& margin,
    const std::optional<at::Tensor>& weight, int64_t reduction) {
  check_one_device("multi_margin_loss", input, target, value_or_undefined(weight));
  at::Tensor out = new_as_on_cpu(
      input,
      [&](const at::Tensor& input, const at::Tensor& target, const std::optional<at::Tensor>& weight) {
        return at::native::multi_margin_loss_cpu(input, target, p, margin, weight, reduction);
      },
      input, target, weight);
  static OpRecord& op = op_record("aten::multi_margin_loss");
  launch_into(op, out, &at::native::multi_margin_loss_cpu, input, target, p, margin, weight, reduction);
  return out;
}

at::Tensor multi_margin_loss_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target, const at::Scalar& p,
    const at::Scalar& margin, const std::optional<at::Tensor>& weight, int64_t reduction) {
  check_one_device("multi_margin_loss_backward", grad, input, target, value_or_undefined(weight));
  at::Tensor grad_input = new_contiguous(input);
  static OpRecord& op = op_record("aten::multi_margin_loss_backward");
  launch_into(
      op, grad_input, &at::native::multi_margin_loss_cpu_backward, grad, input, target, p, margin, weight, reduction);
  return grad_input;
}

Two multilabel_margin_loss_forward(const at::Tensor& input, const at::Tensor& target, int64_t reduction) {
  check_one_device("multilabel_margin_loss_forward", input, target);
  at::Tensor out = new_as_on_cpu(
      input,
      [&](const at::Tensor& input, const at::Tensor& target) {
        return std::get<0>(at::native::multilabel_margin_loss_forward_cpu(input, target, reduction));
      },
      input, target);
  at::Tensor is_target = new_tensor(input, target.sizes(), input.scalar_type());
  static OpRecord& op = op_record("aten::multilabel_margin_loss_forward");
  launch_into(
      op, std::array{out, is_target}, &at::native::multilabel_margin_loss_forward_cpu, input, target, reduction);
  return {out, is_target};
}

at::Tensor multilabel_margin_loss_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target, int64_t reduction,
    const at::Tensor& is_target) {
  check_one_device("multilabel_margin_loss_backward", grad, input, target, is_target);
  at::Tensor grad_input = new_contiguous(input);
  static OpRecord& op = op_record("aten::multilabel_margin_loss_backward");
  launch_into(
      op, grad_input, &at::native::multilabel_margin_loss_backward_cpu, grad, input, target, reduction, is_target);
  return grad_input;
}

bool is_regular_nll(const at::Tensor& input, const at::Tensor& target, const at::Tensor& weight) {
  return input.dim() == 4 && target.dim() == 3 && at::isFloatingType(input.scalar_type()) &&
         target.scalar_type() == at::kLong && input.size(0) == target.size(0) && input.size(2) == target.size(1) &&
         input.size(3) == target.size(2) &&
         (!weight.defined() ||
          (weight.dim() == 1 && weight.size(0) == input.size(1) && weight.scalar_type() == input.scalar_type()));
}

Two nll_loss2d_forward(
    const at::Tensor& input, const at::Tensor& target, const std::optional<at::Tensor>& weight, int64_t reduction,
    int64_t ignore_index) {
  check_one_device("nll_loss2d_forward", input, target, value_or_undefined(weight));
  if (!is_regular_nll(input, target, value_or_undefined(weight))) {
    ask_cpu(
        [&](const at::Tensor& input, const at::Tensor& target, const std::optional<at::Tensor>& weight) {
          return at::native::nll_loss2d_forward_cpu(input, target, weight, reduction, ignore_index);
        },
        input, target, weight);
  }
  at::Tensor out = new_loss(input, reduction, [&] { return new_tensor(input, target.sizes(), input.scalar_type()); });
  at::Tensor total_weight = new_tensor(input, {}, input.scalar_type());
  static OpRecord& op = op_record("aten::nll_loss2d_forward");
  launch_into(
      op, std::array{out, total_weight}, &at::native::nll_loss2d_forward_cpu, input, target, weight, reduction,
      ignore_index);
  return {out, total_weight};
}

at::Tensor nll_loss2d_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target, const std::optional<at::Tensor>& weight,
    int64_t reduction, int64_t ignore_index, const at::Tensor& total_weight) {
  check_one_device("nll_loss2d_backward", grad, input, target, value_or_undefined(weight), total_weight);
  at::Tensor grad_input = new_like(input);
  if (!is_regular_nll(input, target, value_or_undefined(weight)) || !grad_input.is_contiguous() ||
      grad.scalar_type() != input.scalar_type() ||
      (reduction == at::Reduction::None ? grad.sizes() != target.sizes() : grad.numel() != 1)) {
    ask_cpu(
        [&](const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target,
            const std::optional<at::Tensor>& weight, const at::Tensor& total_weight) {
          return at::native::nll_loss2d_backward_cpu(
              grad, input, target, weight, reduction, ignore_index, total_weight);
        },
        grad, input, target, weight, total_weight);
  }
  static OpRecord& op = op_record("aten::nll_loss2d_backward");
  launch_into(
      op, grad_input, &at::native::nll_loss2d_backward_cpu, grad, input, target, weight, reduction, ignore_index,
      total_weight);
  return grad_input;
}

bool is_regular_ctc(
    const at::Tensor& log_probs, const at::Tensor& targets, at::IntArrayRef input_lengths,
    at::IntArrayRef target_lengths, int64_t blank) {
  if (log_probs.dim() != 3 || log_probs.numel() == 0 || targets.dim() < 1 || targets.dim() > 2) {
    return false;
  }
  const int64_t batch = log_probs.size(1);
  const auto within = [](at::IntArrayRef lengths, int64_t most) {
    return std::all_of(lengths.begin(), lengths.end(), [most](int64_t n) { return n >= 0 && n <= most; });
  };
  const bool targets_fit =
      targets.dim() == 2
          ? targets.size(0) == batch && within(target_lengths, targets.size(1))
          : within(target_lengths, targets.size(0)) &&
                std::accumulate(target_lengths.begin(), target_lengths.end(), int64_t{0}) == targets.size(0);
  return static_cast<int64_t>(input_lengths.size()) == batch && static_cast<int64_t>(target_lengths.size()) == batch &&
         within(input_lengths, log_probs.size(0)) && targets_fit && blank >= 0 && blank < log_probs.size(2) &&
         (log_probs.scalar_type() == at::kFloat || log_probs.scalar_type() == at::kDouble) &&
         (targets.scalar_type() == at::kLong || targets.scalar_type() == at::kInt);
}

Two ctc_loss(
    const at::Tensor& log_probs, const at::Tensor& targets, at::IntArrayRef input_lengths,
    at::IntArrayRef target_lengths, int64_t blank, bool zero_infinity) {
  check_one_device("_ctc_loss", log_probs, targets);
  if (!is_regular_ctc(log_probs, targets, input_lengths, target_lengths, blank)) {
    ask_cpu(
        [&](const at::Tensor& log_probs, const at::Tensor& targets) {
          return at::native::ctc_loss_cpu(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity);
        },
        log_probs, targets);
  }
  const int64_t longest = target_lengths.empty() ? 0 : *std::max_element(target_lengths.begin(), target_lengths.end());
  const int64_t batch = log_probs.size(1);
  at::Tensor loss = new_tensor(log_probs, {batch}, log_probs.scalar_type());
  at::Tensor log_alpha = new_tensor(log_probs, {batch, log_probs.size(0), 2 * longest + 1}, log_probs.scalar_type());
  static OpRecord& op = op_record("aten::_ctc_loss");
  launch_into(
      op, std::array{loss, log_alpha}, &at::native::ctc_loss_cpu, log_probs, targets, input_lengths, target_lengths,
      blank, zero_infinity);
  return {loss, log_alpha};
}

at::Tensor ctc_loss_backward(
    const at::Tensor& grad, const at::Tensor& log_probs, const at::Tensor& targets, at::IntArrayRef input_lengths,
    at::IntArrayRef target_lengths, const at::Tensor& loss, const at::Tensor& log_alpha, int64_t blank,
    bool zero_infinity) {
  check_one_device("_ctc_loss_backward", grad, log_probs, targets, loss, log_alpha);
  at::Tensor grad_input = new_contiguous(log_probs);
  static OpRecord& op = op_record("aten::_ctc_loss_backward");
  launch_into(
      op, grad_input, &at::native::ctc_loss_backward_cpu, grad, log_probs, targets, input_lengths, target_lengths, loss,
      log_alpha, blank, zero_infinity);
  return grad_input;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("binary_cross_entropy", &binary_cross_entropy);
  m.impl("binary_cross_entropy_backward", &binary_cross_entropy_backward);
  m.impl("binary_cross_entropy_with_logits", &binary_cross_entropy_with_logits);
  m.impl("huber_loss", &huber_loss);
  m.impl("huber_loss_backward", &huber_loss_backward);
  m.impl("smooth_l1_loss_backward", &smooth_l1_loss_backward);
  m.impl("mse_loss_backward", &mse_loss_backward);
  m.impl("soft_margin_loss", &soft_margin_loss);
  m.impl("soft_margin_loss_backward", &soft_margin_loss_backward);
  m.impl("multi_margin_loss", &multi_margin_loss);
  m.impl("multi_margin_loss_backward", &multi_margin_loss_backward);
  m.impl("multilabel_margin_loss_forward", &multilabel_margin_loss_forward);
  m.impl("multilabel_margin_loss_backward", &multilabel_margin_loss_backward);
  m.impl("nll_loss2d_forward", &nll_loss2d_forward);
  m.impl("nll_loss2d_backward", &nll_loss2d_backward);
  m.impl("_ctc_loss", &ctc_loss);
  // These take the lengths to the host, should they not lie there, and then to the launches above.
  m.impl("_ctc_loss.Tensor", &at::native::ctc_loss_tensor);
  m.impl("_ctc_loss_backward.Tensor", &at::native::ctc_loss_backward_tensor);
  m.impl("_ctc_loss_backward", &ctc_loss_backward);
}

}  // namespace

}  // namespace torchneuron
