#include "runtime/blocking.h"

#include <torch/csrc/python_headers.h>

namespace torchneuron {

BlockingRegion::BlockingRegion() {
  // PyGILState_Check answers yes when there is no interpreter (any more).
  if (Py_IsInitialized() && PyGILState_Check()) {
    python_thread_state_ = PyEval_SaveThread();
  }
}

BlockingRegion::~BlockingRegion() {
  if (python_thread_state_ != nullptr) {
    PyEval_RestoreThread(static_cast<PyThreadState*>(python_thread_state_));
  }
}

}  // namespace torchneuron
