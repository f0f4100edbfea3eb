#include "runtime/generator.h"

#include "python/bindings.h"

namespace torchneuron {

void bind_random(pybind11::module_& m) {
  def(m, "default_generator", [](c10::DeviceIndex device) { return default_generator(device); });
  def(m, "match_cpu_random", [] { return match_cpu_random(); });
  def(m, "set_match_cpu_random", [](bool on) { set_match_cpu_random(on); });
}

}  // namespace torchneuron
