#include "ops/factories.h"
#include "runtime/allocator.h"
#include "runtime/generator.h"
#include "runtime/pinned.h"
#include "runtime/stream.h"
#include "runtime/topology.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <cstring>

namespace torchneuron {

namespace {

// What ATen and torch.accelerator ask of a backend.
struct NeuronHooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return torchneuron::device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return initialized(); }
  void init() const override { ensure_usable(); }

  c10::DeviceIndex deviceCount() const override { return torchneuron::device_count(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return exchange_device(device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchange_device(device); }
  at::Device getDeviceFromPtr(void* data) const override {
    const auto device = device_memory().device_of(data);
    TORCH_CHECK_VALUE(device.has_value(), "the pointer ", data, " is not memory of a neuron device");
    return {kNeuron, *device};
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return make_generator(device); }

  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t new_bytes) const override {
    resize_storage(storage, new_bytes);
  }
};

const bool hooks_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new NeuronHooks());
  return true;
}();

}  // namespace

}  // namespace torchneuron
