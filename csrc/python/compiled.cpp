#include "engine/compiled_kernel.h"
#include "python/bindings.h"
#include "runtime/device.h"

#include <ATen/ops/empty_strided.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

namespace torchneuron {

namespace {

void call(const CompiledKernel& kernel, const pybind11::args& arguments) {
  c10::SmallVector<at::Tensor, 16> tensors;
  c10::SmallVector<CompiledKernel::Number, 8> numbers;
  const std::string& kinds = kernel.kinds();
  if (arguments.size() != kinds.size()) {
    throw pybind11::type_error(
        c10::str(kernel.name(), "() takes ", kinds.size(), " arguments but ", arguments.size(), " were given"));
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    PyObject* argument = PyTuple_GET_ITEM(arguments.ptr(), i);
    switch (kinds[i]) {
      case 't':
        if (!THPVariable_Check(argument)) {
          throw pybind11::type_error(
              c10::str(kernel.name(), "(): argument ", i, " must be a Tensor, not ", Py_TYPE(argument)->tp_name));
        }
        tensors.push_back(THPVariable_Unpack(argument));
        break;
      case 'i':
        numbers.push_back({.integer = pybind11::cast<int64_t>(argument)});
        break;
      default:
        numbers.push_back({.real = pybind11::cast<double>(argument)});
    }
  }
  pybind11::gil_scoped_release without_gil;
  kernel.launch(tensors, numbers);
}

c10::SmallVector<int64_t, 6> integers(const pybind11::tuple& tuple) {
  c10::SmallVector<int64_t, 6> result;
  for (const pybind11::handle& item : tuple) {
    result.push_back(item.cast<int64_t>());
  }
  return result;
}

}  // namespace

void bind_compiled(pybind11::module_& m) {
  pybind11::class_<CompiledKernel>(m, "CompiledKernel")
      .def(pybind11::init([](const std::string& name, uintptr_t entry, std::string kinds) {
        return CompiledKernel(name, reinterpret_cast<CompiledEntry>(entry), std::move(kinds));
      }))
      .def_property_readonly("name", &CompiledKernel::name)
      .def("__call__", torch::wrap_pybind_function(&call));
  // torch.empty_strided on the current device, without the parsing of its arguments.
  def(m, "empty_strided",
      [](const pybind11::tuple& size, const pybind11::tuple& stride, const pybind11::object& dtype) {
        return at::empty_strided(
            integers(size), integers(stride),
            at::TensorOptions(kNeuron).dtype(reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type));
      });
}

}  // namespace torchneuron
