#pragma once

#include <c10/core/Storage.h>

namespace torchneuron {

// Moves the memory of `storage` (on neuron, not empty) into a file without a name, so that other processes can map it,
// and returns the descriptor, which the storage owns. Tensors on the storage keep working; a storage that is shared
// already stays where it is. Waits for the device.
int share_storage(const c10::Storage& storage);

// A storage on `neuron:device` over the first `nbytes` of the shared memory behind `descriptor`, which the caller
// keeps. What one process writes the others see. Counts against the device's limit.
c10::Storage open_shared_storage(int descriptor, size_t nbytes, c10::DeviceIndex device);

}  // namespace torchneuron
