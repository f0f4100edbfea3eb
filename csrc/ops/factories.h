#pragma once

#include <c10/core/Storage.h>

namespace torchneuron {

// Gives `storage` new memory of `new_bytes` on its device; what fits of the old content is copied on the stream.
void resize_storage(const c10::Storage& storage, size_t new_bytes);

}  // namespace torchneuron
