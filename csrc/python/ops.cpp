#include "engine/launch.h"
#include "engine/op_record.h"
#include "python/bindings.h"

#include <pybind11/stl.h>

namespace torchneuron {

namespace {

// As Python prints a traceback; empty on a thread that runs no Python.
std::string python_stack_text() {
  if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == nullptr) {
    return {};
  }
  // PyTorch's bindings have released it by the time an operator runs.
  pybind11::gil_scoped_acquire gil;
  pybind11::list lines = pybind11::module_::import("traceback").attr("format_stack")();
  std::string text;
  for (const pybind11::handle& line : lines) {
    text += line.cast<std::string>();
  }
  return text;
}

}  // namespace

void bind_ops(pybind11::module_& m) {
  set_python_stack_source(&python_stack_text);
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
