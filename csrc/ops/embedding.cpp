#include "ops/unstructured.h"

#include <ATen/ops/_embedding_bag.h>
#include <ATen/ops/_embedding_bag_backward_native.h>
#include <ATen/ops/_embedding_bag_dense_backward.h>
#include <ATen/ops/_embedding_bag_forward_only_native.h>
#include <ATen/ops/_embedding_bag_native.h>
#include <ATen/ops/_embedding_bag_per_sample_weights_backward.h>
#include <ATen/ops/_embedding_bag_per_sample_weights_backward_native.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/embedding_dense_backward_native.h>
#include <ATen/ops/embedding_renorm_native.h>
#include <ATen/ops/index_select_native.h>
#include <torch/library.h>

namespace torchneuron {

namespace {

using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

bool is_index(const at::Tensor& t) { return t.scalar_type() == at::kLong || t.scalar_type() == at::kInt; }

at::Tensor embedding(
    const at::Tensor& weight, const at::Tensor& indices, int64_t /*padding_idx*/, bool /*scale*/, bool /*sparse*/) {
  check_one_device("embedding", weight, indices);
  if (weight.dim() != 2 || !is_index(indices)) {
    ask_cpu(
        [](const at::Tensor& weight, const at::Tensor& indices) { return at::embedding(weight, indices); }, weight,
        indices);
  }
  c10::SmallVector<int64_t, 5> sizes(indices.sizes().begin(), indices.sizes().end());
  sizes.push_back(weight.size(1));
  at::Tensor out = new_tensor(weight, sizes, weight.scalar_type());
  static OpRecord& op = op_record("aten::embedding");
  launch(
      op,
      [](const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& out) {
        at::Tensor rows = out.view({indices.numel(), weight.size(1)});
        at::native::index_select_out_cpu_(weight, 0, indices.reshape(-1), rows);
      },
      weight, indices, out);
  return out;
}

at::Tensor embedding_dense_backward(
    const at::Tensor& grad, const at::Tensor& indices, int64_t num_weights, int64_t padding_idx, bool scale_by_freq) {
  check_one_device("embedding_dense_backward", grad, indices);
  const bool regular = grad.dim() >= 1 && grad.numel() == indices.numel() * grad.size(-1) && is_index(indices) &&
                       at::isFloatingType(grad.scalar_type());
  if (!regular) {
    ask_cpu(
        [&](const at::Tensor& grad, const at::Tensor& indices) {
          return at::embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_by_freq);
        },
        grad, indices);
  }
  at::Tensor grad_weight = new_tensor(grad, {num_weights, grad.size(-1)}, grad.scalar_type());
  static OpRecord& op = op_record("aten::embedding_dense_backward");
  launch_into(
      op, grad_weight, &at::native::embedding_dense_backward_cpu, grad, indices, num_weights, padding_idx,
      scale_by_freq);
  return grad_weight;
}

at::Tensor& embedding_renorm_(at::Tensor& self, const at::Tensor& indices, double max_norm, double norm_type) {
  check_one_device("embedding_renorm_", self, indices);
  if (self.dim() != 2 || !is_index(indices)) {
    ask_cpu(
        [&](at::Tensor self, const at::Tensor& indices) {
          return at::native::embedding_renorm_cpu_(self, indices, max_norm, norm_type);
        },
        self, indices);
  }
  static OpRecord& op = op_record("aten::embedding_renorm_");
  launch(
      op,
      [](at::Tensor self, const at::Tensor& indices, double max_norm, double norm_type) {
        at::native::embedding_renorm_cpu_(self, indices, max_norm, norm_type);
      },
      self, indices, max_norm, norm_type);
  return self;
}

constexpr int64_t kSum = 0;
constexpr int64_t kMax = 2;

bool is_regular_bag(
    const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets, int64_t mode,
    const at::Tensor& per_sample_weights, bool include_last_offset) {
  return weight.dim() == 2 && is_index(indices) && indices.dim() == 1 && is_index(offsets) && offsets.dim() == 1 &&
         at::isFloatingType(weight.scalar_type()) && mode >= kSum && mode <= kMax &&
         (!include_last_offset || offsets.size(0) > 0) &&
         (!per_sample_weights.defined() ||
          (mode == kSum && per_sample_weights.dim() == 1 && per_sample_weights.size(0) == indices.size(0) &&
           per_sample_weights.scalar_type() == weight.scalar_type()));
}

// Results other than the first are for the backward function, and their sizes tell it how the forward one went.
template <bool kForBackward>
Four embedding_bag(
    const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets, bool scale_by_freq, int64_t mode,
    bool sparse, const std::optional<at::Tensor>& per_sample_weights_opt, bool include_last_offset,
    int64_t padding_idx) {
  const at::Tensor& per_sample_weights = value_or_undefined(per_sample_weights_opt);
  check_one_device("_embedding_bag", weight, indices, offsets, per_sample_weights);
  if (!is_regular_bag(weight, indices, offsets, mode, per_sample_weights, include_last_offset)) {
    ask_cpu(
        [&](const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets,
            const at::Tensor& per_sample_weights) {
          return at::_embedding_bag(
              weight, indices, offsets, scale_by_freq, mode, sparse, per_sample_weights, include_last_offset,
              padding_idx);
        },
        weight, indices, offsets, per_sample_weights);
  }
  const bool fast = mode == kSum && weight.scalar_type() != at::kDouble && weight.stride(1) == 1 && padding_idx < 0 &&
                    (!per_sample_weights.defined() || per_sample_weights.stride(0) == 1);
  const int64_t bags = offsets.size(0) - (include_last_offset ? 1 : 0);
  const int64_t counted_bags = kForBackward || mode != kSum ? bags : offsets.size(0);
  const at::ScalarType index_dtype = at::promoteTypes(indices.scalar_type(), offsets.scalar_type());
  at::Tensor out = new_tensor(weight, {bags, weight.size(1)}, weight.scalar_type());
  at::Tensor offset2bag = new_tensor(weight, {fast ? 0 : indices.size(0)}, index_dtype);
  at::Tensor bag_size = new_tensor(weight, {counted_bags}, index_dtype);
  at::Tensor max_indices = mode == kMax ? new_tensor(weight, {bags, weight.size(1)}, index_dtype)
                                        : new_tensor(weight, {counted_bags}, index_dtype);
  static OpRecord& op = op_record(kForBackward ? "aten::_embedding_bag" : "aten::_embedding_bag_forward_only");
  launch(
      op,
      [](const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets, bool scale_by_freq,
         int64_t mode, bool sparse, const std::optional<at::Tensor>& per_sample_weights, bool include_last_offset,
         int64_t padding_idx, const at::Tensor& out, const at::Tensor& offset2bag, const at::Tensor& bag_size,
         const at::Tensor& max_indices) {
        const OutputPlacement placement(out);
        const auto made =
            (kForBackward ? &at::native::_embedding_bag_cpu : &at::native::_embedding_bag_forward_only_cpu)(
                weight, indices, offsets, scale_by_freq, mode, sparse, per_sample_weights, include_last_offset,
                padding_idx);
        OutputPlacement::deliver(out, std::get<0>(made));
        OutputPlacement::deliver(offset2bag, std::get<1>(made));
        OutputPlacement::deliver(bag_size, std::get<2>(made));
        OutputPlacement::deliver(max_indices, std::get<3>(made));
      },
      weight, indices, offsets, scale_by_freq, mode, sparse, per_sample_weights_opt, include_last_offset, padding_idx,
      out, offset2bag, bag_size, max_indices);
  return {out, offset2bag, bag_size, max_indices};
}

at::Tensor embedding_bag_backward(
    const at::Tensor& grad, const at::Tensor& indices, const at::Tensor& offsets, const at::Tensor& offset2bag,
    const at::Tensor& bag_size, const at::Tensor& max_indices, c10::SymInt num_weights, bool scale_by_freq,
    int64_t mode, bool sparse, const std::optional<at::Tensor>& per_sample_weights, int64_t padding_idx) {
  if (sparse) {
    return at::native::_embedding_bag_backward_symint(
        grad, indices, offsets, offset2bag, bag_size, max_indices, std::move(num_weights), scale_by_freq, mode, sparse,
        per_sample_weights, padding_idx);
  }
  check_one_device("_embedding_bag_backward", grad, indices, offsets, value_or_undefined(per_sample_weights));
  at::Tensor grad_weight = new_tensor(grad, {num_weights.expect_int(), grad.size(1)}, grad.scalar_type());
  static OpRecord& op = op_record("aten::_embedding_bag_backward");
  launch_into(
      op, grad_weight, &at::native::_embedding_bag_backward_symint, grad, indices, offsets, offset2bag, bag_size,
      max_indices, num_weights.expect_int(), scale_by_freq, mode, sparse, per_sample_weights, padding_idx);
  return grad_weight;
}

at::Tensor embedding_bag_per_sample_weights_backward(
    const at::Tensor& grad, const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets,
    const at::Tensor& offset2bag, int64_t mode, int64_t padding_idx) {
  check_one_device("_embedding_bag_per_sample_weights_backward", grad, weight, indices, offsets, offset2bag);
  if (mode != kSum || grad.dim() != 2 || weight.dim() != 2 || indices.dim() != 1 || grad.size(1) != weight.size(1)) {
    ask_cpu(
        [&](const at::Tensor& grad, const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets,
            const at::Tensor& offset2bag) {
          return at::_embedding_bag_per_sample_weights_backward(
              grad, weight, indices, offsets, offset2bag, mode, padding_idx);
        },
        grad, weight, indices, offsets, offset2bag);
  }
  at::Tensor grad_per_sample = new_tensor(grad, {indices.size(0)}, grad.scalar_type());
  static OpRecord& op = op_record("aten::_embedding_bag_per_sample_weights_backward");
  launch_into(
      op, grad_per_sample, &at::native::_embedding_bag_per_sample_weights_backward_cpu, grad, weight, indices, offsets,
      offset2bag, mode, padding_idx);
  return grad_per_sample;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("embedding", &embedding);
  m.impl("embedding_dense_backward", &embedding_dense_backward);
  m.impl("embedding_renorm_", &embedding_renorm_);
  m.impl("_embedding_bag", &embedding_bag</*kForBackward=*/true>);
  m.impl("_embedding_bag_forward_only", &embedding_bag</*kForBackward=*/false>);
  m.impl("_embedding_bag_backward", &embedding_bag_backward);
  m.impl("_embedding_bag_per_sample_weights_backward", &embedding_bag_per_sample_weights_backward);
}

}  // namespace

}  // namespace torchneuron
