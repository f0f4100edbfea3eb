#pragma once

#include "engine/task.h"
#include "runtime/device.h"

#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace torchneuron {

class Graph;

// An in-order queue of tasks and the worker thread that runs them. Streams live as long as the process.
class Stream {
 public:
  Stream(c10::DeviceIndex device, c10::StreamId id, int priority);

  c10::DeviceIndex device() const { return device_; }
  c10::StreamId id() const { return id_; }
  int priority() const { return priority_; }
  c10::Stream handle() const;

  // Queues `body` and returns its sequence number. Waits, without the GIL, while the queue holds too many tasks or
  // bytes.
  template <typename Body>
  uint64_t push(OpRecord* op, size_t held_bytes, std::shared_ptr<std::string> python_stack, Body&& body);

  // Sequence numbers: tasks 1 … launched() were queued, 1 … completed() have run.
  uint64_t launched() const { return tail_.load(std::memory_order_acquire); }
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }
  // Whether all that was queued has run. Throws while a graph captures the stream.
  bool query() const;

  // Waits for task number `sequence`. Raises nothing.
  void wait_for(uint64_t sequence);
  // As wait_for; on Python's main thread, signal handlers run meanwhile, and what one raises ends the wait.
  void wait_interruptibly_for(uint64_t sequence);
  // Waits for all that was queued, then reports.
  void synchronize();
  // Gives this thread the warnings of tasks that nobody has got yet, each text once, then raises their first error.
  void report();
  void report_warnings();
  // What this stream does next relies on `awaited`, so what is to be reported there is to be reported here too.
  void inherit_reports(Stream& awaited);

  // The graph that records this stream, or null.
  Graph* capturing() const { return graph_.load(std::memory_order_acquire); }
  // Throws while a graph captures the stream, where `what` is not possible.
  void check_not_capturing(const char* what) const;
  void set_capturing(Graph* graph) { graph_.store(graph, std::memory_order_release); }

 private:
  static constexpr uint64_t kSlots = 2048;
  static constexpr size_t kMaxHeldBytes = size_t{256} << 20;

  class WarningCollector;

  // Shared by the failed task's stream and those that waited for it, and raised once.
  struct TaskError {
    std::exception_ptr exception;
    std::atomic<bool> raised{false};
  };

  bool has_room(size_t held_bytes) const;
  void wait_for_room(size_t held_bytes);
  void start_worker();
  void publish();
  void run_worker();
  // Sleeps until `condition`, which a task's end may bring about, holds.
  template <typename Condition>
  void sleep_until(Condition&& condition, bool interruptible);
  void wait_for(uint64_t sequence, bool interruptible);
  void set_error(std::exception_ptr error, const Task& task);
  void keep_error(std::shared_ptr<TaskError> error);
  void keep_warning(const c10::Warning& warning);

  const c10::DeviceIndex device_;
  const c10::StreamId id_;
  const int priority_;

  std::mutex producer_mutex_;
  std::unique_ptr<Task[]> slots_;
  bool worker_started_ = false;

  alignas(64) std::atomic<uint64_t> tail_{0};
  alignas(64) std::atomic<uint64_t> completed_{0};
  std::atomic<size_t> held_bytes_{0};
  std::atomic<bool> worker_asleep_{false};
  std::atomic<int> waiters_{0};
  std::mutex sleep_mutex_;
  std::condition_variable work_arrived_;
  std::condition_variable work_done_;

  std::atomic<bool> has_reports_{false};
  std::mutex report_mutex_;
  std::shared_ptr<TaskError> error_;
  std::vector<c10::Warning> warnings_;

  std::atomic<Graph*> graph_{nullptr};
};

inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -1;
inline constexpr int kStreamsPerPriority = 32;

Stream& default_stream(c10::DeviceIndex device);
// The calling thread's stream on `device`.
Stream& current_stream(c10::DeviceIndex device);
Stream& exchange_current_stream(Stream& stream);
// A side stream; there are 32 per device and priority, handed out in turn.
Stream& stream_from_pool(c10::DeviceIndex device, int priority);
Stream& stream_of(const c10::Stream& stream);

// Calls visit(Stream&) for each stream of `device` that was ever used.
template <typename Visit>
void for_each_stream(c10::DeviceIndex device, Visit&& visit);
Stream* stream_or_null(c10::DeviceIndex device, c10::StreamId id);

// Waits for every stream of `device`, then reports.
void synchronize_device(c10::DeviceIndex device);
// Waits for every stream of every device, and gives their warnings; raises what a signal handler raises, no errors.
void finish_queued_work();
// From now on workers skip what is queued; waits for the tasks that run. For the end of a process.
void abandon_queued_work();

template <typename Visit>
void for_each_stream(c10::DeviceIndex device, Visit&& visit) {
  for (c10::StreamId id = 0; id <= 2 * kStreamsPerPriority; ++id) {
    if (Stream* stream = stream_or_null(device, id); stream != nullptr) {
      visit(*stream);
    }
  }
}

template <typename Body>
uint64_t Stream::push(OpRecord* op, size_t held_bytes, std::shared_ptr<std::string> python_stack, Body&& body) {
  std::unique_lock<std::mutex> lock(producer_mutex_);
  while (C10_UNLIKELY(!has_room(held_bytes))) {
    // Not under the lock: whoever waits for the lock may hold the GIL.
    lock.unlock();
    wait_for_room(held_bytes);
    lock.lock();
  }
  Task& task = slots_[tail_.load(std::memory_order_relaxed) % kSlots];
  task.emplace(op, held_bytes, std::forward<Body>(body));
  task.python_stack = std::move(python_stack);
  publish();
  return tail_.load(std::memory_order_relaxed);
}

}  // namespace torchneuron
