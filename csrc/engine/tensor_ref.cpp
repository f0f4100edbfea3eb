#include "engine/tensor_ref.h"

#include "runtime/device.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <cstring>

namespace torchneuron {

namespace {

at::Tensor make_cpu_tensor(
    void* base, size_t storage_bytes, int64_t storage_offset, const c10::impl::SizesAndStrides& geometry,
    caffe2::TypeMeta dtype) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage_bytes, c10::DataPtr(base, c10::kCPU), c10::GetCPUAllocator(), false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      geometry.sizes_arrayref(), geometry.strides_arrayref(), storage_offset);
  return tensor;
}

c10::impl::SizesAndStrides geometry_of(const c10::TensorImpl& impl) {
  c10::impl::SizesAndStrides geometry;
  geometry.set_sizes(impl.sizes());
  geometry.set_strides(impl.strides());
  return geometry;
}

}  // namespace

TensorRef::TensorRef(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return;
  }
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  conj_ = impl.is_conj();
  neg_ = impl.is_neg();
  if (C10_LIKELY(impl.device_type() == kNeuron)) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        impl.has_storage() && impl.layout() == c10::kStrided, "a launch takes strided tensors, but got one of layout ",
        impl.layout());
    kind_ = Kind::kDevice;
    device_ = impl.device().index();
    const c10::Storage& storage = impl.unsafe_storage();
    base_ = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
    storage_bytes_ = storage.nbytes();
    storage_offset_ = impl.storage_offset();
    geometry_ = geometry_of(impl);
    dtype_ = impl.dtype();
    return;
  }
  TORCH_CHECK(impl.device_type() == c10::kCPU, "expected a neuron or cpu tensor, but got one on ", impl.device());
  wrapped_number_ = impl.is_wrapped_number();
  dtype_ = impl.dtype();
  if (impl.dim() == 0 && dtype_.itemsize() <= scalar_.size() && impl.layout() == c10::kStrided) {
    kind_ = Kind::kScalar;
    std::memcpy(scalar_.data(), impl.data(), dtype_.itemsize());
    return;
  }
  kind_ = Kind::kHost;
  host_ = tensor.clone();
}

at::Tensor TensorRef::cpu_view() const {
  switch (kind_) {
    case Kind::kUndefined:
      return {};
    case Kind::kHost:
      return host_;
    case Kind::kScalar: {
      at::Tensor tensor = make_cpu_tensor(
          const_cast<std::byte*>(scalar_.data()), dtype_.itemsize(), 0, c10::impl::SizesAndStrides(), dtype_);
      tensor.unsafeGetTensorImpl()->set_sizes_contiguous({});
      tensor.unsafeGetTensorImpl()->set_wrapped_number(wrapped_number_);
      if (conj_) {
        tensor._set_conj(true);
      }
      if (neg_) {
        tensor._set_neg(true);
      }
      return tensor;
    }
    case Kind::kDevice:
      break;
  }
  at::Tensor tensor = make_cpu_tensor(base_, storage_bytes_, storage_offset_, geometry_, dtype_);
  if (C10_UNLIKELY(conj_)) {
    tensor._set_conj(true);
  }
  if (C10_UNLIKELY(neg_)) {
    tensor._set_neg(true);
  }
  return tensor;
}

size_t TensorRef::held_bytes() const { return kind_ == Kind::kHost ? host_.nbytes() : 0; }

DeviceAddress::DeviceAddress(const at::Tensor& tensor) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  TORCH_CHECK(
      impl.device_type() == kNeuron, "Expected a tensor on neuron, but got one on ", impl.device(), " of size ",
      tensor.sym_sizes());
  device_ = impl.device().index();
  auto* base = static_cast<std::byte*>(impl.unsafe_storage().unsafeGetStorageImpl()->mutable_data());
  address_ = base + impl.storage_offset() * static_cast<int64_t>(impl.dtype().itemsize());
}

at::Tensor cpu_view(const at::Tensor& tensor) { return TensorRef(tensor).cpu_view(); }

}  // namespace torchneuron
