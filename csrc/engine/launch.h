#pragma once

#include "engine/op_record.h"
#include "engine/placement.h"
#include "engine/tensor_ref.h"
#include "runtime/blocking.h"
#include "runtime/stream.h"

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <c10/core/GradMode.h>
#include <c10/core/Scalar.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace torchneuron {

// launch(op, body, args...) — the one way to the device. Queues body(args...) on the current stream of the device that
// the first `neuron` tensor among the arguments lies on. On the worker, each tensor argument is a CPU-keyed view of the
// same memory with the geometry it had at the launch; lists, scalars and strings are copies.
//
// The body runs without the GIL, below autograd, and must not touch anything it did not get as an argument. It may run
// more than once (graph replay). An exception that it throws is raised at the next synchronising call on the stream.
template <typename Body, typename... Args>
void launch(OpRecord& op, Body body, const Args&... args);

// As launch, on `stream`, which the caller has ordered with the streams of all devices that the tensors lie on.
template <typename Body, typename... Args>
void launch_on(Stream& stream, OpRecord& op, Body body, const Args&... args);

// Waits for the current stream of `device`, then runs `body` on the calling thread, without the GIL. For operators that
// must return a value to the host; counted as a fallback.
template <typename Body>
void run_blocking(c10::DeviceIndex device, OpRecord& op, Body&& body);

// What a task runs in: below autograd, ADInplaceOrView and autocast, without gradients.
class TaskScope {
 public:
  TaskScope();

 private:
  c10::impl::ExcludeDispatchKeyGuard excluded_;
  c10::AutoGradMode no_grad_{false};
};

// ---------------------------------------------------------------------------------------------------------------------

// Sets how launches get the Python stack; returns an empty string where there is none.
void set_python_stack_source(std::string (*source)());

namespace detail {

// How an argument is kept in a task (`capture`) and handed to its body (`restore`).
inline TensorRef capture(const at::Tensor& t) { return TensorRef(t); }
inline std::optional<TensorRef> capture(const std::optional<at::Tensor>& t) {
  return t.has_value() ? std::optional<TensorRef>(TensorRef(*t)) : std::nullopt;
}
std::vector<TensorRef> capture(at::TensorList list);
inline std::vector<TensorRef> capture(const std::vector<at::Tensor>& list) { return capture(at::TensorList(list)); }
std::vector<TensorRef> capture(const at::ITensorListRef& list);
std::vector<std::optional<TensorRef>> capture(const c10::List<std::optional<at::Tensor>>& list);
inline std::string capture(std::string_view s) { return std::string(s); }
inline c10::SmallVector<int64_t, 6> capture(at::IntArrayRef a) { return {a.begin(), a.end()}; }
inline std::vector<double> capture(at::ArrayRef<double> a) { return a.vec(); }
inline std::vector<at::Scalar> capture(at::ArrayRef<at::Scalar> a) { return a.vec(); }
inline std::optional<std::string> capture(std::optional<std::string_view> s) {
  return s.has_value() ? std::optional<std::string>(std::string(*s)) : std::nullopt;
}
inline std::optional<std::vector<int64_t>> capture(const at::OptionalIntArrayRef& a) {
  return a.has_value() ? std::optional<std::vector<int64_t>>(a->vec()) : std::nullopt;
}
inline std::optional<std::vector<double>> capture(const std::optional<at::ArrayRef<double>>& a) {
  return a.has_value() ? std::optional<std::vector<double>>(a->vec()) : std::nullopt;
}
template <typename T>
T capture(const T& value) {
  return value;
}

inline at::Tensor restore(const TensorRef& r) { return r.cpu_view(); }
inline std::optional<at::Tensor> restore(const std::optional<TensorRef>& r) {
  return r.has_value() ? std::optional<at::Tensor>(r->cpu_view()) : std::nullopt;
}
std::vector<at::Tensor> restore(const std::vector<TensorRef>& refs);
c10::List<std::optional<at::Tensor>> restore(const std::vector<std::optional<TensorRef>>& refs);
inline at::IntArrayRef restore(const c10::SmallVector<int64_t, 6>& a) { return a; }
inline at::ArrayRef<double> restore(const std::vector<double>& a) { return a; }
inline at::ArrayRef<at::Scalar> restore(const std::vector<at::Scalar>& a) { return a; }
inline std::string_view restore(const std::string& s) { return s; }
inline std::optional<std::string_view> restore(const std::optional<std::string>& s) {
  return s.has_value() ? std::optional<std::string_view>(*s) : std::nullopt;
}
inline at::OptionalIntArrayRef restore(const std::optional<std::vector<int64_t>>& a) {
  return a.has_value() ? at::OptionalIntArrayRef(at::IntArrayRef(*a)) : std::nullopt;
}
inline std::optional<at::ArrayRef<double>> restore(const std::optional<std::vector<double>>& a) {
  return a.has_value() ? std::optional<at::ArrayRef<double>>(at::ArrayRef<double>(*a)) : std::nullopt;
}
template <typename T>
const T& restore(const T& value) {
  return value;
}

// The device of the first device tensor in what was captured, else -1, and another one's; and the host bytes that it
// keeps.
struct Footprint {
  c10::DeviceIndex device = -1;
  c10::DeviceIndex other_device = -1;
  size_t held_bytes = 0;
  void add(const TensorRef& r) {
    if (r.is_device() && r.device() != device) {
      (device < 0 ? device : other_device) = r.device();
    }
    held_bytes += r.held_bytes();
  }
  template <unsigned N>
  void add(const c10::SmallVector<DeviceAddress, N>& addresses) {
    for (const DeviceAddress& address : addresses) {
      if (address.device() != device) {
        (device < 0 ? device : other_device) = address.device();
      }
    }
  }
  void add(const std::optional<TensorRef>& r) {
    if (r.has_value()) {
      add(*r);
    }
  }
  void add(const std::vector<TensorRef>& refs) {
    for (const auto& r : refs) {
      add(r);
    }
  }
  void add(const std::vector<std::optional<TensorRef>>& refs) {
    for (const auto& r : refs) {
      add(r);
    }
  }
  template <typename T>
  void add(const T&) {}
};

// Queues the task, or hands it to the graph that captures the stream; with NEURON_LAUNCH_BLOCKING=1 also waits for it.
template <typename Stored>
void submit(Stream& stream, OpRecord& op, size_t held_bytes, Stored&& stored);
bool launch_blocking();
// With TORCHNEURON_STACK_TRACE=1 the Python stack of the launch, which an error of the task then shows; else null.
std::shared_ptr<std::string> python_stack();
void record_in_graph(Graph& graph, const Stream& stream, Task&& task);
void finish_launch(Stream& stream, OpRecord& op, uint64_t sequence);
Stream& launch_stream(c10::DeviceIndex device);
[[noreturn]] void raise_two_devices(const OpRecord& op, c10::DeviceIndex first, c10::DeviceIndex second);

// Waits for the stream; while alive, the thread runs without the GIL and the time counts for `op`.
class BlockingCall {
 public:
  BlockingCall(c10::DeviceIndex device, OpRecord& op);
  ~BlockingCall();

 private:
  OpRecord& op_;
  uint64_t start_ = 0;
  std::optional<TaskScope> scope_;
  std::optional<BlockingRegion> without_gil_;
};
uint64_t now_nanoseconds();

template <typename Stored>
void submit(Stream& stream, OpRecord& op, size_t held_bytes, Stored&& stored) {
  ensure_usable();
  if (Graph* graph = stream.capturing(); C10_UNLIKELY(graph != nullptr)) {
    Task task;
    task.emplace(&op, held_bytes, std::forward<Stored>(stored));
    record_in_graph(*graph, stream, std::move(task));
    return;
  }
  const uint64_t sequence = stream.push(&op, held_bytes, python_stack(), std::forward<Stored>(stored));
  finish_launch(stream, op, sequence);
}

template <typename Body, typename Captured>
struct BoundTask {
  Body body;
  Captured captured;
  void operator()() {
    std::apply([this](auto&... kept) { body(restore(kept)...); }, captured);
  }
};

// A lambda without captures as a function pointer, so that all launches with the same arguments share one
// instantiation.
template <typename Body>
auto plain_body(Body body) {
  if constexpr (requires { +body; }) {
    return +body;
  } else {
    return body;
  }
}

// `stream` is null for the current stream of the first device tensor's device.
template <typename Body, typename... Args>
void capture_and_submit(Stream* stream, OpRecord& op, Body body, const Args&... args) {
  using Captured = std::tuple<decltype(capture(args))...>;
  BoundTask<Body, Captured> task{std::move(body), Captured{capture(args)...}};
  Footprint footprint;
  std::apply([&](const auto&... kept) { (footprint.add(kept), ...); }, task.captured);
  if (C10_UNLIKELY(stream == nullptr && footprint.other_device >= 0)) {
    raise_two_devices(op, footprint.device, footprint.other_device);
  }
  submit(stream != nullptr ? *stream : launch_stream(footprint.device), op, footprint.held_bytes, std::move(task));
}

}  // namespace detail

template <typename Body, typename... Args>
void launch(OpRecord& op, Body body, const Args&... args) {
  detail::capture_and_submit(nullptr, op, detail::plain_body(std::move(body)), args...);
}

template <typename Body, typename... Args>
void launch_on(Stream& stream, OpRecord& op, Body body, const Args&... args) {
  detail::capture_and_submit(&stream, op, detail::plain_body(std::move(body)), args...);
}

template <typename Body>
void run_blocking(c10::DeviceIndex device, OpRecord& op, Body&& body) {
  detail::BlockingCall call(device, op);
  body();
}

}  // namespace torchneuron
