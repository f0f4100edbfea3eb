#include "ops/unstructured.h"

#include <ATen/ops/_masked_softmax_native.h>
#include <ATen/ops/_native_multi_head_attention_native.h>
#include <ATen/ops/_transform_bias_rescale_qkv_native.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>
#include <torch/library.h>

namespace torchneuron {

namespace {

// The fused layers of nn.TransformerEncoder and nn.MultiheadAttention in inference. PyTorch's kernels for whole layers
// call operators, so they work on tensors of this device as they are; two of the operators exist for them alone.

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// What the numbers of a mask's type say of its shape: for (batch, heads, rows, columns).
bool mask_fits(const at::Tensor& mask, const at::Tensor& scores, std::optional<int64_t> type) {
  const at::IntArrayRef sizes = scores.sizes();
  switch (type.value_or(2)) {
    case 0:
      return sizes.size() == 4 && mask.sizes() == sizes.slice(2);
    case 1:
      return sizes.size() == 4 && mask.dim() == 2 && mask.size(0) == sizes[0] && mask.size(1) == sizes[3];
    case 2:
      return mask.sizes() == sizes;
    default:
      return false;
  }
}

at::Tensor masked_softmax(
    const at::Tensor& scores, const at::Tensor& mask, std::optional<int64_t> dim, std::optional<int64_t> mask_type) {
  check_one_device("_masked_softmax", scores, mask);
  at::Tensor out;
  if (scores.is_contiguous() && at::isFloatingType(scores.scalar_type()) && mask.scalar_type() == at::kBool &&
      scores.dim() > 0 && dim.value_or(-1) == -1 && mask_fits(mask, scores, mask_type)) {
    out = new_like(scores);
  } else {
    out = new_as_on_cpu(
        scores,
        [&](const at::Tensor& scores, const at::Tensor& mask) {
          return at::native::masked_softmax_cpu(scores, mask, dim, mask_type);
        },
        scores, mask);
  }
  static OpRecord& op = op_record("aten::_masked_softmax");
  launch_into(op, out, &at::native::masked_softmax_cpu, scores, mask, dim, mask_type);
  return out;
}

// (batch, length, 3 * width) as queries, keys and values of (batch, heads, length, width / heads), in one piece.
Three transform_bias_rescale_qkv(const at::Tensor& qkv, const at::Tensor& bias, int64_t heads) {
  check_one_device("_transform_bias_rescale_qkv", qkv, bias);
  if (qkv.dim() != 3 || bias.dim() != 1 || bias.size(0) != qkv.size(2) || heads <= 0 ||
      qkv.size(2) % (3 * heads) != 0 || !at::isFloatingType(qkv.scalar_type()) ||
      bias.scalar_type() != qkv.scalar_type()) {
    ask_cpu(
        [&](const at::Tensor& qkv, const at::Tensor& bias) {
          return at::native::transform_bias_rescale_qkv_cpu(qkv, bias, heads);
        },
        qkv, bias);
  }
  const int64_t batch = qkv.size(0);
  const at::Tensor out = new_tensor(qkv, {3 * batch, heads, qkv.size(1), qkv.size(2) / 3 / heads}, qkv.scalar_type());
  static OpRecord& op = op_record("aten::_transform_bias_rescale_qkv");
  launch(
      op,
      [](const at::Tensor& qkv, const at::Tensor& bias, int64_t heads, const at::Tensor& out) {
        const OutputPlacement placement(out);
        const auto [query, key, value] = at::native::transform_bias_rescale_qkv_cpu(qkv, bias, heads);
        const int64_t batch = qkv.size(0);
        OutputPlacement::deliver(out.narrow(0, 0, batch), query);
        OutputPlacement::deliver(out.narrow(0, batch, batch), key);
        OutputPlacement::deliver(out.narrow(0, 2 * batch, batch), value);
      },
      qkv, bias, heads, out);
  return {out.narrow(0, 0, batch), out.narrow(0, batch, batch), out.narrow(0, 2 * batch, batch)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_masked_softmax", &masked_softmax);
  m.impl("_transform_bias_rescale_qkv", &transform_bias_rescale_qkv);
  m.impl("_native_multi_head_attention", &at::native::native_multi_head_attention_cpu);
  m.impl("_transformer_encoder_layer_fwd", &at::native::transformer_encoder_layer_forward);
}

}  // namespace

}  // namespace torchneuron
