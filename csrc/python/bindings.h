#pragma once

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

namespace torchneuron {

// Each topic adds its functions to the extension module.
void bind_device(pybind11::module_& m);
void bind_streams(pybind11::module_& m);
void bind_memory(pybind11::module_& m);
void bind_memory_history(pybind11::module_& m);
void bind_random(pybind11::module_& m);
void bind_ops(pybind11::module_& m);
void bind_compiled(pybind11::module_& m);
void bind_sharing(pybind11::module_& m);

// Adds `body` as `name`, with PyTorch's exceptions turned into Python's.
template <typename Body>
void def(pybind11::module_& m, const char* name, Body&& body) {
  m.def(name, torch::wrap_pybind_function(std::forward<Body>(body)));
}

}  // namespace torchneuron
