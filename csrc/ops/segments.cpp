#include "ops/unstructured.h"

#include <ATen/ops/segment_reduce_native.h>
#include <torch/library.h>

#include <array>
#include <string_view>

namespace torchneuron {

namespace {

using MaybeTensor = const std::optional<at::Tensor>&;
using Initial = const std::optional<at::Scalar>&;

bool is_index(const at::Tensor& t) { return t.scalar_type() == at::kLong || t.scalar_type() == at::kInt; }

// Whether `marks`, the lengths or ends of segments along its last dimension, fit the dimensions of `data`.
bool fits(const at::Tensor& marks, const at::Tensor& data, int64_t axis) {
  return is_index(marks) && marks.dim() == axis + 1 && data.dim() > axis &&
         marks.sizes().slice(0, static_cast<size_t>(axis)) == data.sizes().slice(0, static_cast<size_t>(axis));
}

bool is_reduction(std::string_view name) {
  constexpr std::array<std::string_view, 5> kAll{"max", "mean", "min", "sum", "prod"};
  return std::find(kAll.begin(), kAll.end(), name) != kAll.end();
}

// Lengths that do not add up to the size of `data` are an error of the worker.
at::Tensor segment_reduce(
    const at::Tensor& data, std::string_view reduce, MaybeTensor lengths, MaybeTensor indices, MaybeTensor offsets,
    int64_t axis, bool unsafe, Initial initial) {
  check_one_device(
      "segment_reduce", data, value_or_undefined(lengths), value_or_undefined(indices), value_or_undefined(offsets));
  const at::Tensor& ends = value_or_undefined(offsets);
  const at::Tensor& marks = ends.defined() ? ends : value_or_undefined(lengths);
  at::Tensor out;
  if (axis >= 0 && data.numel() > 0 && at::isFloatingType(data.scalar_type()) && is_reduction(reduce) &&
      !value_or_undefined(indices).defined() && marks.defined() && fits(marks, data, axis) &&
      (!ends.defined() || ends.size(axis) > 0)) {
    at::DimVector sizes(data.sizes());
    sizes[axis] = marks.size(axis) - (ends.defined() ? 1 : 0);
    out = new_tensor(data, sizes, data.scalar_type());
  } else {
    out = new_as_on_cpu(
        data,
        [&](const at::Tensor& data, MaybeTensor lengths, MaybeTensor indices, MaybeTensor offsets) {
          // The lengths here, zeros, would not add up.
          return at::native::segment_reduce_kernel(
              data, reduce, lengths, indices, offsets, axis, /*unsafe=*/true, initial);
        },
        data, lengths, indices, offsets);
  }
  static OpRecord& op = op_record("aten::segment_reduce");
  launch_into(
      op, out, &at::native::segment_reduce_kernel, data, reduce, lengths, indices, offsets, axis, unsafe, initial);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("segment_reduce", &segment_reduce); }

}  // namespace

}  // namespace torchneuron
