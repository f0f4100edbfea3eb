#pragma once

#include "runtime/memory_history.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace torchneuron {

class Stream;
struct FreeList;

// A piece of a segment, i.e. of one contiguous mapping. The first block of a segment has no `previous`.
struct Block {
  c10::DeviceIndex device;
  Stream* stream;  // whose order makes reuse safe
  std::byte* ptr;
  size_t size;             // bytes, a multiple of 512
  size_t requested = 0;    // bytes asked for
  FreeList* list;          // where it goes when free
  bool allocated = false;  // owned by a tensor
  bool free = false;       // in its list; a block in neither state waits for another stream
  uint64_t freed_at = 0;   // tasks launched on `stream` when it was freed
  Block* previous = nullptr;
  Block* next = nullptr;
  std::vector<Stream*> other_streams;  // from record_stream
  std::shared_ptr<c10::GatheredContext> context;
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->ptr < b->ptr;
  }
};

struct PrivatePool;

// The free blocks of one stream and size class.
struct FreeList {
  bool small;
  PrivatePool* owner;  // null for the ordinary pool
  std::set<Block*, BySize> blocks;
};

// Memory that a graph keeps: its blocks are reused only within the pool, until the last user releases it.
struct PrivatePool {
  c10::MempoolId_t id;
  int users = 0;
  std::map<std::pair<Stream*, bool>, FreeList> lists;
};

// The memory of one core. Best fit within the pool of a stream; segments as torch.cuda's allocator sizes them. Since
// the emulated memory is virtual, free parts of a segment can be unmapped too, so fragmentation never exhausts the
// limit.
class MemoryPool {
 public:
  MemoryPool(c10::DeviceIndex device, size_t capacity);

  // Throws c10::OutOfMemoryError when the bytes are not there after cached blocks were released.
  Block* allocate(size_t nbytes, Stream& stream);
  void free(Block* block) noexcept;
  void record_use(Block* block, Stream& stream);
  // Unmaps every free block that no queued task can still touch.
  void release_cached();

  size_t capacity() const { return capacity_; }
  size_t reserved();
  void set_fraction(double fraction);
  double fraction();

  c10::CachingDeviceAllocator::DeviceStats stats();
  void reset_accumulated_stats();
  void reset_peak_stats();
  std::vector<c10::CachingDeviceAllocator::SegmentInfo> segments();
  MemoryHistory& history() { return history_; }
  bool owns(const void* ptr);

  void begin_private(c10::MempoolId_t id, const Stream* stream);
  void end_private(c10::MempoolId_t id);
  void release_private(c10::MempoolId_t id);

 private:
  using Context = std::shared_ptr<c10::GatheredContext>;

  struct PendingFree {
    Block* block;
    std::vector<std::pair<Stream*, uint64_t>> uses;
  };
  struct Redirect {
    PrivatePool* pool;
    const Stream* stream;  // null: what `thread` allocates
    std::thread::id thread;
  };

  FreeList& list_for(Stream& stream, bool small);
  Block* take_free(FreeList& list, size_t size);
  Block* map_segment(FreeList& list, Stream& stream, size_t size, const Context& context);
  Block* allocate_under_pressure(
      std::unique_lock<std::mutex>& lock, Stream& stream, bool small, size_t size, const Context& context);
  void split(Block* block, size_t size);
  void make_free(Block* block);
  void collect_pending();
  bool has_pending() const { return !pending_.empty(); }
  void release_all();
  void unmap(Block* block);
  size_t limit() const { return static_cast<size_t>(fraction_ * static_cast<double>(capacity_)); }
  [[noreturn]] void raise_out_of_memory(std::unique_lock<std::mutex>& lock, size_t requested);

  static bool is_free(const Block* block) { return block->free; }
  static size_t address(const Block* block) { return reinterpret_cast<size_t>(block->ptr); }
  static size_t pool_type(const FreeList& list) {
    using c10::CachingAllocator::StatType;
    return static_cast<size_t>(list.small ? StatType::SMALL_POOL : StatType::LARGE_POOL);
  }
  // Calls update(type) for the aggregate and for the size class of `list`.
  template <typename Update>
  static void update_stats(const FreeList& list, Update&& update) {
    update(size_t{0});
    update(pool_type(list));
  }
  template <typename Visit>
  void for_each_stat(Visit&& visit) {
    for (auto* stats :
         {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.allocated_bytes, &stats_.reserved_bytes,
          &stats_.active_bytes, &stats_.requested_bytes}) {
      for (auto& stat : *stats) {
        visit(stat);
      }
    }
  }

  const c10::DeviceIndex device_;
  const size_t capacity_;
  double fraction_ = 1.0;

  std::mutex mutex_;
  size_t reserved_bytes_ = 0;
  std::map<std::pair<Stream*, bool>, FreeList> lists_;
  std::map<c10::MempoolId_t, PrivatePool> private_pools_;
  std::vector<Redirect> redirects_;
  std::vector<PendingFree> pending_;
  std::map<std::byte*, Block*> segments_;  // first block of each segment, by address
  c10::CachingDeviceAllocator::DeviceStats stats_;
  MemoryHistory history_;
};

// Waits until the queued work of `device` has run, so that freed blocks can be unmapped. Raises nothing.
void synchronize_for_release(c10::DeviceIndex device);

}  // namespace torchneuron
