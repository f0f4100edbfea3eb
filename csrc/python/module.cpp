#include "python/bindings.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  torchneuron::bind_device(m);
  torchneuron::bind_streams(m);
  torchneuron::bind_memory(m);
  torchneuron::bind_memory_history(m);
  torchneuron::bind_random(m);
  torchneuron::bind_ops(m);
  torchneuron::bind_compiled(m);
  torchneuron::bind_sharing(m);
}
