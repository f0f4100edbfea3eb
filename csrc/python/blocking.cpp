#include "runtime/blocking.h"

#include <sys/syscall.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

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

void run_signal_handlers() {
  // Other threads run no handlers, and must not ask for the GIL: who holds it may wait for them.
  if (syscall(SYS_gettid) != getpid() || !Py_IsInitialized()) {
    return;
  }
  pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    python_error error;
    error.persist();
    throw error;
  }
}

}  // namespace torchneuron
