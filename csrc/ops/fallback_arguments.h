#pragma once

#include "runtime/device.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <vector>

namespace torchneuron {

bool is_neuron(const at::Tensor& tensor);

// Whether the operator's CPU kernel computes what its backward needs only if an argument requires gradients.
bool asks_for_gradients(const c10::FunctionSchema& schema);
void require_gradients(const c10::IValue& view);

// `value` with replacement(t) in the place of each tensor t in it, in their order.
c10::IValue replace_tensors(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> replacement);

// The arguments of one operator call, as CPU-keyed views of the same memory, and the way back.
class FallbackArguments {
 public:
  // Finds the device. Throws if tensors of several devices, or a CPU tensor with dimensions where none may be, meet.
  FallbackArguments(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments);

  c10::DeviceIndex device() const { return device_; }
  // An argument as the CPU kernel takes it: views, the CPU device and CPU generators in the place of neuron's.
  c10::IValue view_of(const c10::IValue& argument);
  // Gives an input that the kernel resized its new memory and geometry.
  void propagate_resizes();
  // A result of the kernel as a neuron value: an input, a view of one, or a tensor that takes over the memory.
  c10::IValue to_device(const c10::IValue& result);

 private:
  struct Mapped {
    at::Tensor tensor;
    at::Tensor view;
    const void* data;  // of the view's storage before the call
  };

  void inspect(const c10::FunctionSchema& schema, const c10::IValue& value, const std::string& name);
  at::Tensor view_of(const at::Tensor& tensor);
  at::Tensor to_device(const at::Tensor& result);

  c10::DeviceIndex device_ = -1;
  std::vector<Mapped> mapped_;
  std::vector<std::pair<c10::Storage, c10::Storage>> storages_;  // of the kernel, of the device
};

}  // namespace torchneuron
