#pragma once

#include <c10/core/Device.h>

#include <optional>

namespace torchneuron {

inline constexpr c10::DeviceType kNeuron = c10::DeviceType::PrivateUse1;

// The calling thread's device; starts at LOCAL_RANK among the visible cores.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::DeviceIndex exchange_device(c10::DeviceIndex index);

// `device` with an index: the current device's where it has none. Throws for an index out of range.
c10::Device with_index(std::optional<c10::Device> device);
void check_device_index(c10::DeviceIndex index);

// Called on every first touch of the device. Throws in a forked child of a process that had used it,
// and when the environment describes no valid device.
void ensure_usable();
bool initialized() noexcept;

// True in a child forked after the parent had used the device.
bool in_bad_fork() noexcept;

}  // namespace torchneuron
