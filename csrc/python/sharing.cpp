#include "python/bindings.h"
#include "runtime/shared_memory.h"

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Storage.h>

namespace torchneuron {

void bind_sharing(pybind11::module_& m) {
  def(m, "share_storage", [](const pybind11::object& storage) {
    TORCH_CHECK_TYPE(torch::isStorage(storage.ptr()), "storage must be a torch.UntypedStorage");
    return share_storage(torch::createStorage(storage.ptr()));
  });
  def(m, "open_shared_storage", [](int descriptor, size_t nbytes, c10::DeviceIndex device) {
    return pybind11::reinterpret_steal<pybind11::object>(
        torch::createPyObject(open_shared_storage(descriptor, nbytes, device)));
  });
}

}  // namespace torchneuron
