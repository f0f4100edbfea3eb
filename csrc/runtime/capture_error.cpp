#include "runtime/capture_error.h"

#include <c10/util/Exception.h>

namespace torchneuron {

namespace {

const char* text_of(CaptureError error) {
  switch (error) {
    case CaptureError::kIllegalState:
      return "the operation cannot be performed in the present state";
    case CaptureError::kUnsupported:
      return "operation not permitted when stream is capturing";
    case CaptureError::kMerge:
      return "operation would result in a merge of separate capture sequences";
    case CaptureError::kUnjoined:
      return "capturing stream has unjoined work";
    case CaptureError::kCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
  }
  return "unknown error";
}

}  // namespace

void raise_capture_error(CaptureError error, const std::string& what) {
  throw c10::AcceleratorError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, static_cast<int32_t>(error),
      std::string(text_of(error)) + ": " + what);
}

}  // namespace torchneuron
