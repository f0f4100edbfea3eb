#include "runtime/graph.h"

#include "engine/launch.h"
#include "runtime/allocator.h"
#include "runtime/capture_error.h"

#include <algorithm>
#include <atomic>
#include <fstream>

namespace torchneuron {

namespace {

c10::MempoolId_t new_pool_id() {
  static std::atomic<c10::CaptureId_t> next{1};
  return {next.fetch_add(1), 0};
}

uint64_t new_capture() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

NeuronGeneratorImpl& impl_of(const at::Generator& generator) { return *generator.get<NeuronGeneratorImpl>(); }

void run_by_name(Task& task) {
  try {
    task.run();
  } catch (c10::Error& e) {
    if (task.op != nullptr) {
      e.add_context("raised by " + task.op->name + " in a graph");
    }
    throw;
  }
}

}  // namespace

Graph::Graph(const at::GraphImplArgs&) {}

Graph::~Graph() {
  try {
    reset();
  } catch (const std::exception& e) {
    TORCH_WARN("a captured graph could not be released: ", e.what());
  }
}

void Graph::capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode) {
  ensure_usable();
  Stream& stream = current_stream(current_device());
  if (stream.capturing() != nullptr) {
    raise_capture_error(CaptureError::kIllegalState, c10::str("a capture of ", stream.handle(), " is under way"));
  }
  TORCH_CHECK(
      !captured_ && branches_.empty(),
      "This graph instance already owns a captured graph. To capture a new graph, create a new instance or call "
      "reset().");
  device_ = current_device();
  content_ = std::make_shared<Content>();
  draws_.clear();
  register_generator(default_generator(device_));
  pool_ = pool == c10::MempoolId_t{0, 0} ? new_pool_id() : pool;
  device_memory().begin_allocate_to_pool(device_, pool_, &stream);
  capture_ = new_capture();
  branches_.push_back({&stream, {0}});
  stream.set_capturing(this);
}

void Graph::capture_end() {
  TORCH_CHECK(!branches_.empty(), "capture_end() without capture_begin()");
  TORCH_CHECK(
      &current_stream(device_) == branches_.front().stream,
      "capture_end() must be called on the stream where capture began: ", branches_.front().stream->handle());
  const Stream* unjoined = unjoined_stream();
  end_streams();
  captured_ = true;
  if (unjoined != nullptr) {
    reset();
    raise_capture_error(
        CaptureError::kUnjoined, c10::str(
                                     "the capture was to end on ", current_stream(device_).handle(),
                                     ", which does not wait for all of ", unjoined->handle()));
  }
}

const Stream* Graph::unjoined_stream() const {
  const std::vector<uint64_t>& joined = branches_.front().tasks;
  for (size_t i = 1; i < branches_.size(); ++i) {
    if (branches_[i].tasks[i] > (i < joined.size() ? joined[i] : 0)) {
      return branches_[i].stream;
    }
  }
  return nullptr;
}

void Graph::end_streams() {
  for (const Branch& branch : branches_) {
    branch.stream->set_capturing(nullptr);
  }
  branches_.clear();
  for (Draws& draws : draws_) {
    draws.increment = impl_of(draws.generator).capture_epilogue();
  }
  device_memory().end_allocate_to_pool(device_, pool_);
}

void Graph::register_generator(const at::Generator& generator) {
  NeuronGeneratorImpl& impl = *at::check_generator<NeuronGeneratorImpl>(generator);
  for (const Draws& draws : draws_) {
    if (impl.shares_state(impl_of(draws.generator))) {
      return;
    }
  }
  auto rng = std::make_shared<GraphRng>();
  impl.capture_prologue(rng);
  content_->rngs.push_back(std::move(rng));
  // Not `generator`, whose state may be exchanged for another.
  draws_.push_back({at::Generator(impl.graphsafe_get_state())});
}

size_t Graph::branch_of(const Stream& stream) const {
  const auto found =
      std::find_if(branches_.begin(), branches_.end(), [&](const Branch& branch) { return branch.stream == &stream; });
  return found - branches_.begin();
}

void Graph::add(const Stream& stream, Task&& task) {
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t branch = branch_of(stream);
  ++branches_[branch].tasks[branch];
  content_->tasks.push_back(std::move(task));
}

CapturePoint Graph::mark(const Stream& stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  return {capture_, branches_[branch_of(stream)].tasks};
}

void Graph::join(Stream& stream, const CapturePoint& point) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (Graph* other = stream.capturing(); other != nullptr && other != this) {
    raise_capture_error(CaptureError::kMerge, c10::str("another graph captures ", stream.handle()));
  }
  const size_t branch = branch_of(stream);
  if (branch == branches_.size()) {
    branches_.push_back({&stream, std::vector<uint64_t>(branch + 1)});
    stream.set_capturing(this);
  }
  std::vector<uint64_t>& tasks = branches_[branch].tasks;
  tasks.resize(std::max(tasks.size(), point.tasks.size()));
  for (size_t i = 0; i < point.tasks.size(); ++i) {
    tasks[i] = std::max(tasks[i], point.tasks[i]);
  }
}

void Graph::replay() {
  TORCH_CHECK(captured_, "replay() of a graph that was not captured");
  Stream& stream = current_stream(device_);
  stream.check_not_capturing("the replay of another graph");
  static OpRecord& op = op_record("neuron::graph_replay");
  std::vector<PhiloxKey> keys;
  keys.reserve(draws_.size());
  for (const Draws& draws : draws_) {
    keys.push_back(impl_of(draws.generator).reserve(draws.increment));
  }
  detail::submit(stream, op, 0, [content = content_, keys = std::move(keys)] {
    for (size_t i = 0; i < keys.size(); ++i) {
      *content->rngs[i] = {keys[i].seed, keys[i].offset};
    }
    for (Task& task : content->tasks) {
      run_by_name(task);
    }
  });
}

void Graph::reset() {
  if (!branches_.empty()) {
    end_streams();
    captured_ = true;
  }
  if (captured_) {
    // Queued replays still use the pool's memory.
    synchronize_for_release();
    device_memory().release_pool(device_, pool_);
    content_.reset();
    captured_ = false;
  }
}

void Graph::synchronize_for_release() {
  if (initialized()) {
    for_each_stream(device_, [](Stream& stream) { stream.wait_for(stream.launched()); });
  }
}

c10::MempoolId_t Graph::pool() const {
  TORCH_CHECK(captured_ || !branches_.empty(), "pool() of a graph that was not captured");
  return pool_;
}

void Graph::debug_dump(const std::string& path) {
  TORCH_CHECK(debug_, "debug_dump() needs enable_debug_mode() before the capture");
  TORCH_CHECK(captured_, "debug_dump() of a graph that was not captured");
  std::ofstream file(path);
  TORCH_CHECK(file.good(), "cannot write ", path);
  file << "digraph neuron {\n";
  for (size_t i = 0; i < content_->tasks.size(); ++i) {
    const OpRecord* op = content_->tasks[i].op;
    file << "  t" << i << " [label=\"" << (op != nullptr ? op->name : "event") << "\"];\n";
    if (i > 0) {
      file << "  t" << i - 1 << " -> t" << i << ";\n";
    }
  }
  file << "}\n";
}

}  // namespace torchneuron

namespace at {
// DeviceTypeName of PrivateUse1 after it was renamed to "neuron".
C10_REGISTER_CLASS(GraphImplRegistry, NEURON, torchneuron::Graph)
C10_REGISTER_CLASS(GraphImplRegistry, neuron, torchneuron::Graph)
}  // namespace at
