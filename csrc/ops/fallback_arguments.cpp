#include "ops/fallback_arguments.h"

#include "engine/launch.h"
#include "ops/factories.h"
#include "ops/tensor_parts.h"
#include "runtime/allocator.h"
#include "runtime/generator.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <set>
#include <string>

namespace torchneuron {

namespace {

// Operators that take host tensors beside device tensors, as they do on cuda: lengths, batch sizes, indices,
// geometries.
const std::set<std::string>& takes_host_tensors() {
  static const std::set<std::string> names = {
      "aten::_pack_padded_sequence",
      "aten::_pack_padded_sequence_backward",
      "aten::_pad_packed_sequence",
      "aten::lstm",
      "aten::gru",
      "aten::rnn_tanh",
      "aten::rnn_relu",
      "aten::index",
      "aten::index_put",
      "aten::index_put_",
      "aten::_index_put_impl_",
      "aten::_unsafe_index",
      "aten::_unsafe_index_put",
      "aten::_nested_from_padded"};
  return names;
}

}  // namespace

bool is_neuron(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kNeuron; }

c10::IValue replace_tensors(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> replacement) {
  if (value.isTensor()) {
    return replacement(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorList()) {
      tensors.push_back(replacement(tensor));
    }
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      tensors.push_back(tensor.has_value() ? std::optional<at::Tensor>(replacement(*tensor)) : std::nullopt);
    }
    return tensors;
  }
  return value;
}

bool asks_for_gradients(const c10::FunctionSchema& schema) { return schema.name() == "aten::_sparse_mm_reduce_impl"; }

void require_gradients(const c10::IValue& view) {
  if (view.isTensor() && view.toTensor().defined() &&
      (view.toTensor().is_floating_point() || view.toTensor().is_complex())) {
    view.toTensor().requires_grad_();
  }
}

FallbackArguments::FallbackArguments(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    inspect(schema, arguments[i], schema.arguments()[i].name());
  }
  // A host tensor is refused only now that the device is known.
  for (size_t i = 0; device_ >= 0 && i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    const auto* alias = schema.arguments()[i].alias_info();
    const bool written = alias != nullptr && alias->isWrite();
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cpu() &&
        (written || value.toTensor().dim() > 0)) {
      TORCH_CHECK(
          takes_host_tensors().count(schema.name()) > 0, "Expected all tensors to be on the same device, but got ",
          schema.arguments()[i].name(),
          " is on cpu, different from other tensors on neuron:", static_cast<int>(device_),
          " (when checking argument in method wrapper_PrivateUse1__",
          schema.name().substr(schema.name().find("::") + 2), ")");
    }
  }
  if (device_ < 0) {
    device_ = current_device();
  }
}

void FallbackArguments::inspect(const c10::FunctionSchema& schema, const c10::IValue& value, const std::string& name) {
  const auto see = [&](const at::Tensor& tensor) {
    if (!is_neuron(tensor)) {
      return;
    }
    const c10::DeviceIndex index = tensor.device().index();
    TORCH_CHECK(
        device_ < 0 || device_ == index, "Expected all tensors to be on the same device, but got ", name,
        " is on neuron:", static_cast<int>(index),
        ", different from other tensors on neuron:", static_cast<int>(device_),
        " (when checking argument in method wrapper_PrivateUse1__", schema.name().substr(schema.name().find("::") + 2),
        ")");
    device_ = index;
  };
  if (value.isTensor()) {
    see(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) {
      see(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      if (tensor.has_value()) {
        see(*tensor);
      }
    }
  } else if (value.isDevice() && value.toDevice().type() == kNeuron && device_ < 0) {
    device_ = with_index(value.toDevice()).index();
  }
}

c10::IValue FallbackArguments::view_of(const c10::IValue& value) {
  if (value.isDevice() && value.toDevice().type() == kNeuron) {
    return c10::Device(c10::kCPU);
  }
  if (value.isGenerator() && value.toGenerator().device().type() == kNeuron) {
    return generator_or_default(value.toGenerator(), c10::Device(kNeuron, device_)).cpu_generator();
  }
  return replace_tensors(value, [this](const at::Tensor& tensor) { return view_of(tensor); });
}

at::Tensor FallbackArguments::view_of(const at::Tensor& tensor) {
  if (!is_neuron(tensor)) {
    return tensor;
  }
  for (const Mapped& mapped : mapped_) {
    if (mapped.tensor.is_same(tensor)) {
      return mapped.view;
    }
  }
  if (has_parts(tensor)) {
    at::Tensor view = with_parts(tensor, c10::kCPU, [this](const at::Tensor& part) { return view_of(part); });
    mapped_.push_back({tensor, view, nullptr});
    return view;
  }
  at::Tensor view = cpu_view(tensor);
  // Tensors on one storage get views on one storage, and a kernel may resize its output.
  c10::StorageImpl* device_storage = tensor.storage().unsafeGetStorageImpl();
  const auto known = std::find_if(storages_.begin(), storages_.end(), [&](const auto& pair) {
    return pair.second.unsafeGetStorageImpl() == device_storage;
  });
  if (known != storages_.end()) {
    view.unsafeGetTensorImpl()->set_storage_keep_dtype(known->first);
  } else {
    view.storage().unsafeGetStorageImpl()->set_resizable(device_storage->resizable());
    storages_.emplace_back(view.storage(), tensor.storage());
  }
  mapped_.push_back({tensor, view, view.storage().data()});
  return view;
}

void FallbackArguments::propagate_resizes() {
  for (Mapped& mapped : mapped_) {
    if (has_parts(mapped.tensor)) {
      set_parts(mapped.tensor, mapped.view, [this](const at::Tensor& part) { return to_device(part); });
      continue;
    }
    c10::TensorImpl& from = *mapped.view.unsafeGetTensorImpl();
    c10::TensorImpl& to = *mapped.tensor.unsafeGetTensorImpl();
    c10::StorageImpl* kernel_storage = from.unsafe_storage().unsafeGetStorageImpl();
    c10::StorageImpl* device_storage = to.unsafe_storage().unsafeGetStorageImpl();
    if (kernel_storage->data() != mapped.data && kernel_storage->data() != device_storage->data()) {
      device_storage->set_data_ptr_noswap(
          adopt(kernel_storage->set_data_ptr(c10::DataPtr()), kernel_storage->nbytes(), current_stream(device_)));
      device_storage->set_nbytes(kernel_storage->nbytes());
    }
    if (from.sizes() != to.sizes() || from.strides() != to.strides() || from.storage_offset() != to.storage_offset()) {
      to.set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
    }
  }
}

c10::IValue FallbackArguments::to_device(const c10::IValue& result) {
  return replace_tensors(result, [this](const at::Tensor& tensor) { return to_device(tensor); });
}

at::Tensor FallbackArguments::to_device(const at::Tensor& result) {
  if (!result.defined() || !result.is_cpu()) {
    return result;
  }
  for (const Mapped& mapped : mapped_) {
    if (mapped.view.is_same(result)) {
      return mapped.tensor;
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !result.is_quantized() && result.layout() != c10::kMkldnn, "a ",
      result.is_quantized() ? "quantized tensor" : "tensor of oneDNN's layout",
      " cannot lie on a neuron device: make it on the cpu");
  if (has_parts(result)) {
    return with_parts(
        result, c10::Device(kNeuron, device_), [this](const at::Tensor& part) { return to_device(part); });
  }
  c10::StorageImpl* kernel_storage = result.storage().unsafeGetStorageImpl();
  auto known = std::find_if(storages_.begin(), storages_.end(), [&](const auto& pair) {
    return pair.first.unsafeGetStorageImpl() == kernel_storage;
  });
  if (known == storages_.end()) {
    const size_t bytes = kernel_storage->nbytes();
    c10::Storage storage(
        c10::Storage::use_byte_size_t(), bytes,
        adopt(kernel_storage->set_data_ptr(c10::DataPtr()), bytes, current_stream(device_)), &device_memory(), true);
    storages_.emplace_back(result.storage(), storage);
    known = std::prev(storages_.end());
  }
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(known->second), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), result.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(), result.storage_offset());
  if (result.is_conj()) {
    tensor._set_conj(true);
  }
  if (result.is_neg()) {
    tensor._set_neg(true);
  }
  return tensor;
}

}  // namespace torchneuron
