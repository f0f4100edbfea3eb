#include "engine/launch.h"
#include "ops/fallback_arguments.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>

namespace torchneuron {

namespace {

OpRecord& record_of(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return op_record(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
}

// Every operator without a launch of its own: waits for the stream and runs the CPU kernel of the dispatched overload
// on views of device memory. What the kernel allocates, outputs included, is device memory, so nothing is copied.
void run_cpu_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), "Could not run '", op.operator_name(),
      "' with arguments from the 'neuron' backend: the operator has neither a kernel for it nor one for 'cpu'.");
  const auto arguments = static_cast<ptrdiff_t>(op.schema().arguments().size());
  FallbackArguments views(op.schema(), torch::jit::last(*stack, arguments));
  std::transform(stack->end() - arguments, stack->end(), stack->end() - arguments, [&](const c10::IValue& argument) {
    return views.view_of(argument);
  });
  run_blocking(views.device(), record_of(op), [&] {
    DeviceAllocationScope device_memory_only(current_stream(views.device()));
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  });
  views.propagate_resizes();
  const auto results = static_cast<ptrdiff_t>(op.schema().returns().size());
  std::transform(stack->end() - results, stack->end(), stack->end() - results, [&](const c10::IValue& result) {
    return views.to_device(result);
  });
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_cpu_kernel>()); }

}  // namespace

}  // namespace torchneuron
