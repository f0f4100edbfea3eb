#pragma once

#include "engine/launch.h"
#include "ops/unstructured.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/ForeachUtils.h>

#include <vector>

// _foreach_*: one launch for a whole list. It is taken where every result has the dtype and the geometry of its `self`,
// which is what optimisers ask for; else PyTorch's own loop calls one operator for each tensor, with all of CPU's
// promotion and errors.
namespace torchneuron::foreach {

using Views = const std::vector<at::Tensor>&;

// Whether lists can go in one launch: of real floating tensors on one neuron device that agree in dtype, sizes and
// strides, with scalars that do not change the dtype.
inline bool fits_one_launch(at::ArrayRef<at::TensorList> lists, at::ArrayRef<at::Scalar> scalars = {}) {
  const at::Tensor& first = lists[0][0];
  return first.device().type() == kNeuron && at::isFloatingType(first.scalar_type()) &&
         at::native::can_use_fast_route(lists, scalars);
}

inline std::vector<at::Tensor> results_like(at::TensorList self) {
  std::vector<at::Tensor> results;
  results.reserve(self.size());
  for (const at::Tensor& tensor : self) {
    results.push_back(new_like(tensor));
  }
  return results;
}

// Runs kernel(out, self, i) for each tensor of a list; without `out`, into `self`.
template <typename Kernel>
void for_each(Views self, Views out, const Kernel& kernel) {
  for (size_t i = 0; i < self.size(); ++i) {
    at::Tensor target = out.empty() ? self[i] : out[i];
    kernel(target, self[i], i);
  }
}

}  // namespace torchneuron::foreach
