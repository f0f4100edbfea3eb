#include "runtime/memory_pool.h"

#include "runtime/blocking.h"
#include "runtime/stream.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace torchneuron {

using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::TraceEntry;

namespace {

// The sizes of torch.cuda's allocator, so that its users' intuition and tools carry over.
constexpr size_t kMinBlock = 512;
constexpr size_t kSmallLimit = size_t{1} << 20;
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kMinLargeAllocation = size_t{10} << 20;
constexpr size_t kLargeSegment = size_t{20} << 20;
constexpr size_t kLargeRound = size_t{2} << 20;

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

size_t page_size() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t segment_size(size_t size) {
  if (size <= kSmallLimit) {
    return kSmallSegment;
  }
  return size < kMinLargeAllocation ? kLargeSegment : round_up(size, kLargeRound);
}

std::byte* map_pages(size_t size) {
  void* ptr = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (ptr == MAP_FAILED) {
    return nullptr;
  }
  madvise(ptr, size, MADV_HUGEPAGE);  // fewer page faults; a host without huge pages ignores it
  return static_cast<std::byte*>(ptr);
}

}  // namespace

MemoryPool::MemoryPool(c10::DeviceIndex device, size_t capacity) : device_(device), capacity_(capacity) {}

Block* MemoryPool::allocate(size_t nbytes, Stream& stream) {
  // Before the lock: it takes the GIL, which a thread that waits for the lock may hold.
  auto context = history_.enabled() ? history_.gather(RecordContext::STATE) : nullptr;
  // A size that would overflow the rounding cannot fit either.
  const size_t size = nbytes > capacity_ ? nbytes : round_up(nbytes, kMinBlock);
  const bool small = size <= kSmallLimit;
  std::unique_lock<std::mutex> lock(mutex_);
  if (C10_UNLIKELY(has_pending())) {
    collect_pending();
  }
  FreeList& list = list_for(stream, small);
  Block* block = take_free(list, size);
  if (C10_UNLIKELY(block == nullptr)) {
    block = size <= capacity_ ? map_segment(list, stream, segment_size(size), context) : nullptr;
    if (block == nullptr) {
      block = allocate_under_pressure(lock, stream, small, size, context);
    }
    if (block == nullptr) {
      ++stats_.num_ooms;
      if (history_.enabled()) {
        history_.add(TraceEntry::OOM, device_, limit() - reserved_bytes_, nbytes, &stream, context);
      }
      raise_out_of_memory(lock, nbytes);
    }
  }
  if (block->size >= size + (small ? kMinBlock : kSmallLimit)) {
    split(block, size);
  }
  block->allocated = true;
  block->requested = nbytes;
  block->context = std::move(context);
  update_stats(*block->list, [&](size_t type) {
    stats_.allocation[type].increase(1);
    stats_.active[type].increase(1);
    stats_.allocated_bytes[type].increase(block->size);
    stats_.active_bytes[type].increase(block->size);
    stats_.requested_bytes[type].increase(nbytes);
  });
  if (C10_UNLIKELY(history_.enabled())) {
    history_.add(TraceEntry::ALLOC, device_, address(block), block->size, block->stream, block->context);
  }
  c10::reportMemoryUsageToProfiler(
      block->ptr, static_cast<int64_t>(block->size), stats_.allocated_bytes[0].current, reserved_bytes_,
      c10::Device(kNeuron, device_));
  return block;
}

void MemoryPool::free(Block* block) noexcept {
  auto context = history_.enabled() ? history_.gather(RecordContext::ALL) : nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  block->allocated = false;
  block->freed_at = block->stream->launched();
  update_stats(*block->list, [&](size_t type) {
    stats_.allocation[type].decrease(1);
    stats_.allocated_bytes[type].decrease(block->size);
    stats_.requested_bytes[type].decrease(block->requested);
  });
  if (C10_UNLIKELY(history_.enabled())) {
    history_.add(TraceEntry::FREE_REQUESTED, device_, address(block), block->size, block->stream, std::move(context));
  }
  c10::reportMemoryUsageToProfiler(
      block->ptr, -static_cast<int64_t>(block->size), stats_.allocated_bytes[0].current, reserved_bytes_,
      c10::Device(kNeuron, device_));
  if (C10_UNLIKELY(!block->other_streams.empty())) {
    PendingFree pending{block, {}};
    for (Stream* other : block->other_streams) {
      pending.uses.emplace_back(other, other->launched());
    }
    block->other_streams.clear();
    pending_.push_back(std::move(pending));
    return;
  }
  make_free(block);
}

void MemoryPool::record_use(Block* block, Stream& stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& others = block->other_streams;
  if (&stream != block->stream && std::find(others.begin(), others.end(), &stream) == others.end()) {
    others.push_back(&stream);
  }
}

// Blocks that other streams used return to their pool once those streams have passed the point of the free.
void MemoryPool::collect_pending() {
  std::erase_if(pending_, [this](const PendingFree& pending) {
    for (const auto& [stream, sequence] : pending.uses) {
      if (stream->completed() < sequence) {
        return false;
      }
    }
    make_free(pending.block);
    return true;
  });
}

void MemoryPool::make_free(Block* block) {
  update_stats(*block->list, [&](size_t type) {
    stats_.active[type].decrease(1);
    stats_.active_bytes[type].decrease(block->size);
  });
  if (C10_UNLIKELY(history_.enabled())) {
    history_.add(TraceEntry::FREE_COMPLETED, device_, address(block), block->size, block->stream, nullptr);
  }
  block->requested = 0;
  block->context.reset();
  auto& free_blocks = block->list->blocks;
  if (Block* next = block->next; next != nullptr && is_free(next)) {
    free_blocks.erase(next);
    block->size += next->size;
    block->freed_at = std::max(block->freed_at, next->freed_at);
    block->next = next->next;
    if (block->next != nullptr) {
      block->next->previous = block;
    }
    delete next;
  }
  if (Block* previous = block->previous; previous != nullptr && is_free(previous)) {
    free_blocks.erase(previous);
    previous->size += block->size;
    previous->freed_at = std::max(previous->freed_at, block->freed_at);
    previous->next = block->next;
    if (previous->next != nullptr) {
      previous->next->previous = previous;
    }
    delete block;
    block = previous;
  }
  block->free = true;
  free_blocks.insert(block);
}

Block* MemoryPool::take_free(FreeList& list, size_t size) {
  Block wanted{.device = device_, .stream = nullptr, .ptr = nullptr, .size = size, .list = &list};
  auto it = list.blocks.lower_bound(&wanted);
  if (it == list.blocks.end()) {
    return nullptr;
  }
  Block* block = *it;
  list.blocks.erase(it);
  block->free = false;
  return block;
}

void MemoryPool::split(Block* block, size_t size) {
  Block* rest = new Block{
      .device = device_,
      .stream = block->stream,
      .ptr = block->ptr + size,
      .size = block->size - size,
      .list = block->list,
      .free = true,
      .freed_at = block->freed_at,
      .previous = block,
      .next = block->next};
  if (rest->next != nullptr) {
    rest->next->previous = rest;
  }
  block->next = rest;
  block->size = size;
  block->list->blocks.insert(rest);
}

Block* MemoryPool::map_segment(FreeList& list, Stream& stream, size_t size, const Context& context) {
  if (reserved_bytes_ + size > limit()) {
    return nullptr;
  }
  std::byte* ptr = map_pages(size);
  if (ptr == nullptr) {
    return nullptr;
  }
  Block* block = new Block{.device = device_, .stream = &stream, .ptr = ptr, .size = size, .list = &list};
  segments_[ptr] = block;
  reserved_bytes_ += size;
  ++stats_.num_device_alloc;
  update_stats(list, [&](size_t type) {
    stats_.segment[type].increase(1);
    stats_.reserved_bytes[type].increase(size);
  });
  if (C10_UNLIKELY(history_.enabled())) {
    history_.add(TraceEntry::SEGMENT_ALLOC, device_, address(block), size, &stream, context);
  }
  return block;
}

// The memory is short: gives back what is cached, waits for what queued work still holds, and takes an exact size.
Block* MemoryPool::allocate_under_pressure(
    std::unique_lock<std::mutex>& lock, Stream& stream, bool small, size_t size, const Context& context) {
  ++stats_.num_alloc_retries;
  if (size > capacity_) {
    return nullptr;
  }
  collect_pending();
  if (Block* block = take_free(list_for(stream, small), size); block != nullptr) {
    return block;
  }
  if (stream.capturing() != nullptr) {
    return nullptr;  // must not wait, and without waiting nothing can be unmapped
  }
  lock.unlock();
  synchronize_for_release(device_);
  lock.lock();
  ++stats_.num_sync_all_streams;
  collect_pending();
  FreeList& list = list_for(stream, small);
  if (Block* block = take_free(list, size); block != nullptr) {
    return block;
  }
  release_all();
  for (const size_t candidate : {segment_size(size), round_up(size, page_size())}) {
    if (Block* block = map_segment(list, stream, candidate, context); block != nullptr) {
      return block;
    }
  }
  return nullptr;
}

void MemoryPool::release_cached() {
  std::lock_guard<std::mutex> lock(mutex_);
  collect_pending();
  release_all();
}

// After a wait for the device, as cudaFree does it: a stream may read a block of another one without record_stream.
void MemoryPool::release_all() {
  const auto release_list = [this](FreeList& list) {
    const std::vector<Block*> candidates(list.blocks.begin(), list.blocks.end());
    for (Block* block : candidates) {
      if (block->freed_at <= block->stream->completed()) {
        unmap(block);
      }
    }
  };
  for (auto& [key, list] : lists_) {
    release_list(list);
  }
  for (auto& [id, pool] : private_pools_) {
    if (pool.users == 0) {
      for (auto& [key, list] : pool.lists) {
        release_list(list);
      }
    }
  }
}

// Unmaps the whole pages of a free block. What is left and right of them become the ends of two segments.
void MemoryPool::unmap(Block* block) {
  const auto begin = round_up(address(block), page_size());
  const auto end = (address(block) + block->size) / page_size() * page_size();
  if (begin >= end) {
    return;
  }
  const size_t head = begin - address(block);
  const size_t tail = address(block) + block->size - end;
  FreeList& list = *block->list;
  list.blocks.erase(block);
  block->free = false;
  if (tail > 0) {
    split(block, block->size - tail);
  }
  Block* hole = block;
  if (head > 0) {
    split(block, head);
    hole = block->next;
    list.blocks.erase(hole);
    hole->free = false;
    block->free = true;
    list.blocks.insert(block);
  }
  if (hole->previous == nullptr) {
    segments_.erase(hole->ptr);
  } else {
    hole->previous->next = nullptr;
  }
  if (hole->next != nullptr) {
    hole->next->previous = nullptr;
    segments_[hole->next->ptr] = hole->next;
  }
  const int segments_gained = (hole->previous != nullptr ? 1 : 0) + (hole->next != nullptr ? 1 : 0) - 1;
  munmap(hole->ptr, hole->size);
  reserved_bytes_ -= hole->size;
  ++stats_.num_device_free;
  update_stats(list, [&](size_t type) {
    if (segments_gained < 0) {
      stats_.segment[type].decrease(1);
    } else {
      stats_.segment[type].increase(segments_gained);
    }
    stats_.reserved_bytes[type].decrease(hole->size);
  });
  if (C10_UNLIKELY(history_.enabled())) {
    history_.add(TraceEntry::SEGMENT_FREE, device_, address(hole), hole->size, hole->stream, nullptr);
  }
  delete hole;
}

void MemoryPool::raise_out_of_memory(std::unique_lock<std::mutex>& lock, size_t requested) {
  size_t largest_cached = 0;
  for (auto& [key, list] : lists_) {
    if (!list.blocks.empty()) {
      largest_cached = std::max(largest_cached, (*list.blocks.rbegin())->size);
    }
  }
  const size_t allocated = static_cast<size_t>(stats_.allocated_bytes[0].current);
  const size_t reserved = reserved_bytes_;
  const size_t allowed = limit();
  const size_t free = allowed - std::min(reserved, allowed);
  const size_t largest = std::max(largest_cached, free);
  const double fraction = fraction_;
  lock.unlock();
  const c10::Device device(kNeuron, device_);
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(requested), allocated, reserved, device);
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, "neuron out of memory. Tried to allocate ",
      c10::CachingAllocator::format_size(requested), " on ", device, ", which has a capacity of ",
      c10::CachingAllocator::format_size(capacity_),
      fraction < 1.0
          ? c10::str(
                " (limited to ", c10::CachingAllocator::format_size(allowed), " by set_per_process_memory_fraction)")
          : "",
      ", of which ", c10::CachingAllocator::format_size(free), " is free. ",
      c10::CachingAllocator::format_size(allocated), " is allocated by PyTorch, ",
      c10::CachingAllocator::format_size(reserved), " is reserved, and the largest free block is ",
      c10::CachingAllocator::format_size(largest), ".");
}

void synchronize_for_release(c10::DeviceIndex device) {
  for_each_stream(device, [](Stream& stream) { stream.wait_for(stream.launched()); });
}

// --- pools of graphs -----------------------------------------------------------------------------------------------

FreeList& MemoryPool::list_for(Stream& stream, bool small) {
  PrivatePool* owner = nullptr;
  for (const Redirect& redirect : redirects_) {
    const bool applies = redirect.stream != nullptr ? redirect.stream == &stream || stream.capturing() != nullptr
                                                    : redirect.thread == std::this_thread::get_id();
    if (applies) {
      owner = redirect.pool;
    }
  }
  auto& lists = owner != nullptr ? owner->lists : lists_;
  return lists.try_emplace({&stream, small}, FreeList{small, owner, {}}).first->second;
}

void MemoryPool::begin_private(c10::MempoolId_t id, const Stream* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  PrivatePool& pool = private_pools_.try_emplace(id, PrivatePool{id, 0, {}}).first->second;
  ++pool.users;
  redirects_.push_back({&pool, stream, std::this_thread::get_id()});
}

void MemoryPool::end_private(c10::MempoolId_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = std::find_if(redirects_.rbegin(), redirects_.rend(), [&](const Redirect& r) { return r.pool->id == id; });
  if (it != redirects_.rend()) {
    redirects_.erase(std::next(it).base());
  }
}

void MemoryPool::release_private(c10::MempoolId_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (auto it = private_pools_.find(id); it != private_pools_.end() && it->second.users > 0) {
    --it->second.users;
  }
}

// --- limit and extent ------------------------------------------------------------------------------------------------

size_t MemoryPool::reserved() {
  std::lock_guard<std::mutex> lock(mutex_);
  return reserved_bytes_;
}

void MemoryPool::set_fraction(double fraction) {
  std::lock_guard<std::mutex> lock(mutex_);
  fraction_ = fraction;
}

double MemoryPool::fraction() {
  std::lock_guard<std::mutex> lock(mutex_);
  return fraction_;
}

bool MemoryPool::owns(const void* ptr) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto* byte = static_cast<std::byte*>(const_cast<void*>(ptr));
  auto it = segments_.upper_bound(byte);
  if (it == segments_.begin()) {
    return false;
  }
  const Block* last = std::prev(it)->second;
  while (last->next != nullptr) {
    last = last->next;
  }
  return byte < last->ptr + last->size;
}

}  // namespace torchneuron
