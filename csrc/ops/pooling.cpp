#include "ops/unstructured.h"

#include <ATen/native/Pool.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward_native.h>
#include <ATen/ops/_adaptive_avg_pool2d_native.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward_native.h>
#include <ATen/ops/_adaptive_avg_pool3d_native.h>
#include <ATen/ops/max_pool3d_with_indices_backward_native.h>
#include <ATen/ops/max_pool3d_with_indices_native.h>
#include <ATen/ops/max_unpool2d_native.h>
#include <ATen/ops/max_unpool3d_native.h>
#include <torch/library.h>

namespace torchneuron {

namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;
using Sizes = c10::SmallVector<int64_t, 5>;

// Floating tensors of `spatial_dims` dimensions behind channels and perhaps a batch, of which none but the batch is
// empty.
bool is_image(const at::Tensor& input, int64_t spatial_dims) {
  const int64_t first = input.dim() == spatial_dims + 2 ? 1 : 0;
  return (first == 1 || input.dim() == spatial_dims + 1) && at::isFloatingType(input.scalar_type()) &&
         std::all_of(input.sizes().begin() + first, input.sizes().end(), [](int64_t size) { return size > 0; });
}

// The sizes of `input`, with others in its last dimensions.
Sizes with_last_sizes(const at::Tensor& input, at::IntArrayRef last) {
  Sizes sizes(input.sizes().begin(), input.sizes().end());
  std::copy(last.begin(), last.end(), sizes.end() - static_cast<int64_t>(last.size()));
  return sizes;
}

// CPU's kernels for two spatial dimensions keep the memory format, those for three make a contiguous result.
at::Tensor adaptive_avg_pool2d(const at::Tensor& input, at::IntArrayRef output_size) {
  at::Tensor out;
  if (is_image(input, 2) && output_size.size() == 2 && output_size[0] >= 0 && output_size[1] >= 0) {
    out = new_tensor(input, with_last_sizes(input, output_size), input.scalar_type(), input.suggest_memory_format());
  } else {
    out = new_as_on_cpu(
        input, [&](const at::Tensor& input) { return at::native::adaptive_avg_pool2d_cpu(input, output_size); }, input);
  }
  static OpRecord& op = op_record("aten::_adaptive_avg_pool2d");
  launch_into(op, out, &at::native::adaptive_avg_pool2d_cpu, input, output_size);
  return out;
}

at::Tensor adaptive_avg_pool3d(const at::Tensor& input, at::IntArrayRef output_size) {
  at::Tensor out;
  if (is_image(input, 3) && output_size.size() == 3 &&
      std::all_of(output_size.begin(), output_size.end(), [](int64_t size) { return size >= 0; })) {
    out = new_tensor(input, with_last_sizes(input, output_size), input.scalar_type());
  } else {
    out = new_as_on_cpu(
        input, [&](const at::Tensor& input) { return at::native::adaptive_avg_pool3d_cpu(input, output_size); }, input);
  }
  static OpRecord& op = op_record("aten::_adaptive_avg_pool3d");
  launch_into(op, out, &at::native::adaptive_avg_pool3d_cpu, input, output_size);
  return out;
}

template <typename Kernel>
at::Tensor adaptive_avg_pool_backward(
    OpRecord& op, Kernel kernel, const at::Tensor& grad, const at::Tensor& input, int64_t spatial_dims,
    at::MemoryFormat format) {
  check_one_device(op.name.c_str(), grad, input);
  at::Tensor grad_input;
  if (is_image(input, spatial_dims) && is_image(grad, spatial_dims) && grad.dim() == input.dim() &&
      grad.scalar_type() == input.scalar_type() &&
      grad.sizes().slice(0, grad.dim() - spatial_dims) == input.sizes().slice(0, input.dim() - spatial_dims)) {
    grad_input = new_tensor(input, input.sizes(), input.scalar_type(), format);
  } else {
    grad_input = new_as_on_cpu(input, kernel, grad, input);
  }
  launch_into(op, grad_input, kernel, grad, input);
  return grad_input;
}

at::Tensor adaptive_avg_pool2d_backward(const at::Tensor& grad, const at::Tensor& input) {
  static OpRecord& op = op_record("aten::_adaptive_avg_pool2d_backward");
  return adaptive_avg_pool_backward(
      op, &at::native::adaptive_avg_pool2d_backward_cpu, grad, input, 2, input.suggest_memory_format());
}

at::Tensor adaptive_avg_pool3d_backward(const at::Tensor& grad, const at::Tensor& input) {
  static OpRecord& op = op_record("aten::_adaptive_avg_pool3d_backward");
  return adaptive_avg_pool_backward(
      op, &at::native::adaptive_avg_pool3d_backward_cpu, grad, input, 3, at::MemoryFormat::Contiguous);
}

// The sizes of the pooled tensor; empty for arguments that CPU may refuse.
Sizes pooled_sizes(
    const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, bool ceil_mode) {
  const auto fits = [](at::IntArrayRef list) { return list.size() == 1 || list.size() == 3; };
  if (!is_image(input, 3) || !fits(kernel) || !(stride.empty() || fits(stride)) || !fits(padding) || !fits(dilation)) {
    return {};
  }
  const auto value = [](at::IntArrayRef list, int64_t d) { return list.size() == 1 ? list[0] : list[d]; };
  Sizes sizes;
  for (int64_t d = 0; d < 3; ++d) {
    const int64_t size = value(kernel, d);
    const int64_t step = stride.empty() ? size : value(stride, d);
    const int64_t pad = value(padding, d);
    const int64_t spread = value(dilation, d);
    if (size < 1 || step < 1 || spread < 1 || pad < 0 || pad > size / 2) {
      return {};
    }
    sizes.push_back(at::native::pooling_output_shape<int64_t>(input.size(d - 3), size, pad, step, spread, ceil_mode));
    if (sizes.back() < 1) {
      return {};
    }
  }
  return with_last_sizes(input, sizes);
}

Two max_pool3d_with_indices(
    const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, bool ceil_mode) {
  const Sizes sizes = pooled_sizes(input, kernel, stride, padding, dilation, ceil_mode);
  at::Tensor out;
  if (sizes.size() == 5) {
    out = new_tensor(input, sizes, input.scalar_type(), input.suggest_memory_format());
  } else {
    out = new_as_on_cpu(
        input,
        [&](const at::Tensor& input) {
          return std::get<0>(
              at::native::max_pool3d_with_indices_cpu(input, kernel, stride, padding, dilation, ceil_mode));
        },
        input);
  }
  at::Tensor indices = new_strided(input, out.sizes(), out.strides(), at::kLong);
  static OpRecord& op = op_record("aten::max_pool3d_with_indices");
  launch_into(
      op, std::array{out, indices}, &at::native::max_pool3d_with_indices_cpu, input, kernel, stride, padding, dilation,
      ceil_mode);
  return {out, indices};
}

at::Tensor max_pool3d_with_indices_backward(
    const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode, const at::Tensor& indices) {
  check_one_device("max_pool3d_with_indices_backward", grad, input, indices);
  const Sizes sizes = pooled_sizes(input, kernel, stride, padding, dilation, ceil_mode);
  at::Tensor grad_input;
  if (sizes.size() == 5 && grad.sizes() == sizes && indices.sizes() == sizes &&
      grad.scalar_type() == input.scalar_type() && indices.scalar_type() == at::kLong) {
    grad_input = new_tensor(input, input.sizes(), input.scalar_type(), input.suggest_memory_format());
  } else {
    grad_input = new_as_on_cpu(
        input,
        [&](const at::Tensor& grad, const at::Tensor& input, const at::Tensor& indices) {
          return at::native::max_pool3d_with_indices_backward_cpu(
              grad, input, kernel, stride, padding, dilation, ceil_mode, indices);
        },
        grad, input, indices);
  }
  static OpRecord& op = op_record("aten::max_pool3d_with_indices_backward");
  launch_into(
      op, grad_input, &at::native::max_pool3d_with_indices_backward_cpu, grad, input, kernel, stride, padding, dilation,
      ceil_mode, indices);
  return grad_input;
}

bool can_be_unpooled(
    const at::Tensor& input, const at::Tensor& indices, at::IntArrayRef output_size, int64_t spatial_dims) {
  return is_image(input, spatial_dims) && input.dim() == spatial_dims + 2 && input.numel() > 0 &&
         indices.sizes() == input.sizes() && indices.scalar_type() == at::kLong &&
         static_cast<int64_t>(output_size.size()) == spatial_dims &&
         std::all_of(output_size.begin(), output_size.end(), [](int64_t size) { return size > 0; });
}

at::Tensor max_unpool2d(const at::Tensor& input, const at::Tensor& indices, at::IntArrayRef output_size) {
  check_one_device("max_unpool2d", input, indices);
  at::Tensor out;
  if (can_be_unpooled(input, indices, output_size, 2)) {
    out = new_tensor(input, with_last_sizes(input, output_size), input.scalar_type(), input.suggest_memory_format());
  } else {
    out = new_as_on_cpu(
        input,
        [&](const at::Tensor& input, const at::Tensor& indices) {
          return at::native::max_unpooling2d_forward_cpu(input, indices, output_size);
        },
        input, indices);
  }
  static OpRecord& op = op_record("aten::max_unpool2d");
  launch_into(op, out, &at::native::max_unpooling2d_forward_cpu, input, indices, output_size);
  return out;
}

at::Tensor max_unpool3d(
    const at::Tensor& input, const at::Tensor& indices, at::IntArrayRef output_size, at::IntArrayRef stride,
    at::IntArrayRef padding) {
  check_one_device("max_unpool3d", input, indices);
  at::Tensor out;
  if (can_be_unpooled(input, indices, output_size, 3) && stride.size() == 3 && padding.size() == 3 &&
      std::all_of(stride.begin(), stride.end(), [](int64_t step) { return step > 0; })) {
    out = new_tensor(input, with_last_sizes(input, output_size), input.scalar_type());
  } else {
    out = new_as_on_cpu(
        input,
        [&](const at::Tensor& input, const at::Tensor& indices) {
          return at::native::max_unpooling3d_forward_cpu(input, indices, output_size, stride, padding);
        },
        input, indices);
  }
  static OpRecord& op = op_record("aten::max_unpool3d");
  launch_into(op, out, &at::native::max_unpooling3d_forward_cpu, input, indices, output_size, stride, padding);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_adaptive_avg_pool2d", &adaptive_avg_pool2d);
  m.impl("_adaptive_avg_pool2d_backward", &adaptive_avg_pool2d_backward);
  m.impl("_adaptive_avg_pool3d", &adaptive_avg_pool3d);
  m.impl("_adaptive_avg_pool3d_backward", &adaptive_avg_pool3d_backward);
  m.impl("max_pool3d_with_indices", &max_pool3d_with_indices);
  m.impl("max_pool3d_with_indices_backward", &max_pool3d_with_indices_backward);
  m.impl("max_unpool2d", &max_unpool2d);
  m.impl("max_unpool3d", &max_unpool3d);
}

}  // namespace

}  // namespace torchneuron
