#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/stream.h"
#include "runtime/topology.h"

#include <torch/csrc/profiler/stubs/base.h>

namespace torchneuron {

namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

// What torch.autograd.profiler.profile(use_device="neuron") asks of a backend: a mark in the current stream before and
// after each operator, and the time between the two.
struct NeuronProfilerStubs final : public torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* /*cpu_ns*/) const override {
    Stream& stream = current_stream(current_device());
    if (device != nullptr) {
      *device = stream.device();
    }
    // A graph runs its tasks later and more than once, so operators that it captures take no time on the device.
    if (stream.capturing() == nullptr) {
      auto mark = std::make_shared<Event>(/*timing=*/true);
      mark->record(stream);
      *event = std::move(mark);
    }
  }

  // In microseconds. Throws nothing that a task threw, for the program itself is to see it.
  float elapsed(const ProfilerVoidEventStub* from, const ProfilerVoidEventStub* to) const override {
    const auto& start = *static_cast<const Event*>(from->get());
    const auto& end = *static_cast<const Event*>(to->get());
    start.wait();
    end.wait();
    return static_cast<float>(start.elapsed_milliseconds(end) * 1e3);
  }

  void onEachDevice(std::function<void(int)> op) const override {
    for (int device = 0; device < device_count(); ++device) {
      op(device);
    }
  }

  void synchronize() const override { synchronize_device(current_device()); }
  bool enabled() const override { return true; }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
};

const bool stubs_registered = [] {
  torch::profiler::impl::registerPrivateUse1Methods(new NeuronProfilerStubs());
  return true;
}();

}  // namespace

}  // namespace torchneuron
