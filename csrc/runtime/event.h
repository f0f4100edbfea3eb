#pragma once

#include "runtime/graph.h"
#include "runtime/stream.h"

#include <atomic>
#include <memory>
#include <optional>

namespace torchneuron {

// A point in a stream: the number of the task before it. Recording with timing queues a task that notes the time.
class Event {
 public:
  explicit Event(bool timing) : timing_(timing) {}

  void record(Stream& stream);
  // Tasks queued on `stream` from now on run after the event's point; an error that is pending there is theirs too.
  void block(Stream& stream) const;
  // These two throw while the event's stream is captured, and for an event that was recorded in a capture.
  bool query() const;
  // Waits, then raises the first error of the event's stream.
  void synchronize() const;
  // Waits and raises nothing.
  void wait() const;
  // Milliseconds from this event to `end`. Throws unless both were recorded with timing and have passed.
  double elapsed_milliseconds(const Event& end) const;

 private:
  bool passed() const { return stream_ == nullptr || stream_->completed() >= sequence_; }
  void check_not_capturing(const char* call) const;

  bool timing_;
  Stream* stream_ = nullptr;
  uint64_t sequence_ = 0;
  std::optional<CapturePoint> captured_;  // if recorded in a capture
  std::shared_ptr<std::atomic<uint64_t>> nanoseconds_;
};

}  // namespace torchneuron
