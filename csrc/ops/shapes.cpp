#include "ops/described.h"

#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_cdist_backward.h>
#include <ATen/ops/_cdist_forward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/constant_pad_nd_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/tril_indices.h>
#include <ATen/ops/triu_indices.h>
#include <ATen/ops/unfold_backward.h>
#include <torch/library.h>

#include <algorithm>

// Operators that rearrange or pad, sequences of numbers, and distances between rows.
namespace torchneuron::described {

namespace {

struct FlipMeta : ShapeMeta {
  void meta(const at::Tensor& self, at::IntArrayRef dims) {
    // Raises for dims out of range or given twice.
    at::dim_list_to_bitset(dims, static_cast<size_t>(self.dim()));
    const auto strides = at::infer_dense_strides(self.sizes(), self.strides());
    set_output_raw_strided(
        0, self.sizes(), self.is_non_overlapping_and_dense() ? self.strides() : at::IntArrayRef(strides),
        self.options());
  }
};

struct Flip {
  static constexpr const char* kName = "aten::flip";
  using Meta = FlipMeta;
  static void run(at::Tensor& out, const at::Tensor& self, at::IntArrayRef dims) {
    run_into(out, [&] { return at::flip(self, dims); });
  }
};

struct RollMeta : ShapeMeta {
  void meta(const at::Tensor& self, at::IntArrayRef shifts, at::IntArrayRef dims) {
    if (shifts.size() != dims.size() || dims.empty()) {
      if (!(dims.empty() && shifts.size() == 1)) {
        ask_cpu([&](const at::Tensor& t) { return at::roll(t, shifts, dims); }, self);
      }
    }
    for (const int64_t dim : dims) {
      at::maybe_wrap_dim(dim, self.dim());
    }
    set_output_raw_strided(0, self.sizes(), {}, self.options().memory_format(self.suggest_memory_format()));
  }
};

struct Roll {
  static constexpr const char* kName = "aten::roll";
  using Meta = RollMeta;
  static void run(at::Tensor& out, const at::Tensor& self, at::IntArrayRef shifts, at::IntArrayRef dims) {
    run_into(out, [&] { return at::roll(self, shifts, dims); });
  }
};

at::Tensor constant_pad_nd(const at::Tensor& self, at::IntArrayRef pad, const at::Scalar& value) {
  static OpRecord& op = op_record("aten::constant_pad_nd");
  at::DimVector sizes(self.sizes());
  const size_t padded = pad.size() / 2;
  bool fits = pad.size() % 2 == 0 && padded <= sizes.size() && padded > 0 &&
              std::any_of(pad.begin(), pad.end(), [](int64_t p) { return p > 0; });
  for (size_t i = 0; fits && i < padded; ++i) {
    int64_t& size = sizes[sizes.size() - 1 - i];
    size += pad[2 * i] + pad[2 * i + 1];
    fits = size > 0;
  }
  if (!fits) {
    // Mere cropping, and CPU's errors.
    return at::native::constant_pad_nd(self, pad, value);
  }
  at::Tensor out = new_tensor(self, sizes, self.scalar_type(), self.suggest_memory_format());
  launch(
      op,
      [](const at::Tensor& out, const at::Tensor& self, at::IntArrayRef pad, const at::Scalar& value) {
        run_into(out, [&] { return at::constant_pad_nd(self, pad, value); });
      },
      out, self, pad, value);
  return out;
}

struct UnfoldBackwardMeta : ShapeMeta {
  void meta(const at::Tensor& grad, at::IntArrayRef sizes, int64_t, int64_t, int64_t) { set(grad, sizes); }
};

struct UnfoldBackward {
  static constexpr const char* kName = "aten::unfold_backward";
  using Meta = UnfoldBackwardMeta;
  static void run(
      at::Tensor& out, const at::Tensor& grad, at::IntArrayRef sizes, int64_t dim, int64_t size, int64_t step) {
    run_into(out, [&] { return at::unfold_backward(grad, sizes, dim, size, step); });
  }
};

at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> output_size) {
  static OpRecord& op = op_record("aten::repeat_interleave.Tensor");
  if (repeats.dim() != 1 || (repeats.scalar_type() != at::kLong && repeats.scalar_type() != at::kInt)) {
    ask_cpu([](const at::Tensor& r) { return at::repeat_interleave(r); }, repeats);
  }
  if (repeats.numel() == 0) {
    return new_tensor(repeats, {0}, repeats.scalar_type());
  }
  // Without the size the host must wait for it.
  const int64_t size = output_size.has_value() ? *output_size : repeats.sum().item<int64_t>();
  at::Tensor out = new_tensor(repeats, {size}, repeats.scalar_type());
  launch(
      op,
      [size](const at::Tensor& out, const at::Tensor& repeats) {
        run_into(out, [&] { return at::repeat_interleave(repeats, std::optional<int64_t>(size)); });
      },
      out, repeats);
  return out;
}

at::Tensor& arange_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  static OpRecord& op = op_record("aten::arange.start_out");
  int64_t size = 0;
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "arange_cpu", [&] {
    size = at::native::compute_arange_size<scalar_t>(start, end, step);
  });
  if (out.numel() != size) {
    if (out.numel() > 0) {
      TORCH_WARN(
          "The number of elements in the out tensor of shape ", out.sizes(), " is ", out.numel(),
          " which does not match the computed number of elements ", size,
          ". Note that this may occur as a result of rounding error. The out tensor will be resized to a tensor of "
          "shape (",
          size, ",).");
    }
    out.resize_({size});
  }
  launch(
      op,
      [](at::Tensor out, const at::Scalar& start, const at::Scalar& end, const at::Scalar& step) {
        at::arange_out(out, start, end, step);
      },
      out, start, end, step);
  return out;
}

at::Tensor& linspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, at::Tensor& out) {
  static OpRecord& op = op_record("aten::linspace.out");
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) {
    out.resize_({steps});
  }
  launch(
      op,
      [steps](at::Tensor out, const at::Scalar& start, const at::Scalar& end) {
        at::linspace_out(out, start, end, steps);
      },
      out, start, end);
  return out;
}

at::Tensor& logspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base, at::Tensor& out) {
  static OpRecord& op = op_record("aten::logspace.out");
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) {
    out.resize_({steps});
  }
  launch(
      op,
      [steps, base](at::Tensor out, const at::Scalar& start, const at::Scalar& end) {
        at::logspace_out(out, start, end, steps, base);
      },
      out, start, end);
  return out;
}

at::Tensor& eye_m_out(int64_t n, int64_t m, at::Tensor& out) {
  static OpRecord& op = op_record("aten::eye.m_out");
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  out.resize_({n, m});
  launch(op, [n, m](at::Tensor out) { at::eye_out(out, n, m); }, out);
  return out;
}

at::Tensor& eye_out(int64_t n, at::Tensor& out) { return eye_m_out(n, n, out); }

using IndexKernel = at::Tensor (*)(int64_t row, int64_t col, int64_t offset, at::TensorOptions options);

at::Tensor triangle_indices(
    OpRecord& op, IndexKernel kernel, int64_t size, int64_t row, int64_t col, int64_t offset,
    std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout, std::optional<at::Device> device,
    std::optional<bool> pin_memory) {
  const auto options = at::TensorOptions()
                           .dtype(dtype.value_or(at::kLong))
                           .layout(layout)
                           .device(with_index(device))
                           .pinned_memory(pin_memory);
  at::Tensor out = at::empty({2, size}, options);
  launch(
      op,
      [=](const at::Tensor& out) {
        run_into(out, [&] { return kernel(row, col, offset, at::TensorOptions().dtype(out.scalar_type())); });
      },
      out);
  return out;
}

at::Tensor tril_indices(
    int64_t row, int64_t col, int64_t offset, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
    std::optional<at::Device> device, std::optional<bool> pin_memory) {
  static OpRecord& op = op_record("aten::tril_indices");
  at::native::check_args(row, col, layout);
  const int64_t size = at::native::get_tril_size(row, col, offset);
  const IndexKernel kernel = [](int64_t r, int64_t c, int64_t o, at::TensorOptions options) {
    return at::tril_indices(r, c, o, options);
  };
  return triangle_indices(op, kernel, size, row, col, offset, dtype, layout, device, pin_memory);
}

at::Tensor triu_indices(
    int64_t row, int64_t col, int64_t offset, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
    std::optional<at::Device> device, std::optional<bool> pin_memory) {
  static OpRecord& op = op_record("aten::triu_indices");
  at::native::check_args(row, col, layout);
  const int64_t size = row * col - at::native::get_tril_size(row, col, offset - 1);
  const IndexKernel kernel = [](int64_t r, int64_t c, int64_t o, at::TensorOptions options) {
    return at::triu_indices(r, c, o, options);
  };
  return triangle_indices(op, kernel, size, row, col, offset, dtype, layout, device, pin_memory);
}

struct CdistMeta : ShapeMeta {
  void meta(const at::Tensor& x1, const at::Tensor& x2, double p, std::optional<int64_t> mode) {
    const bool fits = x1.dim() >= 2 && x2.dim() >= 2 && x1.size(-1) == x2.size(-1) &&
                      x1.scalar_type() == x2.scalar_type() && at::isFloatingType(x1.scalar_type()) && p >= 0;
    if (!fits) {
      ask_cpu([&](const at::Tensor& a, const at::Tensor& b) { return at::_cdist_forward(a, b, p, mode); }, x1, x2);
    }
    check_one_device("_cdist_forward", x1, x2);
    at::DimVector sizes =
        at::infer_size_dimvector(x1.sizes().slice(0, x1.dim() - 2), x2.sizes().slice(0, x2.dim() - 2));
    sizes.push_back(x1.size(-2));
    sizes.push_back(x2.size(-2));
    set(x1, sizes);
  }
};

struct Cdist {
  static constexpr const char* kName = "aten::_cdist_forward";
  using Meta = CdistMeta;
  static void run(at::Tensor& out, const at::Tensor& x1, const at::Tensor& x2, double p, std::optional<int64_t> mode) {
    run_into(out, [&] { return at::_cdist_forward(x1, x2, p, mode); });
  }
};

struct CdistBackwardMeta : ShapeMeta {
  void meta(const at::Tensor&, const at::Tensor& x1, const at::Tensor& x2, double, const at::Tensor&) {
    at::DimVector sizes =
        at::infer_size_dimvector(x1.sizes().slice(0, x1.dim() - 2), x2.sizes().slice(0, x2.dim() - 2));
    sizes.push_back(x1.size(-2));
    sizes.push_back(x1.size(-1));
    set(x1, sizes);
  }
};

struct CdistBackward {
  static constexpr const char* kName = "aten::_cdist_backward";
  using Meta = CdistBackwardMeta;
  static void run(
      at::Tensor& out, const at::Tensor& grad, const at::Tensor& x1, const at::Tensor& x2, double p,
      const at::Tensor& distances) {
    run_into(out, [&] { return at::_cdist_backward(grad, x1, x2, p, distances); });
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using Tensor = const at::Tensor&;
  using Ints = at::IntArrayRef;
  m.impl("flip", &functional<Flip, Tensor, Ints>);
  m.impl("roll", &functional<Roll, Tensor, Ints, Ints>);
  m.impl("constant_pad_nd", &constant_pad_nd);
  m.impl("unfold_backward", &functional<UnfoldBackward, Tensor, Ints, int64_t, int64_t, int64_t>);
  m.impl("repeat_interleave.Tensor", &repeat_interleave);
  m.impl("arange.start_out", &arange_out);
  m.impl("linspace.out", &linspace_out);
  m.impl("logspace.out", &logspace_out);
  m.impl("eye.out", &eye_out);
  m.impl("eye.m_out", &eye_m_out);
  m.impl("tril_indices", &tril_indices);
  m.impl("triu_indices", &triu_indices);
  m.impl("_cdist_forward", &functional<Cdist, Tensor, Tensor, double, std::optional<int64_t>>);
  m.impl("_cdist_backward", &functional<CdistBackward, Tensor, Tensor, Tensor, double, Tensor>);
}

}  // namespace torchneuron::described
