#include "ops/tensor_parts.h"

#include "ops/sparse.h"
#include "runtime/device.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <c10/core/DeviceGuard.h>

namespace torchneuron {

namespace {

c10::DispatchKeySet keys(c10::Device device, c10::Layout layout) {
  const bool neuron = device.type() == kNeuron;
  if (layout == c10::kSparse) {
    return c10::DispatchKeySet(neuron ? c10::DispatchKey::SparsePrivateUse1 : c10::DispatchKey::SparseCPU);
  }
  return c10::DispatchKeySet(neuron ? c10::DispatchKey::SparseCsrPrivateUse1 : c10::DispatchKey::SparseCsrCPU);
}

at::Tensor sparse_with_parts(const at::Tensor& sparse, c10::Device device, const PartMap& map) {
  provide_sparse_operators();
  const c10::Layout layout = sparse.layout();
  const c10::DispatchKeySet set = keys(device, layout);
  const c10::DeviceGuard guard(device);  // a new COO tensor lies on the current device
  at::Tensor tensor = layout == c10::kSparse
                          ? at::detail::make_tensor<at::SparseTensorImpl>(set, sparse.dtype())
                          : at::detail::make_tensor<at::SparseCsrTensorImpl>(set, device, layout, sparse.dtype());
  set_parts(tensor, sparse, map);
  return tensor;
}

at::Tensor nested_with_parts(const at::Tensor& nested, const PartMap& map) {
  const at::native::NestedTensorImpl& impl = *at::native::get_nested_tensor_impl(nested);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      map(impl.get_unsafe_storage_as_tensor()), impl.get_nested_sizes(), impl.get_nested_strides(),
      impl.get_storage_offsets());
}

}  // namespace

at::Tensor with_parts(const at::Tensor& tensor, c10::Device device, const PartMap& map) {
  return tensor.is_nested() ? nested_with_parts(tensor, map) : sparse_with_parts(tensor, device, map);
}

void set_parts(const at::Tensor& to, const at::Tensor& from, const PartMap& map) {
  if (from.is_nested()) {
    return;
  }
  if (from.layout() == c10::kSparse) {
    const at::SparseTensorImpl& source = *at::sparse::get_sparse_impl(from);
    at::SparseTensorImpl& target = *at::sparse::get_sparse_impl(to);
    const at::Tensor indices = map(source.indices());
    const at::Tensor values = map(source.values());
    // Tensors that only were read may refuse to be changed.
    if (target.sizes() == source.sizes() && target.indices().is_same(indices) && target.values().is_same(values)) {
      if (target.coalesced() != source.coalesced()) {
        target.set_coalesced(source.coalesced());
      }
      return;
    }
    target.raw_resize_(source.sparse_dim(), source.dense_dim(), source.sizes());
    target.set_indices_and_values_unsafe(indices, values);
    target.set_coalesced(source.coalesced());
  } else {
    const at::SparseCsrTensorImpl& source = *at::sparse_csr::get_sparse_csr_impl(from);
    at::SparseCsrTensorImpl& target = *at::sparse_csr::get_sparse_csr_impl(to);
    const at::Tensor compressed = map(source.compressed_indices());
    const at::Tensor plain = map(source.plain_indices());
    const at::Tensor values = map(source.values());
    const bool same = target.sizes() == source.sizes() && target.compressed_indices().is_same(compressed) &&
                      target.plain_indices().is_same(plain) && target.values().is_same(values);
    if (!same) {
      target.set_member_tensors(compressed, plain, values, source.sizes());
    }
  }
}

}  // namespace torchneuron
