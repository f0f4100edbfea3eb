#include "ops/fallback.h"

#include <torch/library.h>

namespace torchneuron {

namespace {

// Every operator without a launch of its own.
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_cpu_kernel<c10::DispatchKey::CPU>>());
}

// Operators for which PyTorch gives a new device a kernel that refuses it, or that checks less than CPU's.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"addr", "addr_", "addr.out", "conj_physical_", "mode.values"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_cpu_kernel<c10::DispatchKey::CPU>>());
  }
}

}  // namespace

}  // namespace torchneuron
