#include "ops/unstructured.h"

#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/channel_shuffle_native.h>
#include <ATen/ops/col2im_native.h>
#include <ATen/ops/grid_sampler_2d_backward_native.h>
#include <ATen/ops/grid_sampler_2d_native.h>
#include <ATen/ops/grid_sampler_3d_backward_native.h>
#include <ATen/ops/grid_sampler_3d_native.h>
#include <ATen/ops/im2col_native.h>
#include <ATen/ops/native_channel_shuffle_native.h>
#include <ATen/ops/pixel_shuffle_native.h>
#include <ATen/ops/pixel_unshuffle_native.h>
#include <ATen/ops/reflection_pad2d_backward_native.h>
#include <ATen/ops/reflection_pad2d_native.h>
#include <ATen/ops/reflection_pad3d_backward_cpu_dispatch.h>
#include <ATen/ops/reflection_pad3d_cpu_dispatch.h>
#include <ATen/ops/replication_pad2d_backward_native.h>
#include <ATen/ops/replication_pad2d_cpu_dispatch.h>
#include <ATen/ops/replication_pad3d_backward_native.h>
#include <ATen/ops/replication_pad3d_cpu_dispatch.h>
#include <torch/library.h>

namespace torchneuron {

namespace {

// Operators that move the elements of images. The geometry of some follows from rules; for the rare ones CPU tells it.

using Two = std::tuple<at::Tensor, at::Tensor>;
using Sizes = c10::SmallVector<int64_t, 5>;

at::Tensor new_of_format(const at::Tensor& input, at::IntArrayRef sizes) {
  return new_tensor(input, sizes, input.scalar_type(), input.suggest_memory_format());
}

// The sizes of `input` with the pairs of `padding` added, from the last dimension on; empty where CPU may refuse them.
Sizes padded_sizes(const at::Tensor& input, at::IntArrayRef padding, size_t spatial_dims, bool reflects) {
  const size_t dims = static_cast<size_t>(input.dim());
  if (padding.size() != 2 * spatial_dims || (dims != spatial_dims + 1 && dims != spatial_dims + 2) ||
      input.numel() == 0) {
    return {};
  }
  Sizes sizes(input.sizes().begin(), input.sizes().end());
  for (size_t i = 0; i < spatial_dims; ++i) {
    int64_t& size = sizes[dims - 1 - i];
    if (reflects && (padding[2 * i] >= size || padding[2 * i + 1] >= size)) {
      return {};
    }
    size += padding[2 * i] + padding[2 * i + 1];
    if (size < 1) {
      return {};
    }
  }
  return sizes;
}

template <typename Kernel>
at::Tensor pad(
    OpRecord& op, Kernel kernel, const at::Tensor& input, at::IntArrayRef padding, size_t spatial_dims, bool reflects) {
  const Sizes sizes = padded_sizes(input, padding, spatial_dims, reflects);
  at::Tensor out = !sizes.empty()
                       ? new_of_format(input, sizes)
                       : new_as_on_cpu(input, [&](const at::Tensor& input) { return kernel(input, padding); }, input);
  launch_into(op, out, kernel, input, padding);
  return out;
}

template <typename Kernel>
at::Tensor pad_backward(
    OpRecord& op, Kernel kernel, const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef padding,
    size_t spatial_dims, bool reflects) {
  check_one_device(op.name.c_str(), grad, input);
  const Sizes sizes = padded_sizes(input, padding, spatial_dims, reflects);
  at::Tensor grad_input;
  if (!sizes.empty() && grad.sizes() == sizes && grad.scalar_type() == input.scalar_type()) {
    grad_input = new_of_format(input, input.sizes());
  } else {
    grad_input = new_as_on_cpu(
        input, [&](const at::Tensor& grad, const at::Tensor& input) { return kernel(grad, input, padding); }, grad,
        input);
  }
  launch_into(op, grad_input, kernel, grad, input, padding);
  return grad_input;
}

at::Tensor reflection_pad2d(const at::Tensor& input, at::IntArrayRef padding) {
  static OpRecord& op = op_record("aten::reflection_pad2d");
  return pad(op, &at::native::reflection_pad2d_cpu, input, padding, 2, /*reflects=*/true);
}

at::Tensor reflection_pad2d_backward(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef padding) {
  static OpRecord& op = op_record("aten::reflection_pad2d_backward");
  return pad_backward(op, &at::native::reflection_pad2d_backward_cpu, grad, input, padding, 2, /*reflects=*/true);
}

at::Tensor reflection_pad3d(const at::Tensor& input, at::IntArrayRef padding) {
  static OpRecord& op = op_record("aten::reflection_pad3d");
  return pad(op, &at::cpu::reflection_pad3d, input, padding, 3, /*reflects=*/true);
}

at::Tensor reflection_pad3d_backward(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef padding) {
  static OpRecord& op = op_record("aten::reflection_pad3d_backward");
  return pad_backward(op, &at::cpu::reflection_pad3d_backward, grad, input, padding, 3, /*reflects=*/true);
}

at::Tensor replication_pad2d(const at::Tensor& input, at::IntArrayRef padding) {
  static OpRecord& op = op_record("aten::replication_pad2d");
  return pad(op, &at::cpu::replication_pad2d, input, padding, 2, /*reflects=*/false);
}

at::Tensor replication_pad2d_backward(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef padding) {
  static OpRecord& op = op_record("aten::replication_pad2d_backward");
  return pad_backward(op, &at::native::replication_pad2d_backward_cpu, grad, input, padding, 2, /*reflects=*/false);
}

at::Tensor replication_pad3d(const at::Tensor& input, at::IntArrayRef padding) {
  static OpRecord& op = op_record("aten::replication_pad3d");
  return pad(op, &at::cpu::replication_pad3d, input, padding, 3, /*reflects=*/false);
}

at::Tensor replication_pad3d_backward(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef padding) {
  static OpRecord& op = op_record("aten::replication_pad3d_backward");
  return pad_backward(op, &at::native::replication_pad3d_backward_cpu, grad, input, padding, 3, /*reflects=*/false);
}

// How many windows fit into an image; 0 where CPU may refuse the arguments.
int64_t count_windows(
    at::IntArrayRef image, at::IntArrayRef kernel, at::IntArrayRef dilation, at::IntArrayRef padding,
    at::IntArrayRef stride) {
  const auto fits = [](at::IntArrayRef list, int64_t least) {
    return list.size() == 2 && list[0] >= least && list[1] >= least;
  };
  if (!fits(image, 1) || !fits(kernel, 1) || !fits(dilation, 1) || !fits(padding, 0) || !fits(stride, 1)) {
    return 0;
  }
  int64_t windows = 1;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t room = image[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1;
    windows *= room < 0 ? 0 : room / stride[d] + 1;
  }
  return windows;
}

at::Tensor im2col(
    const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef dilation, at::IntArrayRef padding,
    at::IntArrayRef stride) {
  at::Tensor out;
  const int64_t dims = input.dim();
  const int64_t windows =
      dims == 3 || dims == 4 ? count_windows(input.sizes().slice(dims - 2), kernel, dilation, padding, stride) : 0;
  if (windows > 0 && input.numel() > 0) {
    const int64_t rows = input.size(dims - 3) * kernel[0] * kernel[1];
    out =
        new_tensor(input, dims == 3 ? Sizes{rows, windows} : Sizes{input.size(0), rows, windows}, input.scalar_type());
  } else {
    out = new_as_on_cpu(
        input,
        [&](const at::Tensor& input) { return at::native::im2col_cpu(input, kernel, dilation, padding, stride); },
        input);
  }
  static OpRecord& op = op_record("aten::im2col");
  launch_into(op, out, &at::native::im2col_cpu, input, kernel, dilation, padding, stride);
  return out;
}

at::Tensor col2im(
    const at::Tensor& input, at::IntArrayRef output_size, at::IntArrayRef kernel, at::IntArrayRef dilation,
    at::IntArrayRef padding, at::IntArrayRef stride) {
  at::Tensor out;
  const int64_t dims = input.dim();
  const int64_t windows = dims == 2 || dims == 3 ? count_windows(output_size, kernel, dilation, padding, stride) : 0;
  if (windows > 0 && input.numel() > 0 && input.size(-1) == windows && input.size(-2) % (kernel[0] * kernel[1]) == 0) {
    const int64_t channels = input.size(-2) / (kernel[0] * kernel[1]);
    out = new_tensor(
        input,
        dims == 2 ? Sizes{channels, output_size[0], output_size[1]}
                  : Sizes{input.size(0), channels, output_size[0], output_size[1]},
        input.scalar_type());
  } else {
    out = new_as_on_cpu(
        input,
        [&](const at::Tensor& input) {
          return at::native::col2im_cpu(input, output_size, kernel, dilation, padding, stride);
        },
        input);
  }
  static OpRecord& op = op_record("aten::col2im");
  launch_into(op, out, &at::native::col2im_cpu, input, output_size, kernel, dilation, padding, stride);
  return out;
}

at::Tensor pixel_shuffle(const at::Tensor& input, int64_t factor) {
  at::Tensor out;
  if (input.dim() >= 3 && factor > 0 && factor < 1024 && input.size(-3) % (factor * factor) == 0 && input.numel() > 0) {
    Sizes sizes(input.sizes().begin(), input.sizes().end());
    const size_t channels = sizes.size() - 3;
    sizes[channels] /= factor * factor;
    sizes[channels + 1] *= factor;
    sizes[channels + 2] *= factor;
    out = new_of_format(input, sizes);
  } else {
    out = new_as_on_cpu(
        input, [&](const at::Tensor& input) { return at::native::pixel_shuffle_cpu(input, factor); }, input);
  }
  static OpRecord& op = op_record("aten::pixel_shuffle");
  launch_into(op, out, &at::native::pixel_shuffle_cpu, input, factor);
  return out;
}

at::Tensor pixel_unshuffle(const at::Tensor& input, int64_t factor) {
  at::Tensor out;
  if (input.dim() >= 3 && factor > 0 && input.size(-1) % factor == 0 && input.size(-2) % factor == 0 &&
      input.numel() > 0) {
    Sizes sizes(input.sizes().begin(), input.sizes().end());
    const size_t channels = sizes.size() - 3;
    sizes[channels] *= factor * factor;
    sizes[channels + 1] /= factor;
    sizes[channels + 2] /= factor;
    out = new_of_format(input, sizes);
  } else {
    out = new_as_on_cpu(
        input, [&](const at::Tensor& input) { return at::native::pixel_unshuffle_cpu(input, factor); }, input);
  }
  static OpRecord& op = op_record("aten::pixel_unshuffle");
  launch_into(op, out, &at::native::pixel_unshuffle_cpu, input, factor);
  return out;
}

at::Tensor channel_shuffle(const at::Tensor& input, int64_t groups) {
  at::Tensor out;
  if (input.dim() > 2 && groups > 0 && input.size(1) % groups == 0 && input.numel() > 0) {
    out = new_of_format(input, input.sizes());
  } else {
    out = new_as_on_cpu(
        input, [&](const at::Tensor& input) { return at::native::channel_shuffle(input, groups); }, input);
  }
  static OpRecord& op = op_record("aten::native_channel_shuffle");
  launch_into(op, out, &at::native::channel_shuffle, input, groups);
  return out;
}

// Where the samples of `grid` (batch, …, coordinates) fall in `input` (batch, channels, …).
template <typename Kernel>
at::Tensor grid_sampler(
    OpRecord& op, Kernel kernel, const at::Tensor& input, const at::Tensor& grid, int64_t interpolation,
    int64_t padding, bool align_corners) {
  check_one_device(op.name.c_str(), input, grid);
  at::Tensor out;
  if (at::isFloatingType(input.scalar_type()) && input.scalar_type() == grid.scalar_type() && input.numel() > 0 &&
      grid.numel() > 0) {
    Sizes sizes{input.size(0), input.size(1)};
    sizes.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
    out = new_tensor(input, sizes, input.scalar_type());
  } else {
    out = new_as_on_cpu(
        input,
        [&](const at::Tensor& input, const at::Tensor& grid) {
          return kernel(input, grid, interpolation, padding, align_corners);
        },
        input, grid);
  }
  launch_into(op, out, kernel, input, grid, interpolation, padding, align_corners);
  return out;
}

template <typename Kernel>
Two grid_sampler_backward(
    OpRecord& op, Kernel kernel, const at::Tensor& grad, const at::Tensor& input, const at::Tensor& grid,
    int64_t interpolation, int64_t padding, bool align_corners, std::array<bool, 2> wanted) {
  check_one_device(op.name.c_str(), grad, input, grid);
  at::Tensor grad_input;
  if (wanted[0]) {
    grad_input = new_tensor(input, input.sizes(), input.scalar_type());
  }
  // CPU's kernels compute the gradient of the grid in any case.
  at::Tensor grad_grid = new_tensor(grid, grid.sizes(), grid.scalar_type());
  launch_into(
      op, std::array{grad_input, grad_grid}, kernel, grad, input, grid, interpolation, padding, align_corners, wanted);
  return {grad_input, grad_grid};
}

// CPU's kernels count offsets within an image in integers as wide as its elements, so those of 16 bits overflow, and
// read and write anywhere. They are not made for images that large: these are sampled in float.
bool offsets_overflow(const at::Tensor& input) {
  return at::isReducedFloatingType(input.scalar_type()) && input.size(2) * input.size(3) > 32767;
}

at::Tensor sample_2d(
    const at::Tensor& input, const at::Tensor& grid, int64_t interpolation, int64_t padding, bool align_corners) {
  if (offsets_overflow(input)) {
    return sample_2d(input.to(at::kFloat), grid.to(at::kFloat), interpolation, padding, align_corners)
        .to(input.scalar_type());
  }
  return at::native::grid_sampler_2d_cpu(input, grid, interpolation, padding, align_corners);
}

Two sample_2d_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& grid, int64_t interpolation, int64_t padding,
    bool align_corners, std::array<bool, 2> wanted) {
  if (offsets_overflow(input)) {
    const auto [grad_input, grad_grid] = sample_2d_backward(
        grad.to(at::kFloat), input.to(at::kFloat), grid.to(at::kFloat), interpolation, padding, align_corners, wanted);
    return {grad_input.defined() ? grad_input.to(input.scalar_type()) : grad_input, grad_grid.to(grid.scalar_type())};
  }
  return at::native::grid_sampler_2d_backward_cpu(grad, input, grid, interpolation, padding, align_corners, wanted);
}

at::Tensor grid_sampler_2d(
    const at::Tensor& input, const at::Tensor& grid, int64_t interpolation, int64_t padding, bool align_corners) {
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_2d(input, grid);
  static OpRecord& op = op_record("aten::grid_sampler_2d");
  return grid_sampler(op, &sample_2d, input, grid, interpolation, padding, align_corners);
}

at::Tensor grid_sampler_3d(
    const at::Tensor& input, const at::Tensor& grid, int64_t interpolation, int64_t padding, bool align_corners) {
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_3d(input, grid, interpolation);
  static OpRecord& op = op_record("aten::grid_sampler_3d");
  return grid_sampler(op, &at::native::grid_sampler_3d_cpu, input, grid, interpolation, padding, align_corners);
}

Two grid_sampler_2d_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& grid, int64_t interpolation, int64_t padding,
    bool align_corners, std::array<bool, 2> wanted) {
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_2d(input, grid);
  static OpRecord& op = op_record("aten::grid_sampler_2d_backward");
  return grid_sampler_backward(
      op, &sample_2d_backward, grad, input, grid, interpolation, padding, align_corners, wanted);
}

Two grid_sampler_3d_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& grid, int64_t interpolation, int64_t padding,
    bool align_corners, std::array<bool, 2> wanted) {
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_3d(input, grid, interpolation);
  static OpRecord& op = op_record("aten::grid_sampler_3d_backward");
  return grid_sampler_backward(
      op, &at::native::grid_sampler_3d_backward_cpu, grad, input, grid, interpolation, padding, align_corners, wanted);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("reflection_pad2d", &reflection_pad2d);
  m.impl("reflection_pad2d_backward", &reflection_pad2d_backward);
  m.impl("reflection_pad3d", &reflection_pad3d);
  m.impl("reflection_pad3d_backward", &reflection_pad3d_backward);
  m.impl("replication_pad2d", &replication_pad2d);
  m.impl("replication_pad3d", &replication_pad3d);
  m.impl("replication_pad2d_backward", &replication_pad2d_backward);
  m.impl("replication_pad3d_backward", &replication_pad3d_backward);
  m.impl("im2col", &im2col);
  m.impl("col2im", &col2im);
  m.impl("pixel_shuffle", &pixel_shuffle);
  m.impl("pixel_unshuffle", &pixel_unshuffle);
  m.impl("channel_shuffle", &channel_shuffle);
  m.impl("native_channel_shuffle", &channel_shuffle);
  m.impl("grid_sampler_2d", &grid_sampler_2d);
  m.impl("grid_sampler_2d_backward", &grid_sampler_2d_backward);
  m.impl("grid_sampler_3d", &grid_sampler_3d);
  m.impl("grid_sampler_3d_backward", &grid_sampler_3d_backward);
}

}  // namespace

}  // namespace torchneuron
