#pragma once

namespace torchneuron {

// What a call that makes the host wait for a stream does, so that a program can find its waits.
enum class SyncDebugMode { kDefault, kWarn, kError };

SyncDebugMode sync_debug_mode() noexcept;
void set_sync_debug_mode(SyncDebugMode mode) noexcept;

// Called before such a wait: warns or throws as the mode says.
void report_synchronization();

}  // namespace torchneuron
