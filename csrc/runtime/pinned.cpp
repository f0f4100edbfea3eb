#include "runtime/pinned.h"

#include "runtime/device.h"
#include "runtime/stream.h"

#include <sys/mman.h>

#include <map>
#include <shared_mutex>

namespace torchneuron {

namespace {

// The mappings that were handed out or are cached, by address.
class PinnedRanges {
 public:
  void add(void* ptr, size_t size) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    ranges_[static_cast<std::byte*>(ptr)] = size;
  }
  size_t remove(void* ptr) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    auto it = ranges_.find(static_cast<std::byte*>(ptr));
    const size_t size = it->second;
    ranges_.erase(it);
    return size;
  }
  bool contains(const void* ptr) const {
    auto* byte = static_cast<std::byte*>(const_cast<void*>(ptr));
    std::shared_lock<std::shared_mutex> lock(mutex_);
    auto it = ranges_.upper_bound(byte);
    return it != ranges_.begin() && byte < std::prev(it)->first + std::prev(it)->second;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::byte*, size_t> ranges_;
};

PinnedRanges& ranges() {
  static auto* instance = new PinnedRanges();
  return *instance;
}

// The point of a stream that a pinned block must outlive.
struct StreamPoint {
  Stream* stream;
  uint64_t sequence;
};

struct PinnedAllocatorImpl final : public at::CachingHostAllocatorImpl<c10::Stream, StreamPoint> {
  void allocate_host_memory(size_t size, void** ptr) override {
    void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(pages != MAP_FAILED, "cannot allocate ", size, " bytes of pinned host memory: ", strerror(errno));
    ranges().add(pages, size);
    *ptr = pages;
  }
  void free_block(at::HostBlock<c10::Stream>* block) override { munmap(block->ptr_, ranges().remove(block->ptr_)); }
  void record_stream(std::optional<std::vector<StreamPoint>>& points, c10::Stream stream) override {
    Stream& used = stream_of(stream);
    points->push_back({&used, used.launched()});
  }
  bool query_event(StreamPoint& point) override { return point.stream->completed() >= point.sequence; }
  c10::Stream get_current_stream() const override { return current_stream(current_device()).handle(); }
  bool stream_is_capturing(c10::Stream stream) const override { return stream_of(stream).capturing() != nullptr; }
};

void free_pinned(void* context);

struct PinnedAllocator final : public at::CachingHostAllocatorInterface<PinnedAllocatorImpl, &free_pinned> {};

PinnedAllocator& allocator() {
  static auto* instance = new PinnedAllocator();
  return *instance;
}

void free_pinned(void* context) {
  if (!in_bad_fork()) {
    allocator().free(context);
  }
}

const bool pinned_registered = [] {
  at::setHostAllocator(kNeuron, &allocator());
  return true;
}();

}  // namespace

at::HostAllocator& pinned_memory() { return allocator(); }

bool is_pinned(const void* ptr) { return ptr != nullptr && ranges().contains(ptr); }

}  // namespace torchneuron
