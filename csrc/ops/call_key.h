#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/hash.h>

#include <optional>
#include <vector>

namespace torchneuron {

// Whatever of a call of an operator may have a say in the geometry of its results.
using CallKey = std::vector<int64_t>;

struct CallKeyHash {
  size_t operator()(const CallKey& key) const {
    size_t hash = key.size();
    for (const int64_t part : key) {
      hash = c10::hash_combine(hash, static_cast<size_t>(part));
    }
    return hash;
  }
};

// The key of the call with `tensors` in the place of those in `arguments`. None if it has a tensor of the host, whose
// values the kernel may look at when it computes sizes, or an argument of a rare kind.
std::optional<CallKey> call_key(
    const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const std::vector<at::Tensor>& tensors);

// The place of the first of `tensors` that is `tensor`.
size_t first_alike(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor);

}  // namespace torchneuron
