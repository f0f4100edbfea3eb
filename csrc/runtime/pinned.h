#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace torchneuron {

// Host memory that copies read and write asynchronously. On the emulated device any host memory could be; what pinning
// changes is the contract, so only memory from here counts as pinned.
at::HostAllocator& pinned_memory();
bool is_pinned(const void* ptr);

}  // namespace torchneuron
