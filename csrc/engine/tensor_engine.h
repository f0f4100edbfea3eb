#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

// Matrix products on CPU-keyed views, as at::cpu::* computes them. PyTorch gives those in float32 to MKL, which on many
// hosts reaches half the rate of the oneDNN in the same wheel, so each host's choice is measured once.
namespace torchneuron::tensor_engine {

at::Tensor& mm_outf(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out);
at::Tensor& bmm_outf(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out);
at::Tensor& addmm_outf(
    const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
    const at::Scalar& alpha, at::Tensor& out);
at::Tensor& addmm_(
    at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha);
at::Tensor& baddbmm_outf(
    const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
    const at::Scalar& alpha, at::Tensor& out);
at::Tensor& baddbmm_(
    at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
    const at::Scalar& alpha);

// From how many multiplications on a float32 product of matrices goes to oneDNN; infinity where MKL is as fast.
// Measured on the first call in a process that finds no result of an earlier one.
double onednn_threshold();

}  // namespace torchneuron::tensor_engine
