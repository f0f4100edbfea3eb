#include "runtime/allocator.h"

#include "runtime/memory_pool.h"
#include "runtime/stream.h"
#include "runtime/topology.h"

#include <c10/util/Exception.h>

#include <array>
#include <cstring>

namespace torchneuron {

namespace {

MemoryPool& pool_of(c10::DeviceIndex device) {
  static auto* pools = [] {
    auto* made = new std::array<std::atomic<MemoryPool*>, 128>();
    return made;
  }();
  std::atomic<MemoryPool*>& slot = (*pools)[device];
  MemoryPool* pool = slot.load(std::memory_order_acquire);
  if (C10_UNLIKELY(pool == nullptr)) {
    check_device_index(device);
    auto* made = new MemoryPool(device, topology().cores[device].hbm_bytes);
    if (slot.compare_exchange_strong(pool, made)) {
      pool = made;
    } else {
      delete made;
    }
  }
  return *pool;
}

void free_block(void* context) {
  // In a forked child the lock may be held by a thread that does not exist there.
  if (!in_bad_fork()) {
    auto* block = static_cast<Block*>(context);
    pool_of(block->device).free(block);
  }
}

c10::DeviceIndex checked(c10::DeviceIndex device) {
  check_device_index(device);
  return device;
}

}  // namespace

c10::DataPtr DeviceMemory::allocate(size_t nbytes) { return allocate_on(nbytes, current_stream(current_device())); }

c10::DataPtr DeviceMemory::allocate_on(size_t nbytes, Stream& stream) {
  const c10::Device device(kNeuron, stream.device());
  if (nbytes == 0) {
    return {nullptr, device};
  }
  ensure_usable();
  Block* block = pool_of(stream.device()).allocate(nbytes, stream);
  return {block->ptr, block, &free_block, device};
}

void DeviceMemory::copy_data(void* dest, const void* src, size_t count) const { std::memcpy(dest, src, count); }

bool DeviceMemory::initialized() { return torchneuron::initialized(); }

void DeviceMemory::emptyCache(c10::MempoolId_t) {
  for (c10::DeviceIndex device = 0; initialized() && device < device_count(); ++device) {
    MemoryPool& pool = pool_of(device);
    if (pool.reserved() > 0) {
      synchronize_for_release(device);
      pool.release_cached();
    }
  }
}

void DeviceMemory::recordStream(const c10::DataPtr& ptr, c10::Stream stream) {
  if (ptr.get() == nullptr || ptr.get_deleter() != &free_block) {
    return;
  }
  auto* block = static_cast<Block*>(ptr.get_context());
  pool_of(block->device).record_use(block, stream_of(stream));
}

c10::CachingDeviceAllocator::DeviceStats DeviceMemory::getDeviceStats(c10::DeviceIndex device) {
  return pool_of(checked(device)).stats();
}

void DeviceMemory::resetAccumulatedStats(c10::DeviceIndex device) {
  pool_of(checked(device)).reset_accumulated_stats();
}

void DeviceMemory::resetPeakStats(c10::DeviceIndex device) { pool_of(checked(device)).reset_peak_stats(); }

std::pair<size_t, size_t> DeviceMemory::getMemoryInfo(c10::DeviceIndex device) {
  MemoryPool& pool = pool_of(checked(device));
  return {pool.capacity() - pool.reserved(), pool.capacity()};
}

void DeviceMemory::set_memory_fraction(double fraction, c10::DeviceIndex device) {
  TORCH_CHECK_VALUE(fraction >= 0.0 && fraction <= 1.0, "invalid fraction: ", fraction, "; it must be in [0, 1]");
  pool_of(checked(device)).set_fraction(fraction);
}

double DeviceMemory::memory_fraction(c10::DeviceIndex device) { return pool_of(checked(device)).fraction(); }

std::vector<c10::CachingDeviceAllocator::SegmentInfo> DeviceMemory::segments(c10::DeviceIndex device) {
  return pool_of(checked(device)).segments();
}

std::vector<c10::CachingDeviceAllocator::TraceEntry> DeviceMemory::trace(c10::DeviceIndex device) {
  return pool_of(checked(device)).history().entries();
}

void DeviceMemory::record_history(
    c10::CachingDeviceAllocator::RecordContext when, c10::CachingDeviceAllocator::CreateContextFn create_context,
    size_t max_entries, bool clear_history) {
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    pool_of(device).history().configure(when, create_context, max_entries, clear_history);
  }
}

void DeviceMemory::begin_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool, const Stream* stream) {
  pool_of(checked(device)).begin_private(pool, stream);
}

void DeviceMemory::end_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  pool_of(checked(device)).end_private(pool);
}

void DeviceMemory::release_pool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  pool_of(checked(device)).release_private(pool);
}

std::optional<c10::DeviceIndex> DeviceMemory::device_of(const void* ptr) const {
  for (c10::DeviceIndex device = 0; torchneuron::initialized() && device < device_count(); ++device) {
    if (pool_of(device).owns(ptr)) {
      return device;
    }
  }
  return std::nullopt;
}

DeviceMemory& device_memory() {
  static auto* memory = new DeviceMemory();
  return *memory;
}

namespace {
const bool memory_registered = [] {
  c10::SetAllocator(kNeuron, &device_memory());
  return true;
}();
}  // namespace

}  // namespace torchneuron
