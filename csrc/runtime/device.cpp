#include "runtime/device.h"

#include "runtime/topology.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <atomic>
#include <mutex>

namespace torchneuron {

namespace {

std::atomic<bool> used{false};
std::atomic<bool> forked_after_use{false};
thread_local c10::DeviceIndex thread_device = -1;

// Every rank of torchrun starts on a core of its own.
c10::DeviceIndex first_device() {
  const c10::DeviceIndex count = device_count();
  return count <= 0 ? 0 : static_cast<c10::DeviceIndex>(topology().local_rank % count);
}

// A wrong environment explains itself in topology().
void check_any_core() {
  TORCH_CHECK(
      !topology().cores.empty(),
      "No neuron device is visible: NEURON_RT_VISIBLE_CORES or NEURON_RT_NUM_CORES leaves no core");
}

}  // namespace

c10::DeviceIndex current_device() {
  if (C10_UNLIKELY(thread_device < 0)) {
    thread_device = first_device();
  }
  return thread_device;
}

void check_device_index(c10::DeviceIndex index) {
  if (C10_UNLIKELY(index < 0 || index >= device_count())) {
    check_any_core();
    TORCH_CHECK_VALUE(
        false, "neuron device index must be in [0, ", static_cast<int>(device_count()) - 1, "], but got ",
        static_cast<int>(index));
  }
}

void set_current_device(c10::DeviceIndex index) {
  check_device_index(index);
  thread_device = index;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  const c10::DeviceIndex previous = current_device();
  if (index >= 0 && index != previous) {
    set_current_device(index);
  }
  return previous;
}

c10::Device with_index(std::optional<c10::Device> device) {
  if (!device.has_value() || !device->has_index()) {
    return c10::Device(kNeuron, current_device());
  }
  check_device_index(device->index());
  return *device;
}

void ensure_usable() {
  if (C10_LIKELY(used.load(std::memory_order_acquire) && !forked_after_use.load(std::memory_order_relaxed))) {
    return;
  }
  TORCH_CHECK(
      !in_bad_fork(),
      "Cannot re-initialize neuron in forked subprocess. To use neuron with multiprocessing, you must use the 'spawn' "
      "start method");
  check_any_core();
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { forked_after_use.store(true); });
    used.store(true, std::memory_order_release);
  });
}

bool initialized() noexcept { return used.load() && !forked_after_use.load(); }

bool in_bad_fork() noexcept { return forked_after_use.load(); }

}  // namespace torchneuron
