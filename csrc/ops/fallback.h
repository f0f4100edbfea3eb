#pragma once

#include "engine/launch.h"
#include "ops/fallback_arguments.h"
#include "ops/planned_kernel.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <algorithm>

namespace torchneuron {

// Waits for the stream and runs the kernel that the dispatched overload has for `kCpuKey` on views of device memory.
// What the kernel allocates, outputs included, is device memory, so nothing is copied. While a graph captures the
// stream the kernel is recorded instead.
template <c10::DispatchKey kCpuKey>
void run_cpu_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasComputedKernelForDispatchKey(kCpuKey), "Could not run '", op.operator_name(),
      "' with arguments from the 'neuron' backend: the operator has neither a kernel for it nor one for '",
      c10::toString(kCpuKey), "'.");
  const auto arguments = static_cast<ptrdiff_t>(op.schema().arguments().size());
  FallbackArguments views(op.schema(), torch::jit::last(*stack, arguments));
  const c10::OperatorName& name = op.operator_name();
  OpRecord& record = op_record(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  Stream& stream = current_stream(views.device());
  if (C10_UNLIKELY(stream.capturing() != nullptr)) {
    record_cpu_kernel(op, record, stream, stack);
    return;
  }
  std::transform(stack->end() - arguments, stack->end(), stack->end() - arguments, [&](const c10::IValue& argument) {
    return views.view_of(argument);
  });
  run_blocking(views.device(), record, [&] {
    DeviceAllocationScope device_memory_only(stream);
    std::optional<c10::AutoGradMode> with_gradients;
    if (asks_for_gradients(op.schema())) {
      with_gradients.emplace(true);
      std::for_each(stack->end() - arguments, stack->end(), &require_gradients);
    }
    op.redispatchBoxed(c10::DispatchKeySet(kCpuKey), stack);
  });
  views.propagate_resizes();
  const auto results = static_cast<ptrdiff_t>(op.schema().returns().size());
  std::transform(stack->end() - results, stack->end(), stack->end() - results, [&](const c10::IValue& result) {
    return views.to_device(result);
  });
}

}  // namespace torchneuron
