#pragma once

#include "engine/task.h"
#include "runtime/device.h"
#include "runtime/generator.h"

#include <ATen/core/GraphImplInterface.h>

#include <memory>
#include <mutex>
#include <vector>

namespace torchneuron {

class Stream;

// A point of a captured stream: how many tasks of each stream of the capture come before it.
struct CapturePoint {
  uint64_t capture;
  std::vector<uint64_t> tasks;
};

// The tasks that a stream, and the streams that joined it through events, were given while it was captured. A replay is
// one launch that runs them in their order.
class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& args);
  ~Graph() override;

  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override;
  // Throws if a stream that joined the capture was given tasks that the first stream does not wait for; the graph is
  // then as it was before the capture.
  void capture_end() override;
  void instantiate() override {}
  void replay() override;
  void reset() override;
  c10::MempoolId_t pool() const override;
  void enable_debug_mode() override { debug_ = true; }
  // Writes the names of the tasks as a Graphviz chain. Needs enable_debug_mode().
  void debug_dump(const std::string& path) override;

  // During a capture. What is drawn from `generator` is drawn anew at each replay, which advances it.
  void register_generator(const at::Generator& generator);
  void add(const Stream& stream, Task&& task);
  CapturePoint mark(const Stream& stream);
  // `stream` waits for a point of this capture and becomes a part of it.
  void join(Stream& stream, const CapturePoint& point);
  uint64_t capture() const { return capture_; }

 private:
  struct Content {
    std::vector<Task> tasks;
    std::vector<std::shared_ptr<GraphRng>> rngs;  // one for each of draws_
  };

  struct Draws {
    at::Generator generator;
    uint64_t increment = 0;  // of a replay
  };

  // A stream that is being captured, and its present point.
  struct Branch {
    Stream* stream;
    std::vector<uint64_t> tasks;
  };

  size_t branch_of(const Stream& stream) const;
  const Stream* unjoined_stream() const;
  void end_streams();
  void synchronize_for_release();

  std::shared_ptr<Content> content_;
  std::mutex mutex_;
  std::vector<Branch> branches_;  // the first is where the capture began
  std::vector<Draws> draws_;
  c10::DeviceIndex device_ = -1;
  c10::MempoolId_t pool_{0, 0};
  uint64_t capture_ = 0;
  bool captured_ = false;
  bool debug_ = false;
};

}  // namespace torchneuron
