#pragma once

#include "engine/op_record.h"
#include "runtime/stream.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <vector>

namespace torchneuron {

struct KernelPlan;

// A call of an operator's CPU kernel that becomes a launch although nothing computes the geometry of its results: the
// kernel's run on stand-ins in host memory tells it, and is remembered for calls alike. For kernels whose results have
// a geometry that depends on nothing else than that of the arguments.
class PlannedKernel {
 public:
  // `stack` ends with the arguments.
  PlannedKernel(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

  const std::vector<at::Tensor>& tensors() const { return tensors_; }

  // Raises as PyTorch does if what is written is also a part of what is read.
  void check_overlap(const torch::jit::Stack& stack) const;

  // Raises what the kernel raises on the stand-ins.
  void plan();

  // Queues the kernel on `stream` and puts results on the device in the place of the arguments on `stack`.
  void launch(OpRecord& record, Stream& stream, torch::jit::Stack* stack);

 private:
  c10::OperatorHandle op_;
  torch::jit::Stack arguments_;  // with undefined tensors in the place of `tensors_`, and the host for the device
  std::vector<at::Tensor> tensors_;
  std::shared_ptr<const KernelPlan> plan_;
  bool rehearsed_ = false;
};

// For an operator without a launch of its own, while a graph captures `stream`: records its CPU kernel. Throws for an
// operator whose results the host would have to wait for: numbers, or tensors with sizes that depend on values.
void record_cpu_kernel(const c10::OperatorHandle& op, OpRecord& record, Stream& stream, torch::jit::Stack* stack);

}  // namespace torchneuron
