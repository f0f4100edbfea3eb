#include "runtime/stream.h"

#include "engine/launch.h"
#include "runtime/blocking.h"
#include "runtime/capture_error.h"
#include "runtime/sync_debug.h"
#include "runtime/topology.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/thread_name.h>
#include <immintrin.h>
#include <omp.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <sstream>
#include <thread>

namespace torchneuron {

namespace {

// How long a waiting thread looks before it sleeps. Waking a sleeper costs a few microseconds of the waker's time.
constexpr auto kSpin = std::chrono::microseconds(50);
// How often a sleeping thread looks whether a signal came, which cannot wake it.
constexpr auto kSignalInterval = std::chrono::milliseconds(100);

template <typename Condition>
bool spin_until(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition()) {
        return true;
      }
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

// The streams of one device: 0 is the default one, then the pools of both priorities. Made on first use, never
// destroyed.
struct DeviceStreams {
  std::array<std::atomic<Stream*>, 1 + 2 * kStreamsPerPriority> streams{};
  std::array<std::atomic<uint32_t>, 2> next{};
  std::mutex mutex;
};

DeviceStreams& streams_of_device(c10::DeviceIndex device) {
  static auto* all = new std::array<DeviceStreams, 128>();
  return (*all)[device];
}

int priority_of_id(c10::StreamId id) { return id > kStreamsPerPriority ? kGreatestPriority : kLeastPriority; }

Stream& stream_with_id(c10::DeviceIndex device, c10::StreamId id) {
  DeviceStreams& pool = streams_of_device(device);
  std::atomic<Stream*>& slot = pool.streams[id];
  Stream* stream = slot.load(std::memory_order_acquire);
  if (C10_UNLIKELY(stream == nullptr)) {
    check_device_index(device);
    ensure_usable();
    std::lock_guard<std::mutex> lock(pool.mutex);
    stream = slot.load(std::memory_order_acquire);
    if (stream == nullptr) {
      stream = new Stream(device, id, priority_of_id(id));
      slot.store(stream, std::memory_order_release);
    }
  }
  return *stream;
}

thread_local std::array<c10::StreamId, 128> thread_streams{};

std::atomic<bool> abandoned{false};

}  // namespace

class Stream::WarningCollector final : public c10::WarningHandler {
 public:
  explicit WarningCollector(Stream& stream) : stream_(stream) {}
  void process(const c10::Warning& warning) override { stream_.keep_warning(warning); }

 private:
  Stream& stream_;
};

Stream::Stream(c10::DeviceIndex device, c10::StreamId id, int priority)
    : device_(device), id_(id), priority_(priority), slots_(new Task[kSlots]) {}

c10::Stream Stream::handle() const { return c10::Stream(c10::Stream::UNSAFE, c10::Device(kNeuron, device_), id_); }

bool Stream::has_room(size_t held_bytes) const {
  const size_t held = held_bytes_.load(std::memory_order_relaxed);
  return tail_.load(std::memory_order_relaxed) - completed() < kSlots &&
         (held == 0 || held + held_bytes <= kMaxHeldBytes);
}

void Stream::wait_for_room(size_t held_bytes) {
  BlockingRegion blocking;
  sleep_until([&] { return has_room(held_bytes); }, /*interruptible=*/true);
}

void Stream::start_worker() {
  worker_started_ = true;
  std::thread([this] { run_worker(); }).detach();
}

void Stream::publish() {
  if (C10_UNLIKELY(!worker_started_)) {
    start_worker();
  }
  const uint64_t position = tail_.load(std::memory_order_relaxed);
  Task& task = slots_[position % kSlots];
  task.num_threads = omp_get_max_threads();
  held_bytes_.fetch_add(task.held_bytes, std::memory_order_relaxed);
  tail_.store(position + 1, std::memory_order_seq_cst);
  if (C10_UNLIKELY(worker_asleep_.load(std::memory_order_seq_cst))) {
    std::lock_guard<std::mutex> lock(sleep_mutex_);
    work_arrived_.notify_one();
  }
}

void Stream::run_worker() {
  c10::setThreadName("neuron:" + std::to_string(device_) + "/" + std::to_string(id_));
  if (priority_ < 0) {
    // Needs CAP_SYS_NICE; without it a stream of high priority runs like the others.
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), -5);
  }
  TaskScope scope;
  WarningCollector collector(*this);
  const c10::WarningUtils::WarningHandlerGuard collecting(&collector);
  set_current_device(device_);
  exchange_current_stream(*this);
  int num_threads = 0;
  uint64_t position = 0;
  const auto has_work = [&] { return tail_.load(std::memory_order_seq_cst) != position; };
  for (;;) {
    if (!has_work() && !spin_until(has_work)) {
      std::unique_lock<std::mutex> lock(sleep_mutex_);
      worker_asleep_.store(true, std::memory_order_seq_cst);
      work_arrived_.wait(lock, has_work);
      worker_asleep_.store(false, std::memory_order_seq_cst);
    }
    Task& task = slots_[position % kSlots];
    if (task.num_threads > 0 && task.num_threads != num_threads) {
      num_threads = task.num_threads;
      omp_set_num_threads(num_threads);
    }
    const uint64_t start = detail::now_nanoseconds();
    try {
      if (C10_LIKELY(!abandoned.load(std::memory_order_relaxed))) {
        task.run();
      }
    } catch (...) {
      set_error(std::current_exception(), task);
    }
    if (task.op != nullptr) {
      task.op->nanoseconds.fetch_add(detail::now_nanoseconds() - start, std::memory_order_relaxed);
    }
    held_bytes_.fetch_sub(task.held_bytes, std::memory_order_relaxed);
    task.reset();
    completed_.store(++position, std::memory_order_seq_cst);
    if (C10_UNLIKELY(waiters_.load(std::memory_order_seq_cst) != 0)) {
      std::lock_guard<std::mutex> lock(sleep_mutex_);
      work_done_.notify_all();
    }
  }
}

template <typename Condition>
void Stream::sleep_until(Condition&& condition, bool interruptible) {
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  const auto leave = c10::make_scope_exit([this] { waiters_.fetch_sub(1); });
  std::unique_lock<std::mutex> lock(sleep_mutex_);
  if (!interruptible) {
    work_done_.wait(lock, condition);
    return;
  }
  while (!work_done_.wait_for(lock, kSignalInterval, condition)) {
    lock.unlock();
    run_signal_handlers();
    lock.lock();
  }
}

void Stream::wait_for(uint64_t sequence, bool interruptible) {
  const auto done = [&] { return completed_.load(std::memory_order_seq_cst) >= sequence; };
  if (done()) {
    return;
  }
  BlockingRegion blocking;
  if (!spin_until(done)) {
    sleep_until(done, interruptible);
  }
}

void Stream::wait_for(uint64_t sequence) { wait_for(sequence, /*interruptible=*/false); }

void Stream::wait_interruptibly_for(uint64_t sequence) { wait_for(sequence, /*interruptible=*/true); }

void Stream::check_not_capturing(const char* what) const {
  if (C10_UNLIKELY(capturing() != nullptr)) {
    raise_capture_error(CaptureError::kUnsupported, c10::str(what, " (on ", handle(), ")"));
  }
}

bool Stream::query() const {
  check_not_capturing("query of the stream");
  return completed() == launched();
}

void Stream::synchronize() {
  check_not_capturing("synchronize of the stream");
  ensure_usable();
  report_synchronization();
  wait_interruptibly_for(launched());
  report();
}

void Stream::set_error(std::exception_ptr error, const Task& task) {
  std::ostringstream where;
  where << "raised by " << (task.op != nullptr ? task.op->name : "a task") << " on neuron:" << static_cast<int>(device_)
        << ", stream " << id_;
  if (task.python_stack != nullptr) {
    where << "; launched from (most recent call last):\n" << *task.python_stack;
  }
  auto kept = std::make_shared<TaskError>();
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& e) {
    e.add_context(where.str());
    kept->exception = std::current_exception();
  } catch (const std::exception& e) {
    kept->exception = std::make_exception_ptr(c10::Error(std::string(e.what()) + "\n" + where.str()));
  } catch (...) {
    kept->exception = std::make_exception_ptr(c10::Error("unknown exception\n" + where.str()));
  }
  keep_error(std::move(kept));
}

void Stream::keep_error(std::shared_ptr<TaskError> error) {
  std::lock_guard<std::mutex> lock(report_mutex_);
  if (error_ == nullptr || error_->raised.load()) {
    error_ = std::move(error);
    has_reports_.store(true, std::memory_order_release);
  }
}

void Stream::keep_warning(const c10::Warning& warning) {
  std::lock_guard<std::mutex> lock(report_mutex_);
  const auto same = [&](const c10::Warning& kept) { return kept.msg() == warning.msg(); };
  if (std::none_of(warnings_.begin(), warnings_.end(), same)) {
    warnings_.push_back(warning);
    has_reports_.store(true, std::memory_order_release);
  }
}

void Stream::inherit_reports(Stream& awaited) {
  if (C10_LIKELY(!awaited.has_reports_.load(std::memory_order_acquire))) {
    return;
  }
  std::shared_ptr<TaskError> error;
  std::vector<c10::Warning> warnings;
  {
    std::lock_guard<std::mutex> lock(awaited.report_mutex_);
    error = awaited.error_;
    warnings = std::exchange(awaited.warnings_, {});
  }
  for (const c10::Warning& warning : warnings) {
    keep_warning(warning);
  }
  if (error != nullptr) {
    keep_error(std::move(error));
  }
}

void Stream::report_warnings() {
  std::vector<c10::Warning> warnings;
  {
    std::lock_guard<std::mutex> lock(report_mutex_);
    warnings = std::exchange(warnings_, {});
  }
  for (const c10::Warning& warning : warnings) {
    c10::warn(warning);
  }
}

void Stream::report() {
  if (C10_LIKELY(!has_reports_.load(std::memory_order_acquire))) {
    return;
  }
  report_warnings();
  std::shared_ptr<TaskError> error;
  {
    std::lock_guard<std::mutex> lock(report_mutex_);
    error = std::exchange(error_, nullptr);
    has_reports_.store(!warnings_.empty(), std::memory_order_release);
  }
  if (error != nullptr && !error->raised.exchange(true)) {
    std::rethrow_exception(error->exception);
  }
}

Stream& default_stream(c10::DeviceIndex device) { return stream_with_id(device, 0); }

Stream& current_stream(c10::DeviceIndex device) { return stream_with_id(device, thread_streams[device]); }

Stream& exchange_current_stream(Stream& stream) {
  Stream& previous = current_stream(stream.device());
  thread_streams[stream.device()] = stream.id();
  return previous;
}

Stream& stream_from_pool(c10::DeviceIndex device, int priority) {
  check_device_index(device);
  const bool high = priority < 0;
  const uint32_t turn = streams_of_device(device).next[high].fetch_add(1) % kStreamsPerPriority;
  return stream_with_id(device, 1 + (high ? kStreamsPerPriority : 0) + turn);
}

Stream& stream_of(const c10::Stream& stream) {
  TORCH_CHECK_VALUE(stream.device_type() == kNeuron, "expected a stream of a neuron device, but got ", stream);
  TORCH_CHECK_VALUE(
      stream.id() >= 0 && stream.id() <= 2 * kStreamsPerPriority, "no stream of ", stream.device(), " has the id ",
      stream.id());
  return stream_with_id(stream.device_index(), stream.id());
}

Stream* stream_or_null(c10::DeviceIndex device, c10::StreamId id) {
  return streams_of_device(device).streams[id].load(std::memory_order_acquire);
}

void synchronize_device(c10::DeviceIndex device) {
  check_device_index(device);
  ensure_usable();
  for_each_stream(device, [](Stream& stream) { stream.check_not_capturing("synchronize of the device"); });
  for_each_stream(device, [](Stream& stream) { stream.wait_interruptibly_for(stream.launched()); });
  for_each_stream(device, [](Stream& stream) { stream.report(); });
}

namespace {

template <typename Visit>
void for_each_stream_of_any_device(Visit&& visit) {
  for (c10::DeviceIndex device = 0; initialized() && device < device_count(); ++device) {
    for_each_stream(device, visit);
  }
}

}  // namespace

void finish_queued_work() {
  for_each_stream_of_any_device([](Stream& stream) {
    stream.wait_interruptibly_for(stream.launched());
    stream.report_warnings();
  });
}

void abandon_queued_work() {
  abandoned.store(true);
  for_each_stream_of_any_device([](Stream& stream) { stream.wait_for(stream.launched()); });
}

}  // namespace torchneuron
