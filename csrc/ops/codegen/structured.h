#pragma once

#include "engine/launch.h"
#include "engine/op_record.h"
#include "engine/tensor_engine.h"
#include "ops/codegen/checked_op.h"

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/op_registration/adaption.h>

#include <array>
#include <cstdint>
#include <type_traits>

// What the generated launches of structured operators stand on. A structured operator's shape, dtype and error checks
// are its meta function, which reports each output to a virtual set_output; the classes here answer for a device
// tensor.
namespace torchneuron::structured {

// A new output on the device that `options` names. Dense in the options' memory format where `strides` is empty.
at::Tensor allocate_output(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options);

// Checks an `out=` argument and gives it `sizes` if it has others, as PyTorch's own kernels do.
void resize_output(
    const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options);

// Checks that an in-place result fits into `self`.
void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options);

// Lays out `output` in the memory format of `input`.
void take_memory_format(const at::Tensor& output, const at::Tensor& input);

// Raises in CPU's words unless the matrices, or batches of them, have one dtype.
void check_dtypes_of_product(const at::Tensor& a, const at::Tensor& b);

// Raises as PyTorch does if a part of `output` is also a part of one of the inputs.
void check_one_overlap(const at::Tensor& output, const at::Tensor& input);
inline void check_one_overlap(const at::Tensor& output, const std::optional<at::Tensor>& input) {
  check_one_overlap(output, input.value_or(at::Tensor()));
}
void check_one_overlap(const at::Tensor& output, const at::ITensorListRef& inputs);
template <typename... Inputs>
void check_overlap(const at::Tensor& output, const Inputs&... inputs) {
  if (C10_LIKELY(output.defined())) {
    (check_one_overlap(output, inputs), ...);
  }
}

// Waits for the current stream of the tensor's device if `check_errors`, and so raises what the launch has led to.
void wait_for_errors(bool check_errors, const at::Tensor& tensor);

// In a body: writes out the conjugate where the kernel only marked `result` as conjugated, which nobody would see.
void write_conjugate(const at::Tensor& result);

// A meta function whose outputs are passed on to `Derived::set_output`.
template <typename Meta, typename Derived>
struct OutputReceiver : Meta {
  // Unlike PyTorch's own kernels, these make no proxy for an `out=` whose strides the kernel can't write: the CPU
  // kernel that the launch runs sees the same strides and makes it.
  void set_output_strided(
      int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, at::TensorOptions options) final {
    receive(index, sizes, strides, options);
  }
  void set_output_raw_strided(
      int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, at::TensorOptions options) final {
    receive(index, sizes, strides, options);
  }

 private:
  void receive(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
    static_cast<Derived*>(this)->set_output(index, sizes, strides, options);
    // After set_output, because TensorIterator fetches the output with maybe_get_output.
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      Meta::set_output_raw_strided(index, sizes, strides, options);
    }
  }
};

template <typename Meta, size_t kOutputs>
struct Functional final : OutputReceiver<Meta, Functional<Meta, kOutputs>> {
  std::array<at::Tensor, kOutputs> outputs;

  const at::Tensor& maybe_get_output(int64_t index) final { return outputs[index]; }
  void set_output(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
    outputs[index] = allocate_output(sizes, strides, options);
  }
};

template <typename Meta>
struct InPlace final : OutputReceiver<Meta, InPlace<Meta>> {
  explicit InPlace(const at::Tensor& self) : self_(self) {}

  const at::Tensor& maybe_get_output(int64_t /*index*/) final { return self_; }
  void set_output(
      int64_t /*index*/, at::IntArrayRef sizes, at::IntArrayRef /*strides*/, const at::TensorOptions& options) {
    check_inplace(self_, sizes, options);
  }

 private:
  const at::Tensor& self_;
};

template <typename Meta, size_t kOutputs>
struct Out final : OutputReceiver<Meta, Out<Meta, kOutputs>> {
  template <typename... Outputs>
  explicit Out(const Outputs&... outputs) : outputs_{&outputs...} {
    static_assert(sizeof...(Outputs) == kOutputs);
  }

  const at::Tensor& maybe_get_output(int64_t index) final { return *outputs_[index]; }
  void set_output(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
    resize_output(*outputs_[index], sizes, strides, options);
  }

 private:
  std::array<const at::Tensor*, kOutputs> outputs_;
};

// Raises as PyTorch does unless all tensors among `args` lie on one device. `names` are the arguments' names.
template <size_t kArgs, typename... Args>
void check_same_device(const char* method, const std::array<const char*, kArgs>& names, const Args&... args) {
  static_assert(sizeof...(Args) == kArgs);
  std::optional<at::Device> device;
  size_t index = 0;
  (c10::impl::check_and_update_common_device(device, args, method, names[index++]), ...);
}

}  // namespace torchneuron::structured
