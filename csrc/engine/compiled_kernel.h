#pragma once

#include "engine/op_record.h"

#include <ATen/core/Tensor.h>

#include <string>

namespace torchneuron {

// A function that a compiler made for a graph, as the generated library exports it: it gets an array with, for each
// argument, the address of a tensor's first element or the address of a number.
using CompiledEntry = void (*)(void* const* arguments);

// A launch of such a function.
class CompiledKernel {
 public:
  // A number, kept as the entry reads it.
  union Number {
    int64_t integer;
    double real;
  };

  // `kinds` has a letter for each argument: 't' a tensor, 'i' an int64, 'd' a double.
  CompiledKernel(const std::string& name, CompiledEntry entry, std::string kinds);

  const std::string& name() const { return op_.name; }
  const std::string& kinds() const { return kinds_; }

  // `tensors` and `numbers` in the order in which `kinds` has them.
  void launch(at::TensorList tensors, at::ArrayRef<Number> numbers) const;

 private:
  OpRecord& op_;
  CompiledEntry entry_;
  std::string kinds_;
};

}  // namespace torchneuron
