#pragma once

#include <cstdint>
#include <string>

namespace torchneuron {

// What can be wrong around a capture, with CUDA's numbers (cudaError_t).
enum class CaptureError : int32_t {
  kIllegalState = 401,
  kUnsupported = 900,
  kMerge = 902,
  kUnjoined = 904,
  kCapturedEvent = 907,
};

// Throws what Python sees as torch.AcceleratorError with that error_code: CUDA's text for `error`, then `what`.
[[noreturn]] void raise_capture_error(CaptureError error, const std::string& what);

}  // namespace torchneuron
