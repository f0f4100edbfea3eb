#include "runtime/sync_debug.h"

#include <c10/util/Exception.h>

#include <atomic>

namespace torchneuron {

namespace {
std::atomic<SyncDebugMode> debug_mode{SyncDebugMode::kDefault};
}  // namespace

SyncDebugMode sync_debug_mode() noexcept { return debug_mode.load(std::memory_order_relaxed); }

void set_sync_debug_mode(SyncDebugMode mode) noexcept { debug_mode.store(mode, std::memory_order_relaxed); }

void report_synchronization() {
  switch (sync_debug_mode()) {
    case SyncDebugMode::kDefault:
      return;
    case SyncDebugMode::kWarn:
      TORCH_WARN("called a synchronizing neuron operation");
      return;
    case SyncDebugMode::kError:
      TORCH_CHECK(false, "called a synchronizing neuron operation");
  }
}

}  // namespace torchneuron
