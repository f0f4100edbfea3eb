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

// The tasks that a stream, and the streams that joined it through events, were given while it was captured. A replay is
// one launch that runs them in their order.
class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& args);
  ~Graph() override;

  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override;
  void capture_end() override;
  void instantiate() override {}
  void replay() override;
  void reset() override;
  c10::MempoolId_t pool() const override;
  void enable_debug_mode() override { debug_ = true; }
  // Writes the names of the tasks as a Graphviz chain. Needs enable_debug_mode().
  void debug_dump(const std::string& path) override;

  void add(Task&& task);
  // `stream` waits for an event of this capture and becomes a part of it.
  void join(Stream& stream);

 private:
  struct Content {
    std::vector<Task> tasks;
    std::shared_ptr<GraphRng> rng = std::make_shared<GraphRng>();
  };

  void end_streams();
  void synchronize_for_release();

  std::shared_ptr<Content> content_;
  std::mutex mutex_;
  std::vector<Stream*> streams_;  // being captured; the first is where the capture began
  c10::DeviceIndex device_ = -1;
  c10::MempoolId_t pool_{0, 0};
  uint64_t rng_increment_ = 0;
  bool captured_ = false;
  bool debug_ = false;
};

}  // namespace torchneuron
