#include "ops/unstructured.h"

#include <ATen/Context.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/_convolution_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/convolution_backward_native.h>
#include <torch/library.h>

#include <algorithm>

namespace torchneuron {

namespace {

// aten::convolution and aten::convolution_backward themselves, not the `_overrideable` operators that PyTorch's
// composite would end in on this device: one dispatch less, while PyTorch's formulas for both (and through them the
// double backward and forward-mode derivatives) stay.

using Sizes = c10::SmallVector<int64_t, 5>;

// The arguments of one convolution, with a value for each spatial dimension.
struct Window {
  Sizes stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;
  size_t spatial_dims;
  bool lists_fit = true;

  Window(
      const at::Tensor& input, at::IntArrayRef stride_, at::IntArrayRef padding_, at::IntArrayRef dilation_,
      bool transposed_, at::IntArrayRef output_padding_, int64_t groups_)
      : transposed(transposed_), groups(groups_), spatial_dims(std::max<int64_t>(input.dim() - 2, 0)) {
    expand(stride, stride_);
    expand(padding, padding_);
    expand(dilation, dilation_);
    expand(output_padding, output_padding_);
  }

 private:
  void expand(Sizes& to, at::IntArrayRef from) {
    if (from.size() == 1) {
      to.assign(spatial_dims, from[0]);
    } else if (from.size() == spatial_dims) {
      to.assign(from.begin(), from.end());
    } else {
      lists_fit = false;
    }
  }
};

bool all_at_least(at::IntArrayRef values, int64_t least) {
  return std::all_of(values.begin(), values.end(), [least](int64_t v) { return v >= least; });
}

// What CPU accepts for certain; for all else it is asked.
bool is_regular(
    const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const Window& w,
    at::IntArrayRef output) {
  const int64_t out_channels = w.transposed ? weight.size(1) * w.groups : weight.size(0);
  return input.numel() > 0 && weight.numel() > 0 && all_at_least(output, 1) && weight.size(0) % w.groups == 0 &&
         input.size(1) == (w.transposed ? weight.size(0) : weight.size(1) * w.groups) &&
         input.scalar_type() == weight.scalar_type() &&
         (!bias.defined() ||
          (bias.dim() == 1 && bias.size(0) == out_channels && bias.scalar_type() == input.scalar_type()));
}

// The sizes of the output; empty where the arguments describe none.
Sizes output_sizes(const at::Tensor& input, const at::Tensor& weight, const Window& w) {
  if (w.spatial_dims < 1 || w.spatial_dims > 3 || weight.dim() != input.dim() || !w.lists_fit || w.groups < 1 ||
      !all_at_least(w.stride, 1) || !all_at_least(w.dilation, 1) || !all_at_least(w.padding, 0) ||
      !all_at_least(w.output_padding, 0)) {
    return {};
  }
  Sizes sizes{input.size(0), w.transposed ? weight.size(1) * w.groups : weight.size(0)};
  for (size_t d = 0; d < w.spatial_dims; ++d) {
    const int64_t in = input.size(d + 2);
    const int64_t reach = w.dilation[d] * (weight.size(d + 2) - 1) + 1;
    if (w.transposed) {
      if (w.output_padding[d] >= std::max(w.stride[d], w.dilation[d])) {
        return {};
      }
      sizes.push_back((in - 1) * w.stride[d] - 2 * w.padding[d] + reach + w.output_padding[d]);
    } else {
      const int64_t room = in + 2 * w.padding[d] - reach;
      sizes.push_back(room < 0 ? 0 : room / w.stride[d] + 1);
    }
  }
  return sizes;
}

// As CPU sees it: one-dimensional convolutions are two-dimensional ones of height 1.
at::Tensor with_two_spatial_dims(const at::Tensor& t, bool contiguous) {
  if (t.dim() != 3) {
    return geometry_only(t.sizes(), t.strides(), t.dtype());
  }
  const int64_t row = contiguous ? t.size(2) : t.size(2) * t.stride(2);
  const Sizes sizes{t.size(0), t.size(1), 1, t.size(2)};
  const Sizes strides = contiguous ? Sizes{t.size(1) * t.size(2), t.size(2), t.size(2), 1}
                                   : Sizes{t.stride(0), t.stride(1), row, t.stride(2)};
  return geometry_only(sizes, strides, t.dtype());
}

// The memory format of everything that CPU's kernel for this convolution returns.
at::MemoryFormat format_of_results(
    const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const Window& w) {
  if (input.dim() > 3 && input.suggest_memory_format() == at::MemoryFormat::Contiguous &&
      weight.suggest_memory_format() == at::MemoryFormat::Contiguous) {
    return at::MemoryFormat::Contiguous;
  }
  if (input.dim() == 3 && weight.is_contiguous()) {
    return at::MemoryFormat::Contiguous;
  }
  const at::Tensor input_2d = with_two_spatial_dims(input, /*contiguous=*/true);
  const at::Tensor weight_2d = with_two_spatial_dims(weight, /*contiguous=*/false);
  const auto list = [&](const Sizes& values, int64_t first) {
    std::vector<c10::SymInt> symbolic;
    if (values.size() == 1) {
      symbolic.emplace_back(first);
    }
    symbolic.insert(symbolic.end(), values.begin(), values.end());
    return symbolic;
  };
  const at::Tensor bias_2d = bias.defined() ? geometry_only(bias.sizes(), bias.strides(), bias.dtype()) : at::Tensor();
  const auto backend = at::native::select_conv_backend(
      input_2d, weight_2d, bias_2d, list(w.stride, 1), list(w.padding, 0), list(w.dilation, 1), w.transposed,
      list(w.output_padding, 0), w.groups, std::nullopt);
  return at::native::_determine_backend_memory_format(input_2d, weight_2d, backend);
}

at::Tensor new_result(const at::Tensor& like, at::IntArrayRef sizes, at::MemoryFormat format) {
  if (sizes.size() == 3 && format == at::MemoryFormat::ChannelsLast) {
    return new_strided(like, sizes, {sizes[1] * sizes[2], 1, sizes[1]}, like.scalar_type());
  }
  return new_tensor(like, sizes, like.scalar_type(), format);
}

at::Tensor convolve_on_cpu(
    const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    int64_t groups) {
  const at::Context& context = at::globalContext();
  return at::native::_convolution(
      input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, context.benchmarkCuDNN(),
      context.deterministicCuDNN(), context.userEnabledCuDNN(), /*allow_tf32=*/false);
}

at::Tensor convolve(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias_opt,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups) {
  const at::Tensor& bias = value_or_undefined(bias_opt);
  check_one_device("convolution", input, weight, bias);
  const Window window(input, stride, padding, dilation, transposed, output_padding, groups);
  const Sizes sizes = output_sizes(input, weight, window);
  at::Tensor out;
  if (sizes.empty() || !is_regular(input, weight, bias, window, sizes)) {
    const at::Tensor like_cpu = ask_cpu(
        [&](const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
          return at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
        },
        input, weight, bias);
    out = new_strided(input, like_cpu.sizes(), like_cpu.strides(), like_cpu.scalar_type());
  } else {
    out = new_result(input, sizes, format_of_results(input, weight, bias, window));
  }
  if (out.numel() == 0) {
    return out;
  }
  static OpRecord& op = op_record("aten::convolution");
  launch_into(
      op, out, &convolve_on_cpu, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  return out;
}

at::Tensor convolve_with_flags(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    bool /*benchmark*/, bool /*deterministic*/, bool /*cudnn_enabled*/, bool /*allow_tf32*/) {
  return convolve(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolve_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
    at::OptionalIntArrayRef bias_sizes, at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
    bool transposed, at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
  check_one_device("convolution_backward", grad_output, input, weight);
  const Window window(input, stride, padding, dilation, transposed, output_padding, groups);
  const Sizes sizes = output_sizes(input, weight, window);
  std::array<at::Tensor, 3> grads;
  if (sizes.empty() || !is_regular(input, weight, {}, window, sizes) || grad_output.sizes() != sizes ||
      grad_output.scalar_type() != input.scalar_type()) {
    const auto like_cpu = ask_cpu(
        [&](const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight) {
          return at::convolution_backward(
              grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
              wanted);
        },
        grad_output, input, weight);
    const std::array<at::Tensor, 3> made{std::get<0>(like_cpu), std::get<1>(like_cpu), std::get<2>(like_cpu)};
    for (size_t i = 0; i < made.size(); ++i) {
      if (made[i].defined()) {
        grads[i] = new_strided(input, made[i].sizes(), made[i].strides(), made[i].scalar_type());
      }
    }
  } else {
    const at::MemoryFormat format = format_of_results(input, weight, {}, window);
    if (wanted[0]) {
      grads[0] = new_result(input, input.sizes(), format);
    }
    if (wanted[1]) {
      grads[1] = new_result(input, weight.sizes(), format);
    }
    if (wanted[2]) {
      grads[2] = new_tensor(input, {sizes[1]}, input.scalar_type());
    }
  }
  static OpRecord& op = op_record("aten::convolution_backward");
  launch_into(
      op, grads, &at::native::convolution_backward, grad_output, input, weight, bias_sizes, stride, padding, dilation,
      transposed, output_padding, groups, wanted);
  return {grads[0], grads[1], grads[2]};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolve_backward_without_bias_sizes(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  return convolve_backward(
      grad_output, input, weight, std::nullopt, stride, padding, dilation, transposed, output_padding, groups, wanted);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution", &convolve);
  m.impl("_convolution", &convolve_with_flags);
  m.impl("convolution_overrideable", &convolve);
  m.impl("convolution_backward", &convolve_backward);
  m.impl("convolution_backward_overrideable", &convolve_backward_without_bias_sizes);
}

}  // namespace

}  // namespace torchneuron
