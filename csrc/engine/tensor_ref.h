#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/SizesAndStrides.h>

#include <array>

namespace torchneuron {

// A tensor as a queued task sees it: its memory and its geometry at the time of the launch. The memory of a device
// tensor is not kept alive (stream order does that). Of a CPU tensor the value is kept.
class TensorRef {
 public:
  explicit TensorRef(const at::Tensor& tensor);

  // A CPU-keyed tensor on the same memory; undefined for an undefined tensor.
  at::Tensor cpu_view() const;

  bool is_device() const { return kind_ == Kind::kDevice; }
  c10::DeviceIndex device() const { return device_; }
  // Bytes of host memory that this reference keeps.
  size_t held_bytes() const;

 private:
  enum class Kind : uint8_t { kUndefined, kDevice, kScalar, kHost };

  void* base_ = nullptr;
  size_t storage_bytes_ = 0;
  int64_t storage_offset_ = 0;
  c10::impl::SizesAndStrides geometry_;
  caffe2::TypeMeta dtype_;
  alignas(16) std::array<std::byte, 16> scalar_;
  at::Tensor host_;
  Kind kind_ = Kind::kUndefined;
  c10::DeviceIndex device_ = -1;
  bool wrapped_number_ = false;
  bool conj_ = false;
  bool neg_ = false;
};

// Where the first element of a device tensor lies; what a launch keeps for a body that knows the geometry itself.
class DeviceAddress {
 public:
  explicit DeviceAddress(const at::Tensor& tensor);

  void* get() const { return address_; }
  c10::DeviceIndex device() const { return device_; }

 private:
  void* address_;
  c10::DeviceIndex device_;
};

// A CPU-keyed tensor on the memory of `tensor` (on `neuron`), without a copy. The caller orders the accesses.
at::Tensor cpu_view(const at::Tensor& tensor);

}  // namespace torchneuron
