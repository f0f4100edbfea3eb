#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace torchneuron {

// For operators that PyTorch composes of others and that are one launch here where nobody can tell the difference: true
// for a tensor of this device that is no subclass, batch, view of complex numbers or dual number of any kind, while no
// dispatch mode looks on.
inline bool is_plain(const at::Tensor& tensor) {
  static const uint64_t ordinary =
      c10::DispatchKeySet({c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1,
                           c10::DispatchKey::AutocastPrivateUse1, c10::DispatchKey::ADInplaceOrView})
          .raw_repr();
  return (tensor.key_set().raw_repr() & ~ordinary) == 0 && tensor.is_privateuseone() &&
         !tensor._fw_grad(/*level=*/0).defined() && !c10::impl::TorchDispatchModeTLS::any_modes_set();
}

}  // namespace torchneuron
