#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace torchneuron {

// Uninitialised memory on `device`, without the dispatcher: for operators that allocate their own outputs.
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, c10::Device device);

// Gives `storage` new memory of `new_bytes` on its device; what fits of the old content is copied on the stream.
void resize_storage(const c10::Storage& storage, size_t new_bytes);

}  // namespace torchneuron
