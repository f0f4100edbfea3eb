#include "ops/fallback.h"

#include <torch/library.h>

namespace torchneuron {

namespace {

// Every operator without a launch of its own.
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_cpu_kernel<c10::DispatchKey::CPU>>());
}

}  // namespace

}  // namespace torchneuron
