#pragma once

namespace torchneuron {

// Registers the operators that take sparse tensors, on the first call. Without such a tensor nothing needs them, and
// they would double the time that loading this extension takes.
void provide_sparse_operators();

}  // namespace torchneuron
