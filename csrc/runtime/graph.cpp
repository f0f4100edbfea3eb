#include "runtime/graph.h"

#include "engine/launch.h"
#include "runtime/allocator.h"

#include <atomic>
#include <fstream>

namespace torchneuron {

namespace {

c10::MempoolId_t new_pool_id() {
  static std::atomic<c10::CaptureId_t> next{1};
  return {next.fetch_add(1), 0};
}

NeuronGeneratorImpl& generator_of(c10::DeviceIndex device) {
  return generator_or_default(std::nullopt, c10::Device(kNeuron, device));
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
  TORCH_CHECK(!captured_ && streams_.empty(), "this graph was captured before; call reset() first");
  ensure_usable();
  device_ = current_device();
  Stream& stream = current_stream(device_);
  TORCH_CHECK(stream.capturing() == nullptr, "the current stream is already capturing: ", stream.handle());
  content_ = std::make_shared<Content>();
  pool_ = pool == c10::MempoolId_t{0, 0} ? new_pool_id() : pool;
  device_memory().begin_allocate_to_pool(device_, pool_, &stream);
  generator_of(device_).capture_prologue(content_->rng);
  streams_.push_back(&stream);
  stream.set_capturing(this);
}

void Graph::capture_end() {
  TORCH_CHECK(!streams_.empty(), "capture_end() without capture_begin()");
  TORCH_CHECK(
      &current_stream(device_) == streams_.front(),
      "capture_end() must be called on the stream where capture began: ", streams_.front()->handle());
  end_streams();
  captured_ = true;
}

void Graph::end_streams() {
  for (Stream* stream : streams_) {
    stream->set_capturing(nullptr);
  }
  streams_.clear();
  rng_increment_ = generator_of(device_).capture_epilogue();
  device_memory().end_allocate_to_pool(device_, pool_);
}

void Graph::add(Task&& task) {
  std::lock_guard<std::mutex> lock(mutex_);
  content_->tasks.push_back(std::move(task));
}

void Graph::join(Stream& stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stream.capturing() == nullptr) {
    streams_.push_back(&stream);
    stream.set_capturing(this);
  }
}

void Graph::replay() {
  TORCH_CHECK(captured_, "replay() of a graph that was not captured");
  static OpRecord& op = op_record("neuron::graph_replay");
  const PhiloxKey key = generator_of(device_).reserve(rng_increment_);
  detail::submit(current_stream(device_), op, 0, [content = content_, key] {
    content->rng->seed = key.seed;
    content->rng->offset = key.offset;
    for (Task& task : content->tasks) {
      task.run();
    }
  });
}

void Graph::reset() {
  if (!streams_.empty()) {
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
  TORCH_CHECK(captured_ || !streams_.empty(), "pool() of a graph that was not captured");
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
