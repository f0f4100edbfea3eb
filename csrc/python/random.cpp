#include "runtime/generator.h"

#include "python/bindings.h"
#include "runtime/graph.h"
#include "runtime/stream.h"

namespace torchneuron {

void bind_random(pybind11::module_& m) {
  def(m, "default_generator", [](c10::DeviceIndex device) { return default_generator(device); });
  // For the graph that captures the current stream.
  def(m, "register_generator", [](const at::Generator& generator) {
    Graph* graph = current_stream(current_device()).capturing();
    TORCH_CHECK(graph != nullptr, "no graph captures the current stream");
    graph->register_generator(generator);
  });
  def(m, "match_cpu_random", [] { return match_cpu_random(); });
  def(m, "set_match_cpu_random", [](bool on) { set_match_cpu_random(on); });
}

}  // namespace torchneuron
