#include "ops/call_key.h"

#include "ops/fallback_arguments.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <bit>

namespace torchneuron {

size_t first_alike(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  return static_cast<size_t>(
      std::find_if(tensors.begin(), tensors.end(), [&](const at::Tensor& t) { return t.is_same(tensor); }) -
      tensors.begin());
}

namespace {

template <typename List>
void append_list(CallKey& key, const List& list) {
  key.push_back(static_cast<int64_t>(list.size()));
  key.insert(key.end(), list.begin(), list.end());
}

bool append(CallKey& key, const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    key.push_back(-1);
    return true;
  }
  if (!is_neuron(tensor) && tensor.dim() > 0) {
    return false;
  }
  key.push_back(static_cast<int64_t>(first_alike(tensors, tensor)));
  key.push_back(
      static_cast<int64_t>(tensor.scalar_type()) << 4 | is_neuron(tensor) << 3 | tensor.is_conj() << 2 |
      tensor.is_neg() << 1 | tensor.unsafeGetTensorImpl()->is_wrapped_number());
  append_list(key, tensor.sizes());
  append_list(key, tensor.strides());
  return true;
}

bool append(CallKey& key, const c10::IValue& value) {
  enum Kind : int64_t { kAbsent, kTensor, kInt, kBool, kDouble, kComplex, kInts, kBools, kDoubles, kString, kTensors };
  if (value.isNone()) {
    key.push_back(kAbsent);
  } else if (value.isTensor() || value.isDevice()) {
    key.push_back(kTensor);
  } else if (value.isInt()) {
    key.insert(key.end(), {kInt, value.toInt()});
  } else if (value.isBool()) {
    key.insert(key.end(), {kBool, value.toBool()});
  } else if (value.isDouble()) {
    key.insert(key.end(), {kDouble, std::bit_cast<int64_t>(value.toDouble())});
  } else if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    key.insert(key.end(), {kComplex, std::bit_cast<int64_t>(number.real()), std::bit_cast<int64_t>(number.imag())});
  } else if (value.isIntList()) {
    key.push_back(kInts);
    append_list(key, value.toIntVector());
  } else if (value.isBoolList()) {
    key.push_back(kBools);
    append_list(key, value.toBoolList().vec());
  } else if (value.isDoubleList()) {
    key.push_back(kDoubles);
    std::vector<int64_t> bits;
    for (const double number : value.toDoubleVector()) {
      bits.push_back(std::bit_cast<int64_t>(number));
    }
    append_list(key, bits);
  } else if (value.isString()) {
    key.push_back(kString);
    append_list(key, value.toStringView());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    key.insert(key.end(), {kTensors, static_cast<int64_t>(value.toListRef().size())});
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::optional<CallKey> call_key(
    const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const std::vector<at::Tensor>& tensors) {
  CallKey key{reinterpret_cast<int64_t>(&op.schema()), static_cast<int64_t>(c10::get_default_dtype_as_scalartype())};
  for (const c10::IValue& argument : arguments) {
    if (!append(key, argument)) {
      return std::nullopt;
    }
  }
  for (const at::Tensor& tensor : tensors) {
    if (!append(key, tensors, tensor)) {
      return std::nullopt;
    }
  }
  return key;
}

}  // namespace torchneuron
