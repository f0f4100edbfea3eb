#include "runtime/event.h"

#include "engine/launch.h"
#include "runtime/capture_error.h"

namespace torchneuron {

namespace {

OpRecord& record_event() {
  static OpRecord& op = op_record("neuron::event_record");
  return op;
}

OpRecord& wait_event() {
  static OpRecord& op = op_record("neuron::event_wait");
  return op;
}

}  // namespace

void Event::record(Stream& stream) {
  ensure_usable();
  TORCH_CHECK(
      stream_ == nullptr || stream_->device() == stream.device(), "Event device ", stream_->handle().device(),
      " does not match recording stream's device ", stream.handle().device(), ".");
  stream_ = &stream;
  if (timing_) {
    nanoseconds_ = std::make_shared<std::atomic<uint64_t>>(0);
    detail::submit(stream, record_event(), 0, [time = nanoseconds_] { time->store(detail::now_nanoseconds()); });
  }
  Graph* graph = stream.capturing();
  captured_ = graph != nullptr ? std::optional<CapturePoint>(graph->mark(stream)) : std::nullopt;
  sequence_ = stream.launched();
}

void Event::block(Stream& stream) const {
  if (stream_ == nullptr || stream_ == &stream) {
    return;
  }
  if (captured_.has_value()) {
    // The graph runs its tasks in the order of their launches, so the wait needs no task.
    if (Graph* graph = stream_->capturing(); graph != nullptr && graph->capture() == captured_->capture) {
      graph->join(stream, *captured_);
    }
    return;
  }
  if (stream_->completed() >= sequence_ && stream.capturing() == nullptr) {
    stream.inherit_reports(*stream_);
    return;
  }
  detail::submit(stream, wait_event(), 0, [other = stream_, sequence = sequence_] {
    other->wait_for(sequence);
    // Not `stream`: a graph may be replayed on another.
    current_stream(current_device()).inherit_reports(*other);
  });
}

void Event::check_not_capturing(const char* call) const {
  if (captured_.has_value()) {
    raise_capture_error(CaptureError::kCapturedEvent, call);
  }
  if (stream_ != nullptr) {
    stream_->check_not_capturing(call);
  }
}

bool Event::query() const {
  check_not_capturing("query of an event");
  return passed();
}

void Event::synchronize() const {
  check_not_capturing("synchronize of an event");
  if (stream_ != nullptr) {
    ensure_usable();
    stream_->wait_interruptibly_for(sequence_);
    stream_->report();
  }
}

void Event::wait() const {
  if (stream_ != nullptr) {
    stream_->wait_for(sequence_);
  }
}

double Event::elapsed_milliseconds(const Event& end) const {
  TORCH_CHECK_VALUE(timing_ && end.timing_, "Both events must be created with argument 'enable_timing=True'.");
  TORCH_CHECK_VALUE(
      stream_ != nullptr && end.stream_ != nullptr, "Both events must be recorded before calculating elapsed time.");
  TORCH_CHECK(passed() && end.passed(), "Both events must be completed before calculating elapsed time.");
  const auto start_ns = static_cast<int64_t>(nanoseconds_->load());
  const auto end_ns = static_cast<int64_t>(end.nanoseconds_->load());
  return static_cast<double>(end_ns - start_ns) / 1e6;
}

}  // namespace torchneuron
