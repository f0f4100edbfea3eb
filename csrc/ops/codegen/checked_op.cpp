#include "ops/codegen/checked_op.h"

#include <ATen/DimVector.h>
#include <ATen/EmptyTensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

namespace torchneuron {

std::exception_ptr CheckedOp::refusal_of(c10::function_ref<void()> attempt) {
  try {
    const TaskScope scope;
    attempt();
  } catch (const c10::NotImplementedError&) {
    return std::current_exception();
  } catch (const std::exception&) {  // about sizes or values, which are not the real ones
  }
  return nullptr;
}

void CheckedOp::conclude(uint64_t dtypes, const std::exception_ptr& refusal, std::optional<at::Device> device) {
  if (refusal != nullptr && device.has_value()) {
    Stream& stream = current_stream(device->index());
    if (stream.capturing() != nullptr) {
      return;
    }
    // Another kernel may be chosen for one element than for the real sizes: only the worker can tell.
    try {
      stream.synchronize();
    } catch (const c10::NotImplementedError&) {
      std::rethrow_exception(refusal);
    }
  }
  known_[next_.fetch_add(1, std::memory_order_relaxed) % known_.size()].store(dtypes, std::memory_order_relaxed);
}

at::Tensor CheckedOp::one_element(const at::Tensor& tensor, bool output) {
  if (!tensor.defined()) {
    return tensor;
  }
  at::DimVector sizes(output ? 1 : tensor.dim(), 0);
  if (!output) {
    std::transform(tensor.sizes().begin(), tensor.sizes().end(), sizes.begin(), [](int64_t size) {
      return std::min<int64_t>(size, 1);
    });
  }
  at::Tensor element = at::detail::empty_cpu(sizes, tensor.scalar_type());
  if (element.nbytes() > 0) {
    std::memset(element.mutable_data_ptr(), 0, element.nbytes());
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    element.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return element;
}

std::vector<at::Tensor> CheckedOp::one_element(const at::ITensorListRef& tensors, bool output) {
  std::vector<at::Tensor> elements;
  elements.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    elements.push_back(one_element(tensor, output));
  }
  return elements;
}

}  // namespace torchneuron
