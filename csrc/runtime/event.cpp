#include "runtime/event.h"

#include "engine/launch.h"
#include "runtime/graph.h"

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
  graph_ = stream.capturing();
  if (timing_) {
    nanoseconds_ = std::make_shared<std::atomic<uint64_t>>(0);
    detail::submit(stream, record_event(), 0, [time = nanoseconds_] { time->store(detail::now_nanoseconds()); });
  }
  sequence_ = stream.launched();
}

void Event::block(Stream& stream) const {
  if (stream_ == nullptr || stream_ == &stream) {
    return;
  }
  if (graph_ != nullptr) {
    // The graph runs its tasks in the order of their launches, so the wait needs no task.
    if (stream_->capturing() == graph_) {
      graph_->join(stream);
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

bool Event::query() const { return stream_ == nullptr || stream_->completed() >= sequence_; }

void Event::synchronize() const {
  if (stream_ != nullptr) {
    TORCH_CHECK(
        stream_->capturing() == nullptr, "operation not permitted when stream is capturing: synchronize of an event");
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
  TORCH_CHECK(query() && end.query(), "Both events must be completed before calculating elapsed time.");
  const auto start_ns = static_cast<int64_t>(nanoseconds_->load());
  const auto end_ns = static_cast<int64_t>(end.nanoseconds_->load());
  return static_cast<double>(end_ns - start_ns) / 1e6;
}

}  // namespace torchneuron
