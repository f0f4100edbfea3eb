#include "ops/unstructured.h"

#include <ATen/OpMathType.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_native.h>
#include <ATen/ops/new_empty.h>
#include <c10/util/strides.h>
#include <torch/library.h>

namespace torchneuron {

namespace {

// scaled_dot_product_attention asks a device which of its kernels to take. The answer is CPU's, and for every device
// that is not CUDA its flash kernel is _scaled_dot_product_flash_attention_for_cpu, here one launch forward and one
// backward. What that kernel does not do (dropout, 3-D tensors, masks that need gradients, …) goes the same way as on
// CPU: through the composite of matrix products and a softmax.

// CPU takes a mask of any strides, other devices one whose last stride is 1: the choice must not see the difference.
at::Tensor mask_with_last_stride_one(const at::Tensor& mask) {
  if (mask.sym_strides().back() == 1 || mask.requires_grad()) {
    return mask;
  }
  if (mask.unsafeGetTensorImpl()->is_python_dispatch()) {
    return mask.new_empty_symint(mask.sym_sizes());
  }
  return geometry_only(mask.sizes(), c10::contiguous_strides(mask.sizes()), mask.dtype());
}

int64_t fused_sdp_choice(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask,
    double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  std::optional<at::Tensor> seen;
  if (mask.has_value() && mask->defined() && mask->dim() > 0) {
    seen = mask_with_last_stride_one(*mask);
  }
  return at::native::_fused_sdp_choice_cpp(query, key, value, seen, dropout_p, is_causal, scale, enable_gqa);
}

void check_attention_inputs(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask) {
  check_one_device("_scaled_dot_product_flash_attention_for_cpu", query, key, value, value_or_undefined(mask));
  const auto sizes = [](const at::Tensor& t) { return t.sizes(); };
  TORCH_CHECK(
      sizes(query)[0] == sizes(key)[0] && sizes(key)[0] == sizes(value)[0] && sizes(key)[1] == sizes(value)[1] &&
          sizes(key)[2] == sizes(value)[2] && sizes(key)[1] > 0 && sizes(query)[1] % sizes(key)[1] == 0 &&
          sizes(key)[2] > 0,
      "scaled_dot_product_attention_flash_attention: query, key and value must agree in their batch, heads and "
      "sequence, "
      "but have the sizes ",
      query.sizes(), ", ", key.sizes(), " and ", value.sizes());
  TORCH_CHECK(
      query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type(), "expected scalar type ",
      query.scalar_type(), " but found ",
      key.scalar_type() == query.scalar_type() ? value.scalar_type() : key.scalar_type());
}

// Sizes and strides of CPU's results that are made as (batch, sequence, heads, …) and seen as (batch, heads, sequence,
// …).
at::Tensor new_sequence_major(const at::Tensor& like, at::ScalarType dtype) {
  const int64_t heads = like.size(1), length = like.size(2), features = like.size(3);
  return new_strided(like, like.sizes(), {length * heads * features, features, heads * features, 1}, dtype);
}

at::Tensor new_logsumexp(const at::Tensor& query) {
  const int64_t heads = query.size(1), length = query.size(2);
  return new_strided(
      query, {query.size(0), heads, length}, {length * heads, 1, heads}, at::toOpMathType(query.scalar_type()));
}

std::tuple<at::Tensor, at::Tensor> flash_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout_p, bool is_causal,
    const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  const bool regular =
      at::isFloatingType(query.scalar_type()) && query.dim() == 4 && key.dim() == 4 && value.dim() == 4 &&
      dropout_p == 0.0 && query.size(3) == value.size(3) && key.size(3) == value.size(3) &&
      (!mask.has_value() ||
       ((mask->scalar_type() == query.scalar_type() || mask->scalar_type() == at::kFloat) &&
        (mask->dim() == 2 || mask->dim() == 4) &&
        at::is_expandable_to(mask->sizes(), {query.size(0), query.size(1), query.size(2), key.size(2)})));
  if (!regular) {
    ask_cpu(
        [&](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
            const std::optional<at::Tensor>& mask) {
          return at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, mask, scale);
        },
        query, key, value, mask);
  }
  check_attention_inputs(query, key, value, mask);
  at::Tensor out = new_like(query);
  at::Tensor logsumexp = new_logsumexp(query);
  if (out.numel() == 0) {
    return {out, logsumexp};
  }
  static OpRecord& op = op_record("aten::_scaled_dot_product_flash_attention_for_cpu");
  launch_into(
      op, std::array{out, logsumexp}, &at::native::_scaled_dot_product_flash_attention_cpu, query, key, value,
      dropout_p, is_causal, mask, scale);
  return {out, logsumexp};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& out, const at::Tensor& logsumexp, double dropout_p, bool is_causal,
    const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  if (!grad_out.defined()) {
    return {};
  }
  check_attention_inputs(query, key, value, mask);
  check_one_device("_scaled_dot_product_flash_attention_for_cpu_backward", query, grad_out, out, logsumexp);
  at::Tensor grad_query = new_sequence_major(query, query.scalar_type());
  at::Tensor grad_key = new_sequence_major(key, query.scalar_type());
  at::Tensor grad_value = new_sequence_major(value, query.scalar_type());
  static OpRecord& op = op_record("aten::_scaled_dot_product_flash_attention_for_cpu_backward");
  launch_into(
      op, {grad_query, grad_key, grad_value}, &at::native::_scaled_dot_product_flash_attention_cpu_backward, grad_out,
      query, key, value, out, logsumexp, dropout_p, is_causal, mask, scale);
  return {grad_query, grad_key, grad_value};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", &fused_sdp_choice);
  m.impl("_scaled_dot_product_flash_attention_for_cpu", &flash_attention);
  m.impl("_scaled_dot_product_flash_attention_for_cpu_backward", &flash_attention_backward);
}

}  // namespace

}  // namespace torchneuron

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torchneuron::fused_sdp_choice)

}  // namespace at::native
