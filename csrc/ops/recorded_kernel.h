#pragma once

#include "engine/op_record.h"
#include "runtime/stream.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torchneuron {

// For an operator without a launch of its own, while a graph captures `stream`: records a task that runs the operator's
// CPU kernel, and puts tensors of the graph's memory onto `stack` for its results. Throws for an operator whose results
// the host would have to wait for: numbers, or tensors with sizes that depend on values.
void record_cpu_kernel(const c10::OperatorHandle& op, OpRecord& record, Stream& stream, torch::jit::Stack* stack);

}  // namespace torchneuron
