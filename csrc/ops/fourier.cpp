#include "ops/unstructured.h"

#include <ATen/Context.h>
#include <ATen/ops/_fft_c2c_native.h>
#include <ATen/ops/_fft_c2r_native.h>
#include <ATen/ops/_fft_r2c_native.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>

namespace torchneuron {

namespace {

// Fourier transforms. MKL's lay out their result so that each transform lies in one piece: the dimensions that are not
// transformed come first, both kinds in the order of the input's strides.

// The dimensions of `strides` that `dims` are, or are not, from the largest stride on. The last `fixed` stay last.
at::DimVector by_stride(at::IntArrayRef strides, at::IntArrayRef dims, size_t fixed) {
  at::DimVector sorted(dims);
  std::sort(sorted.begin(), sorted.end() - static_cast<ptrdiff_t>(fixed), [&](int64_t a, int64_t b) {
    return strides[a] > strides[b];
  });
  return sorted;
}

at::DimVector others(size_t dim, at::IntArrayRef dims) {
  at::DimVector rest;
  for (int64_t d = 0; d < static_cast<int64_t>(dim); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) {
      rest.push_back(d);
    }
  }
  return rest;
}

// Of a result of `sizes`, transformed along `dims`, the last `fixed` of which keep their place.
at::DimVector result_strides(at::IntArrayRef sizes, at::IntArrayRef strides, at::IntArrayRef dims, size_t fixed) {
  at::DimVector order = by_stride(strides, others(sizes.size(), dims), 0);
  const at::DimVector transformed = by_stride(strides, dims, fixed);
  order.append(transformed.begin(), transformed.end());
  at::DimVector result(sizes.size());
  int64_t stride = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    result[*d] = stride;
    stride *= sizes[*d];
  }
  return result;
}

bool is_regular(const at::Tensor& self, at::IntArrayRef dims, bool complex) {
  const at::ScalarType real = c10::toRealValueType(self.scalar_type());
  return (real == at::kFloat || real == at::kDouble) && self.is_complex() == complex && self.numel() > 0 &&
         !dims.empty() && at::hasMKL() && std::all_of(dims.begin(), dims.end(), [&](int64_t d) {
           return d >= 0 && d < self.dim() && std::count(dims.begin(), dims.end(), d) == 1;
         });
}

at::Tensor fft_c2c(const at::Tensor& self, at::IntArrayRef dims, int64_t normalization, bool forward) {
  at::Tensor out;
  if (is_regular(self, dims, /*complex=*/true)) {
    out = new_strided(self, self.sizes(), result_strides(self.sizes(), self.strides(), dims, 0), self.scalar_type());
  } else {
    out = new_as_on_cpu(
        self, [&](const at::Tensor& self) { return at::native::_fft_c2c_mkl(self, dims, normalization, forward); },
        self);
  }
  static OpRecord& op = op_record("aten::_fft_c2c");
  launch_into(op, out, &at::native::_fft_c2c_mkl, self, dims, normalization, forward);
  return out;
}

at::Tensor fft_r2c(const at::Tensor& self, at::IntArrayRef dims, int64_t normalization, bool onesided) {
  at::Tensor out;
  if (is_regular(self, dims, /*complex=*/false)) {
    at::DimVector sizes(self.sizes());
    if (onesided) {
      sizes[dims.back()] = sizes[dims.back()] / 2 + 1;
    }
    out = new_strided(
        self, sizes, result_strides(sizes, self.strides(), dims, 1), c10::toComplexType(self.scalar_type()));
  } else {
    out = new_as_on_cpu(
        self, [&](const at::Tensor& self) { return at::native::_fft_r2c_mkl(self, dims, normalization, onesided); },
        self);
  }
  static OpRecord& op = op_record("aten::_fft_r2c");
  launch_into(op, out, &at::native::_fft_r2c_mkl, self, dims, normalization, onesided);
  return out;
}

at::Tensor fft_c2r(const at::Tensor& self, at::IntArrayRef dims, int64_t normalization, int64_t last_size) {
  at::Tensor out;
  if (is_regular(self, dims, /*complex=*/true) && last_size > 0 && last_size / 2 + 1 == self.size(dims.back())) {
    // All but the last dimension are transformed first, as complex numbers.
    at::DimVector strides(self.strides());
    if (dims.size() > 1) {
      strides = result_strides(self.sizes(), strides, dims.slice(0, dims.size() - 1), 0);
    }
    at::DimVector sizes(self.sizes());
    sizes[dims.back()] = last_size;
    out = new_strided(
        self, sizes, result_strides(sizes, strides, dims.slice(dims.size() - 1), 1),
        c10::toRealValueType(self.scalar_type()));
  } else {
    out = new_as_on_cpu(
        self, [&](const at::Tensor& self) { return at::native::_fft_c2r_mkl(self, dims, normalization, last_size); },
        self);
  }
  static OpRecord& op = op_record("aten::_fft_c2r");
  launch_into(op, out, &at::native::_fft_c2r_mkl, self, dims, normalization, last_size);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fft_c2c", &fft_c2c);
  m.impl("_fft_r2c", &fft_r2c);
  m.impl("_fft_c2r", &fft_c2r);
}

}  // namespace

}  // namespace torchneuron
