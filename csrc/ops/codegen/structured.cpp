#include "ops/codegen/structured.h"

#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/stream.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <c10/core/StorageImpl.h>

namespace torchneuron::structured {

at::Tensor allocate_output(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  at::detail::check_size_nonnegative(sizes);
  const caffe2::TypeMeta dtype = options.dtype();
  const size_t nbytes = strides.empty() ? at::detail::computeStorageNbytesContiguous(sizes, dtype.itemsize())
                                        : at::detail::computeStorageNbytes(sizes, strides, dtype.itemsize());
  Stream& stream = current_stream(options.device().index());
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), nbytes, device_memory().allocate_on(nbytes, stream), &device_memory(),
      /*resizable=*/true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!strides.empty()) {
    impl->set_sizes_and_strides(sizes, strides);
  } else if (sizes.size() != 1 || sizes[0] != 0) {  // a new TensorImpl has the sizes {0}
    impl->set_sizes_contiguous(sizes);
    if (const auto format = options.memory_format_opt();
        format.has_value() && *format != at::MemoryFormat::Contiguous) {
      impl->empty_tensor_restride(*format);
    }
  }
  return tensor;
}

void resize_output(
    const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  TORCH_CHECK(
      options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(), ", but got ", out.dtype(),
      " instead");
  TORCH_CHECK(
      options.device() == out.device(), "Expected out tensor to have device ", options.device(), ", but got ",
      out.device(), " instead");
  if (!at::native::resize_output(out, sizes)) {
    return;
  }
  if (!strides.empty()) {
    out.as_strided_(sizes, strides);
  } else if (options.memory_format_opt().has_value()) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
  }
}

void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options) {
  TORCH_CHECK(
      options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ", self.dtype(),
      " and output tensor dtype ", options.dtype(), " should match");
  TORCH_CHECK(
      options.device() == self.device(), "Bad in-place call: input tensor device ", self.device(),
      " and output tensor device ", options.device(), " should match");
  TORCH_CHECK(
      sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(), " and output tensor size ", sizes,
      " should match");
}

void check_dtypes_of_product(const at::Tensor& a, const at::Tensor& b) {
  if (C10_LIKELY(a.scalar_type() == b.scalar_type())) {
    return;
  }
  TORCH_CHECK(a.dim() == 3, "expected m1 and m2 to have the same dtype, but got: ", a.dtype(), " != ", b.dtype());
  TORCH_CHECK(false, "expected scalar type ", a.scalar_type(), " but found ", b.scalar_type());
}

void check_one_overlap(const at::Tensor& output, const at::Tensor& input) {
  if (input.defined()) {
    at::assert_no_partial_overlap(output, input);
  }
}

void check_one_overlap(const at::Tensor& output, const at::ITensorListRef& inputs) {
  for (const at::Tensor& input : inputs) {
    check_one_overlap(output, input);
  }
}

void wait_for_errors(bool check_errors, const at::Tensor& tensor) {
  if (check_errors) {
    current_stream(tensor.device().index()).synchronize();
  }
}

void write_conjugate(const at::Tensor& result) {
  if (result.is_conj()) {
    result._set_conj(false);
    result.conj_physical_();
  }
}

void take_memory_format(const at::Tensor& output, const at::Tensor& input) {
  output.unsafeGetTensorImpl()->empty_tensor_restride(input.suggest_memory_format());
}

}  // namespace torchneuron::structured
