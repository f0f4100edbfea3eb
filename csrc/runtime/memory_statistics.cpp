#include "runtime/memory_pool.h"

// What can be read of a pool: counts, peaks and the list of its segments.
namespace torchneuron {

using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::SegmentInfo;

DeviceStats MemoryPool::stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  collect_pending();
  auto stats = stats_;
  for (const auto& [address, head] : segments_) {
    for (const Block* block = head; block != nullptr; block = block->next) {
      if (block->free && (block->previous != nullptr || block->next != nullptr)) {
        const size_t types[] = {0, pool_type(*block->list)};
        for (const size_t type : types) {
          stats.inactive_split[type].increase(1);
          stats.inactive_split_bytes[type].increase(block->size);
        }
      }
    }
  }
  return stats;
}

void MemoryPool::reset_accumulated_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  for_each_stat([](auto& stat) { stat.reset_accumulated(); });
  stats_.num_alloc_retries = stats_.num_ooms = stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = stats_.num_device_free = 0;
}

void MemoryPool::reset_peak_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  for_each_stat([](auto& stat) { stat.reset_peak(); });
}

std::vector<SegmentInfo> MemoryPool::segments() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<SegmentInfo> result;
  for (const auto& [address, head] : segments_) {
    SegmentInfo segment;
    segment.device = device_;
    segment.address = reinterpret_cast<size_t>(address);
    segment.stream = head->stream;
    segment.is_large = !head->list->small;
    segment.owner_private_pool_id = head->list->owner != nullptr ? head->list->owner->id : c10::MempoolId_t{0, 0};
    for (const Block* block = head; block != nullptr; block = block->next) {
      BlockInfo info;
      info.size = block->size;
      info.requested_size = block->requested;
      info.allocated = block->allocated;
      info.active = !block->free;
      info.context_when_allocated = block->context;
      segment.total_size += block->size;
      segment.requested_size += block->requested;
      segment.allocated_size += block->allocated ? block->size : 0;
      segment.active_size += info.active ? block->size : 0;
      segment.blocks.push_back(std::move(info));
    }
    result.push_back(std::move(segment));
  }
  return result;
}

}  // namespace torchneuron
