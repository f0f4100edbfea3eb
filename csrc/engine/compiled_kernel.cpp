#include "engine/compiled_kernel.h"

#include "engine/launch.h"

namespace torchneuron {

namespace {

size_t count(const std::string& kinds, bool tensors) {
  return std::count_if(kinds.begin(), kinds.end(), [&](char kind) { return (kind == 't') == tensors; });
}

}  // namespace

CompiledKernel::CompiledKernel(const std::string& name, CompiledEntry entry, std::string kinds)
    : op_(op_record("inductor::" + name)), entry_(entry), kinds_(std::move(kinds)) {}

void CompiledKernel::launch(at::TensorList tensors, at::ArrayRef<Number> numbers) const {
  TORCH_CHECK(
      tensors.size() == count(kinds_, true) && numbers.size() == count(kinds_, false), op_.name, " takes ",
      kinds_.size(), " arguments, but got ", tensors.size() + numbers.size());
  c10::SmallVector<DeviceAddress, 16> addresses;
  for (const at::Tensor& tensor : tensors) {
    addresses.emplace_back(tensor);
  }
  torchneuron::launch(
      op_,
      // A copy: the kernel's object may go, with the module that holds it, while the task is queued.
      [entry = entry_, kinds = kinds_](const auto& addresses, const c10::SmallVector<Number, 8>& numbers) {
        c10::SmallVector<void*, 24> arguments;
        auto address = addresses.begin();
        auto number = numbers.begin();
        for (char kind : kinds) {
          arguments.push_back(kind == 't' ? (address++)->get() : const_cast<Number*>(number++));
        }
        entry(arguments.data());
      },
      addresses, c10::SmallVector<Number, 8>(numbers.begin(), numbers.end()));
}

}  // namespace torchneuron
