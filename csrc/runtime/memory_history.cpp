#include "runtime/memory_history.h"

namespace torchneuron {

using c10::CachingDeviceAllocator::RecordContext;

void MemoryHistory::add(
    Action action, c10::DeviceIndex device, size_t address, size_t size, void* stream,
    std::shared_ptr<c10::GatheredContext> context) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (max_entries_ == 0) {
    return;
  }
  if (entries_.size() == max_entries_) {
    entries_.pop_front();
  }
  entries_.emplace_back(
      action, device, address, size, stream, c10::MempoolId_t{0, 0}, c10::getApproximateTime(), std::move(context));
}

void MemoryHistory::configure(
    RecordContext when, c10::CachingDeviceAllocator::CreateContextFn create_context, size_t max_entries,
    bool clear_history) {
  std::lock_guard<std::mutex> lock(mutex_);
  when_ = when;
  create_context_ = create_context;
  max_entries_ = when == RecordContext::NEVER ? 0 : max_entries;
  if (clear_history || when == RecordContext::NEVER) {
    entries_.clear();
  }
}

std::shared_ptr<c10::GatheredContext> MemoryHistory::gather(RecordContext level) const {
  if (when_ < level || create_context_ == nullptr) {
    return nullptr;
  }
  return create_context_();
}

std::vector<c10::CachingDeviceAllocator::TraceEntry> MemoryHistory::entries() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {entries_.begin(), entries_.end()};
}

}  // namespace torchneuron
