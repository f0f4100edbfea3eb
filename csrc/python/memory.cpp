#include "python/bindings.h"
#include "runtime/allocator.h"
#include "runtime/pinned.h"
#include "runtime/stream.h"

#include <pybind11/stl.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace torchneuron {

namespace py = pybind11;

namespace {

using c10::CachingAllocator::DurationStat;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

py::dict to_dict(const Stat& stat) {
  py::dict result;
  result["current"] = stat.current;
  result["peak"] = stat.peak;
  result["allocated"] = stat.allocated;
  result["freed"] = stat.freed;
  return result;
}

py::dict to_dict(const StatArray& stats) {
  py::dict result;
  result["all"] = to_dict(stats[static_cast<size_t>(StatType::AGGREGATE)]);
  result["small_pool"] = to_dict(stats[static_cast<size_t>(StatType::SMALL_POOL)]);
  result["large_pool"] = to_dict(stats[static_cast<size_t>(StatType::LARGE_POOL)]);
  return result;
}

py::dict to_dict(const DurationStat& stat) {
  py::dict result;
  result["total"] = stat.total;
  result["max"] = stat.max;
  result["min"] = stat.min;
  result["count"] = stat.count;
  result["avg"] = stat.count == 0 ? 0 : stat.total / stat.count;
  return result;
}

// The layout of torch.cuda.memory_stats_as_nested_dict.
py::dict memory_stats(c10::DeviceIndex device) {
  check_device_index(device);
  DeviceStats stats;
  // In a forked child, the lock of the memory may be held by a thread that is not there.
  if (!in_bad_fork()) {
    py::gil_scoped_release no_gil;
    stats = device_memory().getDeviceStats(device);
  }
  py::dict result;
  result["num_alloc_retries"] = stats.num_alloc_retries;
  result["num_ooms"] = stats.num_ooms;
  result["num_oom_rejections"] = stats.num_oom_rejections;
  result["num_sync_all_streams"] = stats.num_sync_all_streams;
  result["num_device_alloc"] = stats.num_device_alloc;
  result["num_device_free"] = stats.num_device_free;
  result["max_split_size"] = stats.max_split_size;
  result["allocation"] = to_dict(stats.allocation);
  result["segment"] = to_dict(stats.segment);
  result["active"] = to_dict(stats.active);
  result["inactive_split"] = to_dict(stats.inactive_split);
  result["allocated_bytes"] = to_dict(stats.allocated_bytes);
  result["reserved_bytes"] = to_dict(stats.reserved_bytes);
  result["active_bytes"] = to_dict(stats.active_bytes);
  result["inactive_split_bytes"] = to_dict(stats.inactive_split_bytes);
  result["requested_bytes"] = to_dict(stats.requested_bytes);
  result["oversize_allocations"] = to_dict(stats.oversize_allocations);
  result["oversize_segments"] = to_dict(stats.oversize_segments);
  py::dict pools;
  for (const auto& [id, reserved] : stats.reserved_bytes_by_private_pools) {
    pools[py::make_tuple(id.first, id.second)] = to_dict(reserved);
  }
  result["reserved_bytes_by_private_pools"] = pools;
  return result;
}

// The layout of torch.cuda.host_memory_stats_as_nested_dict.
py::dict host_memory_stats() {
  const at::HostStats stats = pinned_memory().get_stats();
  py::dict result;
  result["num_host_alloc"] = stats.num_host_alloc;
  result["num_host_free"] = stats.num_host_free;
  result["allocations"] = to_dict(stats.allocations);
  result["active_requests"] = to_dict(stats.active_requests);
  result["allocated_bytes"] = to_dict(stats.allocated_bytes);
  result["active_bytes"] = to_dict(stats.active_bytes);
  result["host_alloc_time"] = to_dict(stats.host_alloc_time);
  result["host_free_time"] = to_dict(stats.host_free_time);
  return result;
}

// Memory that caching_allocator_alloc handed out as a bare address.
class RawAllocations {
 public:
  uintptr_t allocate(size_t nbytes, c10::DeviceIndex device, int64_t stream_id) {
    Stream& stream = stream_of(c10::Stream(c10::Stream::UNSAFE, c10::Device(kNeuron, device), stream_id));
    c10::DataPtr memory = device_memory().allocate_on(nbytes, stream);
    const auto address = reinterpret_cast<uintptr_t>(memory.get());
    std::lock_guard<std::mutex> lock(mutex_);
    if (address != 0) {
      memory_.emplace(address, std::move(memory));
    }
    return address;
  }

  void free(uintptr_t address) {
    c10::DataPtr memory;
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = memory_.find(address);
    TORCH_CHECK_VALUE(found != memory_.end() || address == 0, "not an address from caching_allocator_alloc: ", address);
    if (found != memory_.end()) {
      memory = std::move(found->second);
      memory_.erase(found);
    }
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uintptr_t, c10::DataPtr> memory_;
};

RawAllocations& raw_allocations() {
  static auto* allocations = new RawAllocations();
  return *allocations;
}

// As CUDA's: the first number is a graph's own, the second one that the user asked for.
c10::MempoolId_t new_pool_id() {
  static std::atomic<c10::CaptureId_t> last{0};
  return {0, ++last};
}

}  // namespace

void bind_memory(py::module_& m) {
  def(m, "memory_stats", &memory_stats);
  def(m, "reset_accumulated_memory_stats",
      [](c10::DeviceIndex device) { device_memory().resetAccumulatedStats(device); });
  def(m, "reset_peak_memory_stats", [](c10::DeviceIndex device) { device_memory().resetPeakStats(device); });
  def(m, "memory_info", [](c10::DeviceIndex device) { return device_memory().getMemoryInfo(device); });
  def(m, "empty_cache", [](c10::MempoolId_t pool) {
    py::gil_scoped_release no_gil;
    device_memory().emptyCache(pool);
  });
  def(m, "set_memory_fraction",
      [](double fraction, c10::DeviceIndex device) { device_memory().set_memory_fraction(fraction, device); });
  def(m, "memory_fraction", [](c10::DeviceIndex device) { return device_memory().memory_fraction(device); });

  def(m, "host_memory_stats", &host_memory_stats);
  def(m, "reset_accumulated_host_memory_stats", [] { pinned_memory().reset_accumulated_stats(); });
  def(m, "reset_peak_host_memory_stats", [] { pinned_memory().reset_peak_stats(); });

  def(m, "raw_alloc", [](size_t nbytes, c10::DeviceIndex device, int64_t stream_id) {
    py::gil_scoped_release no_gil;
    return raw_allocations().allocate(nbytes, device, stream_id);
  });
  def(m, "raw_delete", [](uintptr_t address) {
    py::gil_scoped_release no_gil;
    raw_allocations().free(address);
  });

  def(m, "new_pool_id", &new_pool_id);
  // What the calling thread allocates on `device` comes from the pool.
  def(m, "begin_allocate_to_pool", [](c10::DeviceIndex device, c10::MempoolId_t pool) {
    device_memory().begin_allocate_to_pool(device, pool, nullptr);
  });
  def(m, "end_allocate_to_pool",
      [](c10::DeviceIndex device, c10::MempoolId_t pool) { device_memory().end_allocate_to_pool(device, pool); });
  def(m, "release_pool",
      [](c10::DeviceIndex device, c10::MempoolId_t pool) { device_memory().release_pool(device, pool); });
}

}  // namespace torchneuron
