#include "engine/launch.h"
#include "runtime/stream.h"
#include "runtime/sync_debug.h"

#include "python/bindings.h"

#include <pybind11/stl.h>

#include <chrono>
#include <thread>

namespace torchneuron {

namespace {

// What torch.Stream is constructed from: stream_id, device_index, device_type.
using StreamTriple = std::tuple<int64_t, int64_t, int64_t>;

StreamTriple triple(const Stream& stream) { return {stream.id(), stream.device(), static_cast<int64_t>(kNeuron)}; }

Stream& stream_of_triple(int64_t stream_id, c10::DeviceIndex device) {
  return stream_of(c10::Stream(c10::Stream::UNSAFE, c10::Device(kNeuron, device), stream_id));
}

}  // namespace

void bind_streams(pybind11::module_& m) {
  def(m, "current_stream", [](c10::DeviceIndex device) {
    check_device_index(device);
    return triple(current_stream(device));
  });
  def(m, "default_stream", [](c10::DeviceIndex device) {
    check_device_index(device);
    return triple(default_stream(device));
  });
  // As torch.cuda.set_stream: the stream's device becomes the current one.
  def(m, "set_stream", [](int64_t stream_id, c10::DeviceIndex device) {
    Stream& stream = stream_of_triple(stream_id, device);
    set_current_device(device);
    exchange_current_stream(stream);
  });
  def(m, "stream_priority",
      [](int64_t stream_id, c10::DeviceIndex device) { return stream_of_triple(stream_id, device).priority(); });
  def(m, "sync_debug_mode", [] { return static_cast<int>(sync_debug_mode()); });
  def(m, "set_sync_debug_mode", [](int mode) { set_sync_debug_mode(static_cast<SyncDebugMode>(mode)); });
  // Keeps the current stream busy.
  def(m, "sleep", [](int64_t nanoseconds) {
    static OpRecord& op = op_record("neuron::sleep");
    detail::submit(current_stream(current_device()), op, 0, [nanoseconds] {
      std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
    });
  });
  def(m, "priority_range", [] { return std::make_pair(kLeastPriority, kGreatestPriority); });
}

}  // namespace torchneuron
