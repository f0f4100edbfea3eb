#include "engine/placement.h"

#include "runtime/allocator.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <mutex>
#include <unordered_map>

namespace torchneuron {

namespace {

thread_local Stream* device_stream = nullptr;
thread_local OutputPlacement* placement = nullptr;

// What was handed out in the place of host memory. c10::Allocator::raw_allocate asks that the context of an allocation
// be its address, so the device's own context is kept here.
class RoutedMemory {
 public:
  c10::DataPtr hand_out(c10::DataPtr memory, c10::DeleterFnPtr deleter) {
    void* ptr = memory.get();
    std::lock_guard<std::mutex> lock(mutex_);
    live_.insert_or_assign(ptr, std::move(memory));
    count_.store(live_.size(), std::memory_order_release);
    return {ptr, ptr, deleter, c10::kCPU};
  }

  // The device's allocation behind `ptr`, or nullopt where `ptr` is host memory.
  std::optional<c10::DataPtr> take_back(void* ptr) {
    if (count_.load(std::memory_order_acquire) == 0) {
      return std::nullopt;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    auto node = live_.extract(ptr);
    count_.store(live_.size(), std::memory_order_release);
    return node.empty() ? std::nullopt : std::optional<c10::DataPtr>(std::move(node.mapped()));
  }

 private:
  std::mutex mutex_;
  std::atomic<size_t> count_{0};
  std::unordered_map<void*, c10::DataPtr> live_;
};

RoutedMemory& routed_memory() {
  static auto* instance = new RoutedMemory();
  return *instance;
}

c10::Allocator* host_allocator = nullptr;

void free_routed(void* ptr) {
  if (!routed_memory().take_back(ptr).has_value()) {
    host_allocator->raw_deleter()(ptr);
  }
}

// In the place of PyTorch's CPU allocator, to which it passes all that no scope of this thread asks for.
class RoutingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    if (C10_UNLIKELY(device_stream != nullptr && nbytes > 0)) {
      return routed_memory().hand_out(device_memory().allocate_on(nbytes, *device_stream), &free_routed);
    }
    if (C10_UNLIKELY(placement != nullptr)) {
      if (void* planned = placement->take(nbytes); planned != nullptr) {
        return routed_memory().hand_out({planned, c10::kCPU}, &free_routed);
      }
    }
    return host_allocator->allocate(nbytes);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_routed; }
  void copy_data(void* dest, const void* src, size_t count) const override {
    host_allocator->copy_data(dest, src, count);
  }
};

const bool installed = [] {
  host_allocator = c10::GetCPUAllocator();
  c10::SetCPUAllocator(new RoutingAllocator());
  return true;
}();

}  // namespace

c10::DataPtr adopt(c10::DataPtr memory, size_t nbytes, Stream& stream) {
  if (memory.get() == nullptr) {
    return {nullptr, c10::Device(kNeuron, stream.device())};
  }
  if (memory.get_deleter() == &free_routed) {
    if (auto device_block = routed_memory().take_back(memory.get()); device_block.has_value()) {
      memory.release_context();
      return std::move(*device_block);
    }
  }
  c10::DataPtr copy = device_memory().allocate_on(nbytes, stream);
  std::memcpy(copy.get(), memory.get(), nbytes);
  return copy;
}

DeviceAllocationScope::DeviceAllocationScope(Stream& stream) : previous_(std::exchange(device_stream, &stream)) {}

DeviceAllocationScope::~DeviceAllocationScope() { device_stream = previous_; }

OutputPlacement::OutputPlacement(at::ArrayRef<at::Tensor> planned) : previous_(placement) {
  for (const at::Tensor& tensor : planned) {
    if (tensor.defined() && tensor.numel() > 0) {
      slots_.push_back({tensor.mutable_data_ptr(), tensor.nbytes()});
    }
  }
  placement = this;
}

OutputPlacement::~OutputPlacement() { placement = previous_; }

void* OutputPlacement::take(size_t nbytes) {
  for (Slot& slot : slots_) {
    if (slot.ptr != nullptr && slot.nbytes == nbytes) {
      return std::exchange(slot.ptr, nullptr);
    }
  }
  return nullptr;
}

void OutputPlacement::deliver(const at::Tensor& planned, const at::Tensor& result) {
  if (!planned.defined() || !result.defined()) {
    return;
  }
  const bool in_place = planned.const_data_ptr() == result.const_data_ptr() && planned.strides() == result.strides() &&
                        planned.sizes() == result.sizes() && planned.is_conj() == result.is_conj() &&
                        planned.is_neg() == result.is_neg();
  if (!in_place) {
    // `result` may lie in the planned memory with other strides.
    const bool shares = planned.const_data_ptr() == result.const_data_ptr();
    OutputPlacement* const suspended = std::exchange(placement, nullptr);
    planned.copy_(shares ? result.clone() : result);
    placement = suspended;
  }
}

void OutputPlacement::deliver_all(at::ArrayRef<at::Tensor> planned, std::vector<at::Tensor> results) {
  // A result lies where another one belongs if the kernel allocated its outputs in another order.
  for (size_t i = 0; i + 1 < planned.size(); ++i) {
    for (size_t j = i + 1; j < planned.size() && planned[i].defined(); ++j) {
      at::Tensor& later = results[j];
      if (later.defined() && later.numel() > 0 && later.const_data_ptr() == planned[i].const_data_ptr()) {
        later = later.clone();
      }
    }
  }
  for (size_t i = 0; i < planned.size(); ++i) {
    deliver(planned[i], results[i]);
  }
}

}  // namespace torchneuron
