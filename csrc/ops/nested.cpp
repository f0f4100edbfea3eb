#include "ops/fallback.h"

#include <ATen/native/layer_norm.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/library.h>

#include <array>
#include <tuple>

// Nested tensors of strided layout. (Those of jagged layout are Python objects around ordinary tensors.)
namespace torchneuron {

namespace {

using c10::DispatchKey;

// PyTorch writes most kernels for nested tensors in terms of operators on the buffer, once for all devices. HPU is the
// one device among these that has no kernel of its own, so its table lists just them.
constexpr DispatchKey kAnyDevice = DispatchKey::NestedTensorHPU;

void run_nested_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (op.hasKernelForDispatchKey(kAnyDevice)) {
    op.redispatchBoxed(c10::DispatchKeySet(kAnyDevice), stack);
  } else {
    run_cpu_kernel<DispatchKey::NestedTensorCPU>(op, keys, stack);
  }
}

// CPU has kernels for these that only look at the geometry.
void run_geometry_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(DispatchKey::NestedTensorCPU), stack);
}

// Layer norm of a nested tensor does not call the operator on the buffer but the kernel for its device.
void layer_norm_of_buffer(
    const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, int64_t rows, int64_t columns, double eps,
    at::Tensor* y, at::Tensor* mean, at::Tensor* rstd) {
  const auto results = at::native_layer_norm(x.view({rows, columns}), {columns}, gamma, beta, eps);
  *y = std::get<0>(results).view(y->sizes());
  *mean = std::get<1>(results).view(mean->sizes());
  *rstd = std::get<2>(results).view(rstd->sizes());
}

void layer_norm_of_buffer_backward(
    const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& gamma,
    int64_t rows, int64_t columns, at::Tensor* dx, at::Tensor* dgamma, at::Tensor* dbeta) {
  const std::array<bool, 3> wanted{dx->defined(), dgamma->defined(), dbeta->defined()};
  const auto gradients = at::native_layer_norm_backward(
      dy.view({rows, columns}), x.view({rows, columns}), {columns}, mean.view({rows, 1}), rstd.view({rows, 1}), gamma,
      /*bias=*/gamma, wanted);
  if (wanted[0]) {
    *dx = std::get<0>(gradients).view(dx->sizes());
  }
  *dgamma = std::get<1>(gradients);
  *dbeta = std::get<2>(gradients);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_nested_view_from_buffer", &at::native::_nested_view_from_buffer); }

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_nested_kernel>());
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  // Those with a composite kernel, which the dispatcher would prefer to a fallback.
  for (const char* name :
       {"chunk", "linear", "matmul", "matmul.out", "narrow", "silu_backward", "value_selecting_reduction_backward"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_nested_kernel>());
  }
  for (const char* name : {"_fused_sdp_choice", "_nested_tensor_storage_offsets"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_geometry_kernel>());
  }
}

}  // namespace

}  // namespace torchneuron

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(LayerNormKernel, &torchneuron::layer_norm_of_buffer)
REGISTER_PRIVATEUSE1_DISPATCH(LayerNormBackwardKernel, &torchneuron::layer_norm_of_buffer_backward)

}  // namespace at::native
