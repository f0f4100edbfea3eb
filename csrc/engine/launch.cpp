#include "engine/launch.h"

#include "engine/placement.h"
#include "runtime/graph.h"

#include <c10/core/DispatchKeySet.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace torchneuron {

TaskScope::TaskScope()
    : excluded_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset) {}

namespace {
std::string (*python_stack_source)() = nullptr;
}  // namespace

void set_python_stack_source(std::string (*source)()) { python_stack_source = source; }

namespace detail {

namespace {

bool environment_flag(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

}  // namespace

bool launch_blocking() {
  static const bool blocking = environment_flag("NEURON_LAUNCH_BLOCKING");
  return blocking;
}

std::shared_ptr<std::string> python_stack() {
  static const bool wanted = environment_flag("TORCHNEURON_STACK_TRACE");
  if (C10_LIKELY(!wanted) || python_stack_source == nullptr) {
    return nullptr;
  }
  return std::make_shared<std::string>(python_stack_source());
}

Stream& launch_stream(c10::DeviceIndex device) { return current_stream(device < 0 ? current_device() : device); }

void raise_two_devices(const OpRecord& op, c10::DeviceIndex first, c10::DeviceIndex second) {
  TORCH_CHECK(
      false, "Expected all tensors to be on the same device, but found at least two devices, ",
      c10::Device(kNeuron, first), " and ", c10::Device(kNeuron, second), "! (in ", op.name, ")");
}

void finish_launch(Stream& stream, OpRecord& op, uint64_t sequence) {
  op.launches.fetch_add(1, std::memory_order_relaxed);
  if (C10_UNLIKELY(launch_blocking())) {
    stream.wait_for(sequence);
    stream.report();
  }
}

void record_in_graph(Graph& graph, const Stream& stream, Task&& task) { graph.add(stream, std::move(task)); }

BlockingCall::BlockingCall(c10::DeviceIndex device, OpRecord& op) : op_(op) {
  Stream& stream = launch_stream(device);
  if (C10_UNLIKELY(stream.capturing() != nullptr)) {
    stream.check_not_capturing((op.name + " has to wait").c_str());
  }
  stream.synchronize();
  op.fallbacks.fetch_add(1, std::memory_order_relaxed);
  scope_.emplace();
  without_gil_.emplace();
  start_ = now_nanoseconds();
}

BlockingCall::~BlockingCall() { op_.nanoseconds.fetch_add(now_nanoseconds() - start_, std::memory_order_relaxed); }

uint64_t now_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<TensorRef> capture(at::TensorList list) {
  std::vector<TensorRef> refs;
  refs.reserve(list.size());
  for (const at::Tensor& tensor : list) {
    refs.emplace_back(tensor);
  }
  return refs;
}

std::vector<TensorRef> capture(const at::ITensorListRef& list) {
  std::vector<TensorRef> refs;
  refs.reserve(list.size());
  for (const at::Tensor& tensor : list) {
    refs.emplace_back(tensor);
  }
  return refs;
}

std::vector<std::optional<TensorRef>> capture(const c10::List<std::optional<at::Tensor>>& list) {
  std::vector<std::optional<TensorRef>> refs;
  refs.reserve(list.size());
  for (const std::optional<at::Tensor>& tensor : list) {
    refs.push_back(capture(tensor));
  }
  return refs;
}

std::vector<at::Tensor> restore(const std::vector<TensorRef>& refs) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(refs.size());
  for (const TensorRef& ref : refs) {
    tensors.push_back(ref.cpu_view());
  }
  return tensors;
}

c10::List<std::optional<at::Tensor>> restore(const std::vector<std::optional<TensorRef>>& refs) {
  c10::List<std::optional<at::Tensor>> tensors;
  tensors.reserve(refs.size());
  for (const auto& ref : refs) {
    tensors.push_back(restore(ref));
  }
  return tensors;
}

}  // namespace detail

}  // namespace torchneuron
