#include "engine/op_record.h"
#include "python/bindings.h"

#include <pybind11/stl.h>

namespace torchneuron {

void bind_ops(pybind11::module_& m) {
  // (name, launches, fallbacks, nanoseconds) of each operator that ran since the last clear.
  def(m, "op_counts", [] {
    std::vector<std::tuple<std::string, uint64_t, uint64_t, uint64_t>> result;
    for (OpCount& count : op_counts()) {
      if (count.launches != 0 || count.fallbacks != 0) {
        result.emplace_back(std::move(count.name), count.launches, count.fallbacks, count.nanoseconds);
      }
    }
    return result;
  });
  def(m, "clear_op_counts", [] { clear_op_counts(); });
}

}  // namespace torchneuron
