#include "runtime/allocator.h"
#include "runtime/event.h"
#include "runtime/stream.h"
#include "runtime/topology.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace torchneuron {

namespace {

// What c10's device, stream and event classes ask of a backend.
struct NeuronGuardImpl final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNeuron; }

  c10::Device exchangeDevice(c10::Device device) const override { return {kNeuron, exchange_device(device.index())}; }
  c10::Device getDevice() const override { return {kNeuron, current_device()}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) {
      set_current_device(device.index());
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < torchneuron::device_count()) {
      set_current_device(device.index());
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override { return torchneuron::device_count(); }

  c10::Stream getStream(c10::Device device) const override {
    return current_stream(with_index(device).index()).handle();
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(with_index(device).index()).handle();
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return stream_from_pool(with_index(device).index(), high_priority ? kGreatestPriority : kLeastPriority).handle();
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return stream_from_pool(with_index(device).index(), priority).handle();
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return exchange_current_stream(stream_of(stream)).handle();
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return &stream_of(stream); }
  bool queryStream(const c10::Stream& stream) const override { return stream_of(stream).query(); }
  void synchronizeStream(const c10::Stream& stream) const override { stream_of(stream).synchronize(); }
  bool isStreamCapturing(const c10::Stream& stream) const override { return stream_of(stream).capturing() != nullptr; }
  void synchronizeDevice(const c10::DeviceIndex device) const override { synchronize_device(device); }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void record(
      void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag flag) const override {
    if (*event == nullptr) {
      *event = new Event(flag == c10::EventFlag::BACKEND_DEFAULT);
    }
    static_cast<Event*>(*event)->record(stream_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      static_cast<Event*>(event)->block(stream_of(stream));
    }
  }
  bool queryEvent(void* event) const override { return event == nullptr || static_cast<Event*>(event)->query(); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      static_cast<Event*>(event)->synchronize();
    }
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK_VALUE(
        start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
    return static_cast<Event*>(start)->elapsed_milliseconds(*static_cast<Event*>(end));
  }

  void recordDataPtrOnStream(const c10::DataPtr& ptr, const c10::Stream& stream) const override {
    device_memory().recordStream(ptr, stream);
  }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, NeuronGuardImpl)

}  // namespace

}  // namespace torchneuron
