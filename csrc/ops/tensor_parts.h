#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

// A sparse tensor is a host object around strided tensors: indices and values. A nested tensor is one around a buffer,
// with its geometry in host tensors on every device.
namespace torchneuron {

using PartMap = std::function<at::Tensor(const at::Tensor&)>;

inline bool has_parts(const at::Tensor& tensor) { return tensor.layout() != c10::kStrided || tensor.is_nested(); }

// A tensor on `device` that is as `tensor`, of `map(part)` for each of its parts.
at::Tensor with_parts(const at::Tensor& tensor, c10::Device device, const PartMap& map);

// Gives `to` the geometry of `from` and `map(part)` for each of its parts. A nested tensor stays as it is: no operator
// can give it another buffer or geometry.
void set_parts(const at::Tensor& to, const at::Tensor& from, const PartMap& map);

}  // namespace torchneuron
