#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <deque>
#include <mutex>

namespace torchneuron {

// What `torch.neuron.memory._record_memory_history` asked to keep: the last allocator actions, with stacks.
class MemoryHistory {
 public:
  using Action = c10::CachingDeviceAllocator::TraceEntry::Action;

  void configure(
      c10::CachingDeviceAllocator::RecordContext when, c10::CachingDeviceAllocator::CreateContextFn create_context,
      size_t max_entries, bool clear_history);

  // The stack to keep with an action at detail level `level`, or null.
  std::shared_ptr<c10::GatheredContext> gather(c10::CachingDeviceAllocator::RecordContext level) const;
  bool enabled() const { return when_ != c10::CachingDeviceAllocator::RecordContext::NEVER; }

  void add(
      Action action, c10::DeviceIndex device, size_t address, size_t size, void* stream,
      std::shared_ptr<c10::GatheredContext> context);
  std::vector<c10::CachingDeviceAllocator::TraceEntry> entries() const;

 private:
  mutable std::mutex mutex_;
  c10::CachingDeviceAllocator::RecordContext when_ = c10::CachingDeviceAllocator::RecordContext::NEVER;
  c10::CachingDeviceAllocator::CreateContextFn create_context_ = nullptr;
  size_t max_entries_ = 0;
  std::deque<c10::CachingDeviceAllocator::TraceEntry> entries_;
};

}  // namespace torchneuron
