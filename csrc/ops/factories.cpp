#include "ops/factories.h"

#include "engine/launch.h"
#include "runtime/allocator.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/fill.h>
#include <torch/library.h>

#include <cstring>

namespace torchneuron {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

constexpr DispatchKeySet kKeys(DispatchKey::PrivateUse1);

void check_options(
    const std::optional<c10::Layout>& layout, const std::optional<c10::Device>& device,
    std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      layout.value_or(c10::kStrided) == c10::kStrided, "a neuron tensor is strided, but the layout asked for is ",
      *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_VALUE(!device.has_value() || device->type() == kNeuron, "expected a neuron device, but got ", *device);
}

// torch.utils.deterministic.fill_uninitialized_memory, as on every device.
at::Tensor filled_if_deterministic(at::Tensor tensor) {
  if (C10_UNLIKELY(
          at::globalContext().deterministicAlgorithms() &&
          at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

// Sets the current device for the allocator, which is not told one.
class OnDevice {
 public:
  explicit OnDevice(c10::Device device) : previous_(exchange_device(device.index())) {}
  ~OnDevice() { exchange_device(previous_); }

 private:
  c10::DeviceIndex previous_;
};

at::Tensor empty_memory_format(
    c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> memory_format) {
  check_options(layout, device, pin_memory);
  OnDevice guard(with_index(device));
  return filled_if_deterministic(
      at::detail::empty_generic(
          C10_AS_INTARRAYREF_SLOW(sizes), &device_memory(), kKeys, c10::dtype_or_default(dtype), memory_format));
}

at::Tensor empty_strided_symint(
    c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, std::optional<at::ScalarType> dtype,
    std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, device, pin_memory);
  OnDevice guard(with_index(device));
  return filled_if_deterministic(
      at::detail::empty_strided_generic(
          C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), &device_memory(), kKeys,
          c10::dtype_or_default(dtype)));
}

// A tensor without memory that stands for zeros, as forward-mode AD makes them.
at::Tensor efficient_zero_tensor(
    c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, device, pin_memory);
  at::native::ZeroTensorAllocator allocator(with_index(device));
  return at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(sizes), &allocator, kKeys | DispatchKeySet(DispatchKey::ZeroTensor),
      c10::dtype_or_default(dtype), std::nullopt);
}

}  // namespace

void resize_storage(const c10::Storage& storage, size_t new_bytes) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  const c10::Device device = storage.device();
  Stream& stream = current_stream(device.index());
  c10::DataPtr grown = device_memory().allocate_on(new_bytes, stream);
  const size_t kept = std::min(new_bytes, storage.nbytes());
  if (kept > 0) {
    static OpRecord& op = op_record("neuron::resize_storage");
    launch_on(
        stream, op, [](void* to, const void* from, size_t count) { std::memcpy(to, from, count); }, grown.get(),
        const_cast<const void*>(impl->data()), kept);
  }
  impl->set_data_ptr_noswap(std::move(grown));
  impl->set_nbytes(new_bytes);
}

namespace {

void grow_storage_for(c10::TensorImpl& tensor, size_t bytes) {
  if (bytes > tensor.unsafe_storage().nbytes()) {
    resize_storage(tensor.unsafe_storage(), bytes);
  }
}

const at::Tensor& resize_(
    const at::Tensor& self, c10::SymIntArrayRef symbolic_sizes, std::optional<c10::MemoryFormat> memory_format) {
  const at::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(symbolic_sizes);
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  const int64_t old_bytes = static_cast<int64_t>(impl.unsafe_storage().nbytes());
  if (impl.sizes() != sizes) {
    const size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, impl.itemsize(), impl.storage_offset());
    grow_storage_for(impl, c10::multiply_integers(sizes) == 0 ? 0 : bytes);
    impl.set_sizes_contiguous(sizes);
  }
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    impl.empty_tensor_restride(*memory_format);
  }
  if (C10_UNLIKELY(
          at::globalContext().deterministicAlgorithms() &&
          at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_resize_deterministic_(self, old_bytes);
  }
  return self;
}

at::Tensor& set_storage(
    at::Tensor& self, c10::Storage source, c10::SymInt offset, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  at::native::checkSetStorage(
      self, std::move(source), offset.expect_int(), C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  impl.set_storage_offset(offset.expect_int());
  const at::IntArrayRef size = C10_AS_INTARRAYREF_SLOW(sizes);
  if (strides.empty() && !size.empty()) {
    impl.set_sizes_contiguous(size);
  } else {
    impl.set_sizes_and_strides(size, C10_AS_INTARRAYREF_SLOW(strides));
  }
  const size_t bytes =
      at::detail::computeStorageNbytes(impl.sizes(), impl.strides(), impl.itemsize(), impl.storage_offset());
  grow_storage_for(impl, impl.numel() == 0 ? 0 : bytes);
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, c10::Storage source) {
  const int64_t elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, c10::fromIntArrayRefSlow({elements}), {});
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  c10::TensorImpl& impl = *source.unsafeGetTensorImpl();
  if (self.unsafeGetTensorImpl() == &impl) {
    return self;
  }
  return set_storage(self, source.storage(), source.sym_storage_offset(), source.sym_sizes(), source.sym_strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  const caffe2::TypeMeta dtype = self.dtype();
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, self.device()), &device_memory(), true);
  set_storage(self, std::move(storage), 0, c10::fromIntArrayRefSlow({0}), {});
  TORCH_INTERNAL_ASSERT(dtype == self.dtype());
  return self;
}

// Lets a parameter move between cpu and neuron in place: `Module.to` and `.data =` keep its identity.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& t) {
    return t.key_set().has_any(DispatchKeySet({DispatchKey::CPU, DispatchKey::PrivateUse1, DispatchKey::Meta})) &&
           t.layout() == c10::kStrided && t.unsafeGetTensorImpl()->has_storage();
  };
  return (dense(self) && dense(from)) || self.key_set() == from.key_set();
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  device_memory().recordStream(self.storage().data_ptr(), stream);
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_memory_format);
  m.impl("empty_strided", &empty_strided_symint);
  m.impl("_efficientzerotensor", &efficient_zero_tensor);
  m.impl("resize_", &resize_);
  m.impl("set_", &set_empty);
  m.impl("set_.source_Storage", &set_source_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Tensor", &set_source_tensor);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  m.impl("record_stream", &record_stream);
  m.impl("is_set_to", &is_set_to);
}

}  // namespace

}  // namespace torchneuron
