#include "engine/placement.h"

#include "runtime/allocator.h"

#include <c10/core/CPUAllocator.h>

namespace torchneuron {

namespace {

thread_local Stream* device_stream = nullptr;
thread_local OutputPlacement* placement = nullptr;

// In the place of PyTorch's CPU allocator, to which it passes all that no scope of this thread asks for.
class RoutingAllocator final : public c10::Allocator {
 public:
  explicit RoutingAllocator(c10::Allocator* host) : host_(host) {}

  c10::DataPtr allocate(size_t nbytes) override {
    if (C10_UNLIKELY(device_stream != nullptr && nbytes > 0)) {
      c10::DataPtr memory = device_memory().allocate_on(nbytes, *device_stream);
      memory.unsafe_set_device(c10::kCPU);
      return memory;
    }
    if (C10_UNLIKELY(placement != nullptr)) {
      if (void* planned = placement->take(nbytes); planned != nullptr) {
        return {planned, c10::kCPU};
      }
    }
    return host_->allocate(nbytes);
  }

  c10::DeleterFnPtr raw_deleter() const override { return host_->raw_deleter(); }
  bool is_simple_data_ptr(const c10::DataPtr& ptr) const override { return host_->is_simple_data_ptr(ptr); }
  void copy_data(void* dest, const void* src, size_t count) const override { host_->copy_data(dest, src, count); }

 private:
  c10::Allocator* host_;
};

const bool installed = [] {
  c10::SetCPUAllocator(new RoutingAllocator(c10::GetCPUAllocator()));
  return true;
}();

}  // namespace

DeviceAllocationScope::DeviceAllocationScope(Stream& stream) : previous_(std::exchange(device_stream, &stream)) {}

DeviceAllocationScope::~DeviceAllocationScope() { device_stream = previous_; }

OutputPlacement::OutputPlacement(std::initializer_list<at::Tensor> planned) : previous_(placement) {
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
                        planned.sizes() == result.sizes();
  if (!in_place) {
    // `result` may lie in the planned memory with other strides.
    const bool shares = planned.const_data_ptr() == result.const_data_ptr();
    OutputPlacement* const suspended = std::exchange(placement, nullptr);
    planned.copy_(shares ? result.clone() : result);
    placement = suspended;
  }
}

}  // namespace torchneuron
