#pragma once

#include "runtime/stream.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace torchneuron {

// While alive, CPU allocations of this thread are device memory of `stream` (outputs and temporaries of CPU kernels).
class DeviceAllocationScope {
 public:
  explicit DeviceAllocationScope(Stream& stream);
  ~DeviceAllocationScope();
  DeviceAllocationScope(const DeviceAllocationScope&) = delete;
  DeviceAllocationScope& operator=(const DeviceAllocationScope&) = delete;

 private:
  Stream* previous_;
};

// `memory`, which a CPU kernel allocated, as memory of the stream's device: taken over where a DeviceAllocationScope
// provided it, else copied.
c10::DataPtr adopt(c10::DataPtr memory, size_t nbytes, Stream& stream);

// While alive, the first CPU allocation of this thread with exactly the size of a planned output is that output's
// memory, so that a CPU kernel without an out= form still writes to where its result belongs.
class OutputPlacement {
 public:
  // `planned`: the CPU views of the outputs that a task was launched with. Undefined ones are left out.
  explicit OutputPlacement(at::ArrayRef<at::Tensor> planned);
  ~OutputPlacement();
  OutputPlacement(const OutputPlacement&) = delete;
  OutputPlacement& operator=(const OutputPlacement&) = delete;

  // Makes `planned` hold `result`: a copy, unless the kernel already wrote there.
  static void deliver(const at::Tensor& planned, const at::Tensor& result);
  // The same for all results of a kernel, which may lie in the places of one another.
  static void deliver_all(at::ArrayRef<at::Tensor> planned, std::vector<at::Tensor> results);

  // The memory planned for an allocation of `nbytes`, handed out once; null if there is none.
  void* take(size_t nbytes);

 private:
  struct Slot {
    void* ptr;
    size_t nbytes;
  };
  c10::SmallVector<Slot, 4> slots_;
  OutputPlacement* previous_;
};

}  // namespace torchneuron
