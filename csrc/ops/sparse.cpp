#include "ops/sparse.h"

#include "ops/fallback.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_dimI_native.h>
#include <ATen/ops/_dimV_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/values_native.h>
#include <torch/library.h>

#include <string>

// Sparse tensors. What touches the memory of their parts takes the way of the fallback, to the kernel that CPU has for
// the layout.
namespace torchneuron {

namespace {

using c10::DispatchKey;

template <DispatchKey kCpuKey>
torch::CppFunction kernel_of_cpu() {
  return torch::CppFunction::makeFromBoxedFunction<&run_cpu_kernel<kCpuKey>>();
}

// For all operators that CPU has a kernel for of its own: PyTorch's kernels for any other device, which a fallback
// would leave in place, do not know the layout.
template <DispatchKey kCpuKey>
void register_kernels_of_cpu(DispatchKey key) {
  // Never destroyed, since that would unregister them.
  auto& library = *new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (name.name.rfind("aten::", 0) == 0 && op.has_value() && op->hasKernelForDispatchKey(kCpuKey) &&
        !op->hasKernelForDispatchKey(key)) {
      const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      library.impl(full.c_str(), kernel_of_cpu<kCpuKey>());
    }
  }
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("empty.memory_format", kernel_of_cpu<DispatchKey::SparseCPU>());
  m.impl("_sparse_coo_tensor_with_dims", kernel_of_cpu<DispatchKey::SparseCPU>());
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", kernel_of_cpu<DispatchKey::SparseCPU>());
  m.impl("copy_", &at::native::copy_sparse_wrapper_);
  m.impl("copy_sparse_to_sparse_", &at::native::copy_sparse_);
  m.impl("sparse_dim", &at::native::sparse_dim_sparse);
  m.impl("dense_dim", &at::native::dense_dim_sparse);
  m.impl("_dimI", &at::native::sparse_dim_sparse);
  m.impl("_dimV", &at::native::dense_dim_sparse);
  m.impl("_nnz", &at::native::_nnz_sparse);
  m.impl("is_coalesced", &at::native::is_coalesced_sparse);
  m.impl("_coalesced_", &at::native::_coalesced_sparse_);
  m.impl("indices", &at::native::indices_sparse);
  m.impl("_indices", &at::native::_indices_sparse);
  m.impl("values", &at::native::values_sparse);
  m.impl("_values", &at::native::_values_sparse);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("empty.memory_format", kernel_of_cpu<DispatchKey::SparseCsrCPU>());
  m.impl("_sparse_compressed_tensor_unsafe", kernel_of_cpu<DispatchKey::SparseCsrCPU>());
  m.impl("_sparse_compressed_tensor_with_dims", kernel_of_cpu<DispatchKey::SparseCsrCPU>());
  m.impl("copy_", &at::native::copy_sparse_compressed_);
  m.impl("sparse_dim", &at::native::sparse_dim_sparse_csr);
  m.impl("dense_dim", &at::native::dense_dim_sparse_csr);
  m.impl("_nnz", &at::native::_nnz_sparse_csr);
  m.impl("values", &at::native::values_sparse_csr);
  m.impl("crow_indices", &at::native::crow_indices_sparse_csr);
  m.impl("col_indices", &at::native::col_indices_sparse_csr);
  m.impl("ccol_indices", &at::native::ccol_indices_sparse_csr);
  m.impl("row_indices", &at::native::row_indices_sparse_csr);
}

}  // namespace

void provide_sparse_operators() {
  static const bool once = [] {
    register_kernels_of_cpu<DispatchKey::SparseCPU>(DispatchKey::SparsePrivateUse1);
    register_kernels_of_cpu<DispatchKey::SparseCsrCPU>(DispatchKey::SparseCsrPrivateUse1);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace torchneuron
