#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

// A sparse tensor is a host object around strided tensors: indices and values.
namespace torchneuron {

using PartMap = std::function<at::Tensor(const at::Tensor&)>;

// A tensor on `device` that is as `sparse`, of `map(part)` for each of its parts.
at::Tensor with_parts(const at::Tensor& sparse, c10::Device device, const PartMap& map);

// Gives `to` the geometry of `from` and `map(part)` for each of its parts.
void set_parts(const at::Tensor& to, const at::Tensor& from, const PartMap& map);

}  // namespace torchneuron
