#include "ops/unstructured.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

// The loops over a row are written for the compiler's vectoriser.
#pragma GCC optimize("O3", "no-math-errno", "no-trapping-math")

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TORCHNEURON_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TORCHNEURON_CLONES
#endif

namespace torchneuron {

namespace {

// CPU has no kernel of its own for aten::_fused_rms_norm, only a composite of six operators.

constexpr int64_t kLanes = 16;

template <typename T>
struct Row {
  // Sum of products of `n` elements, in kLanes partial sums.
  C10_ALWAYS_INLINE static T dot(const T* a, const T* b, int64_t n) {
    T partial[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) {
        partial[j] += a[i + j] * b[i + j];
      }
    }
    T sum = 0;
    for (int64_t j = 0; j < kLanes; ++j) {
      sum += partial[j];
    }
    for (; i < n; ++i) {
      sum += a[i] * b[i];
    }
    return sum;
  }

  C10_ALWAYS_INLINE static void normalize(const T* x, const T* weight, int64_t n, T eps, T* y, T* rstd) {
    const T r = T(1) / std::sqrt(dot(x, x, n) / T(n) + eps);
    *rstd = r;
    if (weight == nullptr) {
      for (int64_t i = 0; i < n; ++i) {
        y[i] = x[i] * r;
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        y[i] = x[i] * r * weight[i];
      }
    }
  }

  // `weighted` is room for n elements. `grad_input` and `grad_weight` (to which it adds) may be null.
  C10_ALWAYS_INLINE static void differentiate(
      const T* grad, const T* x, const T* weight, T r, int64_t n, T* weighted, T* grad_input, T* grad_weight) {
    if (grad_weight != nullptr) {
      for (int64_t i = 0; i < n; ++i) {
        grad_weight[i] += grad[i] * (x[i] * r);
      }
    }
    if (grad_input == nullptr) {
      return;
    }
    if (weight != nullptr) {
      for (int64_t i = 0; i < n; ++i) {
        weighted[i] = grad[i] * weight[i];
      }
      grad = weighted;
    }
    const T shared = dot(grad, x, n) * r * r / T(n);
    for (int64_t i = 0; i < n; ++i) {
      grad_input[i] = (grad[i] - x[i] * shared) * r;
    }
  }
};

TORCHNEURON_CLONES void normalize_rows(
    const float* x, const float* weight, int64_t rows, int64_t n, float eps, float* y, float* rstd) {
  for (int64_t row = 0; row < rows; ++row) {
    Row<float>::normalize(x + row * n, weight, n, eps, y + row * n, rstd + row);
  }
}

TORCHNEURON_CLONES void normalize_rows(
    const double* x, const double* weight, int64_t rows, int64_t n, double eps, double* y, double* rstd) {
  for (int64_t row = 0; row < rows; ++row) {
    Row<double>::normalize(x + row * n, weight, n, eps, y + row * n, rstd + row);
  }
}

TORCHNEURON_CLONES void differentiate_rows(
    const float* grad, const float* x, const float* weight, const float* rstd, int64_t rows, int64_t n, float* weighted,
    float* grad_input, float* grad_weight) {
  for (int64_t row = 0; row < rows; ++row) {
    Row<float>::differentiate(
        grad + row * n, x + row * n, weight, rstd[row], n, weighted,
        grad_input == nullptr ? nullptr : grad_input + row * n, grad_weight);
  }
}

TORCHNEURON_CLONES void differentiate_rows(
    const double* grad, const double* x, const double* weight, const double* rstd, int64_t rows, int64_t n,
    double* weighted, double* grad_input, double* grad_weight) {
  for (int64_t row = 0; row < rows; ++row) {
    Row<double>::differentiate(
        grad + row * n, x + row * n, weight, rstd[row], n, weighted,
        grad_input == nullptr ? nullptr : grad_input + row * n, grad_weight);
  }
}

int64_t rows_per_task(int64_t n) { return std::max<int64_t>(1, at::internal::GRAIN_SIZE / std::max<int64_t>(1, n)); }

template <typename T>
void normalize(
    const at::Tensor& x, const at::Tensor& weight, int64_t n, double eps, const at::Tensor& y, const at::Tensor& rstd) {
  const T* w = weight.defined() ? weight.const_data_ptr<T>() : nullptr;
  const T* from = x.const_data_ptr<T>();
  T* to = y.mutable_data_ptr<T>();
  T* scale = rstd.mutable_data_ptr<T>();
  at::parallel_for(0, rstd.numel(), rows_per_task(n), [&](int64_t begin, int64_t end) {
    normalize_rows(from + begin * n, w, end - begin, n, static_cast<T>(eps), to + begin * n, scale + begin);
  });
}

template <typename T>
void differentiate(
    const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, int64_t n,
    const at::Tensor& grad_input, at::Tensor& grad_weight) {
  // A row of room and a row of sums for each thread.
  const at::Tensor room = at::empty({at::get_num_threads(), n}, x.options());
  const at::Tensor sums = grad_weight.defined() ? at::zeros({at::get_num_threads(), n}, x.options()) : at::Tensor();
  const T* w = weight.defined() ? weight.const_data_ptr<T>() : nullptr;
  const T* dy = grad.const_data_ptr<T>();
  const T* from = x.const_data_ptr<T>();
  const T* scale = rstd.const_data_ptr<T>();
  T* dx = grad_input.defined() ? grad_input.mutable_data_ptr<T>() : nullptr;
  T* weighted = room.mutable_data_ptr<T>();
  T* dw = sums.defined() ? sums.mutable_data_ptr<T>() : nullptr;
  at::parallel_for(0, rstd.numel(), rows_per_task(n), [&](int64_t begin, int64_t end) {
    const int64_t own = at::get_thread_num() * n;
    differentiate_rows(
        dy + begin * n, from + begin * n, w, scale + begin, end - begin, n, weighted + own,
        dx == nullptr ? nullptr : dx + begin * n, dw == nullptr ? nullptr : dw + own);
  });
  if (grad_weight.defined()) {
    grad_weight.copy_(sums.sum(0).view(grad_weight.sizes()));
  }
}

int64_t row_length(const at::Tensor& input, const at::Tensor& rstd, const at::Tensor& weight) {
  if (weight.defined()) {
    return weight.numel();
  }
  return rstd.numel() == 0 ? 0 : input.numel() / rstd.numel();
}

at::Tensor dense(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() ? tensor.to(dtype).contiguous() : tensor;
}

// Where a kernel may write a result of this dtype: into `wanted` itself, if that is how it lies there.
at::Tensor destination(const at::Tensor& wanted, at::ScalarType dtype) {
  return !wanted.defined() || (wanted.scalar_type() == dtype && wanted.is_contiguous())
             ? wanted
             : at::empty(wanted.sizes(), wanted.options().dtype(dtype));
}

void deliver(const at::Tensor& wanted, const at::Tensor& made) {
  if (!made.is_same(wanted)) {
    wanted.copy_(made);
  }
}

void check_dtype(const at::Tensor& input) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::isFloatingType(input.scalar_type()), "\"rms_norm\" not implemented for '", toString(input.scalar_type()),
      "'");
}

std::tuple<at::Tensor, at::Tensor> fused_rms_norm(
    const at::Tensor& input, at::IntArrayRef normalized_shape, const std::optional<at::Tensor>& weight_opt,
    std::optional<double> eps_opt) {
  const at::Tensor& weight = value_or_undefined(weight_opt);
  check_one_device("_fused_rms_norm", input, weight);
  at::native::_check_rms_norm_inputs_symint(input, c10::fromIntArrayRefSlow(normalized_shape), weight);
  check_dtype(input);
  const at::ScalarType dtype = at::toOpMathType(input.scalar_type());
  const double eps = eps_opt.value_or(
      dtype == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon());
  c10::SmallVector<int64_t, 6> statistics(input.sizes().begin(), input.sizes().end());
  std::fill(statistics.end() - normalized_shape.size(), statistics.end(), 1);
  at::Tensor out = new_tensor(input, input.sizes(), input.scalar_type(), input.suggest_memory_format());
  at::Tensor rstd = new_tensor(input, statistics, dtype);
  static OpRecord& op = op_record("aten::_fused_rms_norm");
  launch(
      op,
      [](const at::Tensor& input, const at::Tensor& weight, double eps, const at::Tensor& out, const at::Tensor& rstd) {
        const at::ScalarType dtype = rstd.scalar_type();
        const int64_t n = row_length(input, rstd, weight);
        const at::Tensor y = destination(out, dtype);
        (dtype == at::kDouble ? &normalize<double> : &normalize<float>)(dense(input, dtype), dense(weight, dtype), n,
                                                                        eps, y, rstd);
        deliver(out, y);
      },
      input, weight, eps, out, rstd);
  return {out, rstd};
}

std::tuple<at::Tensor, at::Tensor> fused_rms_norm_backward(
    const at::Tensor& grad_out, const at::Tensor& input, at::IntArrayRef normalized_shape, const at::Tensor& rstd,
    const std::optional<at::Tensor>& weight_opt, std::array<bool, 2> wanted) {
  const at::Tensor& weight = value_or_undefined(weight_opt);
  check_one_device("_fused_rms_norm_backward", grad_out, input, rstd, weight);
  at::native::_check_rms_norm_inputs_symint(input, c10::fromIntArrayRefSlow(normalized_shape), weight);
  check_dtype(input);
  TORCH_CHECK(
      grad_out.sizes() == input.sizes(), "grad_out must have the input's sizes ", input.sizes(), ", but got ",
      grad_out.sizes());
  at::Tensor grad_input, grad_weight;
  if (wanted[0]) {
    grad_input = new_tensor(input, input.sizes(), input.scalar_type(), input.suggest_memory_format());
  }
  if (wanted[1] && weight.defined()) {
    grad_weight = new_tensor(input, weight.sizes(), weight.scalar_type());
  }
  static OpRecord& op = op_record("aten::_fused_rms_norm_backward");
  launch(
      op,
      [](const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& rstd, const at::Tensor& weight,
         const at::Tensor& grad_input, at::Tensor grad_weight) {
        const at::ScalarType dtype = rstd.scalar_type();
        const int64_t n = row_length(input, rstd, weight);
        const at::Tensor dx = destination(grad_input, dtype);
        (dtype == at::kDouble ? &differentiate<double>
                              : &differentiate<float>)(dense(grad_out, dtype), dense(input, dtype),
                                                       dense(weight, dtype), rstd.contiguous(), n, dx, grad_weight);
        deliver(grad_input, dx);
      },
      grad_out, input, rstd, weight, grad_input, grad_weight);
  return {grad_input, grad_weight};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_rms_norm", &fused_rms_norm);
  m.impl("_fused_rms_norm_backward", &fused_rms_norm_backward);
}

}  // namespace

}  // namespace torchneuron
