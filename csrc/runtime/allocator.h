#pragma once

#include "runtime/device.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <memory>
#include <vector>

namespace torchneuron {

class Stream;

// The stream-ordered caching allocator of all devices. Memory is virtual until touched; the limit counts reserved
// bytes.
class DeviceMemory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override;
  // Memory of `stream`'s pool. Throws c10::OutOfMemoryError.
  c10::DataPtr allocate_on(size_t nbytes, Stream& stream);

  void copy_data(void* dest, const void* src, size_t count) const override;
  bool initialized() override;
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override;
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  // (free, total) bytes of the core's HBM.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override;

  void set_memory_fraction(double fraction, c10::DeviceIndex device);
  double memory_fraction(c10::DeviceIndex device);

  std::vector<c10::CachingDeviceAllocator::SegmentInfo> segments(c10::DeviceIndex device);
  std::vector<c10::CachingDeviceAllocator::TraceEntry> trace(c10::DeviceIndex device);
  void record_history(
      c10::CachingDeviceAllocator::RecordContext when, c10::CachingDeviceAllocator::CreateContextFn create_context,
      size_t max_entries, bool clear_history);

  // While set, allocations made for `stream` come from a private pool that outlives their tensors.
  void begin_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool, const Stream* stream);
  void end_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool);
  void release_pool(c10::DeviceIndex device, c10::MempoolId_t pool);

  // The device that `ptr` belongs to, or nullopt for memory that is not ours.
  std::optional<c10::DeviceIndex> device_of(const void* ptr) const;
};

DeviceMemory& device_memory();

}  // namespace torchneuron
