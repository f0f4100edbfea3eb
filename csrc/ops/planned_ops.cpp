#include "ops/fallback.h"
#include "ops/planned_kernel.h"

#include <torch/library.h>

namespace torchneuron {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

bool never(Arguments) { return false; }

// The first batch gives the running extremes of channels their size, but only while the observer is on.
bool sizes_running_extremes(Arguments arguments) {
  constexpr size_t kRunningMin = 3;
  constexpr size_t kPerRow = 11;
  return arguments[kPerRow].toBool() && arguments[kRunningMin].toTensor().numel() == 0;
}

// Residuals are given for matrices of full rank only, and these drivers find the rank.
bool finds_the_rank(Arguments arguments) {
  constexpr size_t kDriver = 3;
  return arguments[kDriver].isString() &&
         (arguments[kDriver].toStringView() == "gelsd" || arguments[kDriver].toStringView() == "gelss");
}

// Launches the operator's CPU kernel. It runs after a wait instead where sizes depend on values, and where it refuses
// stand-ins: either it will refuse the real values, too, and at the call, or it looks at them before it computes.
template <bool (*kDependsOnValues)(Arguments) = &never>
void launch_cpu_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const Arguments arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const FallbackArguments checked(op.schema(), arguments);
  Stream& stream = current_stream(checked.device());
  PlannedKernel kernel(op, *stack);
  kernel.check_overlap(*stack);
  bool planned = false;
  if (!kDependsOnValues(arguments)) {
    try {
      kernel.plan();
      planned = true;
    } catch (const std::exception&) {
    }
  }
  if (planned) {
    const c10::OperatorName& name = op.operator_name();
    kernel.launch(
        op_record(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name), stream, stack);
  } else {
    run_cpu_kernel<c10::DispatchKey::CPU>(op, keys, stack);
  }
}

// Operators of which models use few, or seldom: what is not worth a launch of its own.
constexpr const char* kPlanned[] = {
    // Arithmetic and complex numbers
    "__ilshift__.Scalar",
    "__ilshift__.Tensor",
    "__irshift__.Scalar",
    "__irshift__.Tensor",
    "_add_relu.Scalar",
    "_add_relu.Tensor",
    "_add_relu.out",
    "_add_relu_.Scalar",
    "_add_relu_.Tensor",
    "_compute_linear_combination",
    "_compute_linear_combination.out",
    "addbmm",
    "addbmm.out",
    "addbmm_",
    "addr",
    "addr.out",
    "addr_",
    "angle.out",
    "conj_physical.out",
    "conj_physical_",
    "frexp.Tensor_out",
    "logit.out",
    "logit_",
    "mvlgamma.out",
    "range.out",
    // Assertions
    "_assert_async",
    "_assert_async.msg",
    // Order, search and counting
    "_aminmax",
    "_aminmax.dim",
    "_histogramdd_bin_edges",
    "_histogramdd_from_bin_cts",
    "_histogramdd_from_bin_tensors",
    "bucketize.Scalar",
    "bucketize.Tensor_out",
    "histogram.bin_ct",
    "histogram.bin_ct_out",
    "histogram.bins_tensor",
    "histogram.bins_tensor_out",
    "mode.values",
    "narrow_copy",
    "narrow_copy.out",
    "nonzero_static",
    "nonzero_static.out",
    "searchsorted.Scalar",
    "searchsorted.Scalar_out",
    "searchsorted.Tensor_out",
    // Distances and embeddings
    "_embedding_bag_dense_backward",
    "_jagged_to_padded_dense_forward",
    "_pdist_backward",
    "_pdist_forward",
    "_segment_reduce_backward",
    // Normalisation
    "_batch_norm_with_update.out",
    "_masked_softmax_backward",
    "_native_batch_norm_legit.no_stats_out",
    "_native_batch_norm_legit.out",
    "_weight_norm_interface",
    "_weight_norm_interface_backward",
    "native_batch_norm.out",
    // Activations and losses
    "binary_cross_entropy.out",
    "binary_cross_entropy_backward.grad_input",
    "glu_backward.grad_input",
    "glu_backward_jvp",
    "glu_jvp",
    "hardswish.out",
    "hardtanh.out",
    "hardtanh_backward.grad_input",
    "huber_loss.out",
    "huber_loss_backward.out",
    "log_sigmoid_backward.grad_input",
    "log_sigmoid_forward.output",
    "mse_loss_backward.grad_input",
    "multi_margin_loss.out",
    "multi_margin_loss_backward.grad_input",
    "multilabel_margin_loss_backward.grad_input",
    "multilabel_margin_loss_forward.output",
    "nll_loss2d_backward.grad_input",
    "nll_loss2d_forward.output",
    "smooth_l1_loss_backward.grad_input",
    // Images
    "_slow_conv2d_backward.grad_input",
    "_slow_conv2d_backward.output_mask",
    "_slow_conv2d_forward",
    "_slow_conv2d_forward.output",
    "adaptive_avg_pool2d.out",
    "adaptive_avg_pool3d.out",
    "adaptive_avg_pool3d_backward.grad_input",
    "col2im.out",
    "fractional_max_pool3d_backward",
    "fractional_max_pool3d_backward.grad_input",
    "im2col.out",
    "max_pool3d_with_indices.out",
    "max_pool3d_with_indices_backward.grad_input",
    "max_unpool2d.out",
    "max_unpool3d.out",
    "reflection_pad2d.out",
    "reflection_pad2d_backward.grad_input",
    "replication_pad2d_backward.grad_input",
    "replication_pad3d_backward.grad_input",
    "slow_conv3d_forward",
    "slow_conv3d_forward.output",
    "slow_conv_dilated2d",
    "slow_conv_dilated3d",
    "slow_conv_transpose3d",
    "slow_conv_transpose3d.out",
    // Fourier transforms
    "_fft_c2c.out",
    "_fft_c2r.out",
    "_fft_r2c.out",
    // Linear algebra; not what raises for a matrix of the right sizes, which CUDA, too, waits to know
    "_cholesky_solve_helper",
    "geqrf",
    "geqrf.a",
    "linalg_householder_product",
    "linalg_householder_product.out",
    "linalg_matrix_exp",
    "linalg_solve_triangular",
    "linalg_solve_triangular.out",
    "ormqr",
    "ormqr.out",
    // Quantisation
    "_convert_weight_to_int4pack_for_cpu",
    "_fake_quantize_learnable_per_channel_affine",
    "_fake_quantize_learnable_per_channel_affine_backward",
    "_fake_quantize_learnable_per_tensor_affine",
    "_fake_quantize_learnable_per_tensor_affine_backward",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "_weight_int4pack_mm_for_cpu",
    "_weight_int8pack_mm",
    "fake_quantize_per_channel_affine_cachemask",
    "fake_quantize_per_tensor_affine_cachemask",
};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : kPlanned) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&launch_cpu_kernel<>>());
  }
  m.impl(
      "_fused_moving_avg_obs_fq_helper",
      torch::CppFunction::makeFromBoxedFunction<&launch_cpu_kernel<&sizes_running_extremes>>());
  m.impl("linalg_lstsq.out", torch::CppFunction::makeFromBoxedFunction<&launch_cpu_kernel<&finds_the_rank>>());
}

}  // namespace

}  // namespace torchneuron
