#pragma once

#include "engine/launch.h"
#include "ops/codegen/structured.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/op_registration/adaption.h>

#include <array>
#include <optional>
#include <tuple>
#include <utility>

// What the hand-written launches stand on whose operators are not structured: nothing computes the geometry of their
// results for them, and many of their CPU kernels have no out= form.
namespace torchneuron {

// A new tensor on the device of `like`.
inline at::Tensor new_tensor(
    const at::Tensor& like, at::IntArrayRef sizes, at::ScalarType dtype,
    at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  return structured::allocate_output(sizes, {}, at::TensorOptions(like.device()).dtype(dtype).memory_format(format));
}

inline at::Tensor new_strided(
    const at::Tensor& like, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return structured::allocate_output(sizes, strides, at::TensorOptions(like.device()).dtype(dtype));
}

// What at::empty_like makes: the sizes of `like`, and its strides or, where these are not dense, its order of
// dimensions.
inline at::Tensor new_like(const at::Tensor& like) {
  if (C10_LIKELY(like.is_non_overlapping_and_dense())) {
    return new_strided(like, like.sizes(), like.strides(), like.scalar_type());
  }
  return new_strided(like, like.sizes(), at::infer_dense_strides(like.sizes(), like.strides()), like.scalar_type());
}

// A CPU tensor of this geometry without memory, for those of PyTorch's functions that look at nothing else.
inline at::Tensor geometry_only(at::IntArrayRef sizes, at::IntArrayRef strides, caffe2::TypeMeta dtype) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::kCPU), nullptr, /*resizable=*/false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

// Raises as PyTorch does unless all the tensors that are defined lie on one device.
template <typename... Tensors>
void check_one_device(const char* op, const Tensors&... tensors) {
  std::optional<at::Device> device;
  (c10::impl::check_and_update_common_device(device, tensors, op, "tensor"), ...);
}

// The tensor of an optional argument, undefined where there is none.
inline const at::Tensor& value_or_undefined(const std::optional<at::Tensor>& tensor) {
  static const at::Tensor undefined;
  return tensor.has_value() ? *tensor : undefined;
}

namespace detail {

inline at::Tensor zeros_on_cpu(const at::Tensor& t) {
  return t.defined() ? at::Tensor(at::detail::empty_strided_cpu(t.sizes(), t.strides(), t.scalar_type())).zero_()
                     : at::Tensor();
}
inline std::optional<at::Tensor> zeros_on_cpu(const std::optional<at::Tensor>& t) {
  return t.has_value() ? std::optional<at::Tensor>(zeros_on_cpu(*t)) : std::nullopt;
}

template <size_t kCount, typename Results>
void deliver(const std::array<at::Tensor, kCount>& planned, Results&& results) {
  std::apply([&](auto&&... made) { OutputPlacement::deliver_all(planned, {made...}); }, results);
}

}  // namespace detail

// For the error of an argument that a launch would take amiss: runs `kernel` on zeros of the same geometry on the CPU,
// which raises with CPU's words. Returns what it returns, should CPU find nothing wrong.
template <typename Kernel, typename... Tensors>
auto ask_cpu(const Kernel& kernel, const Tensors&... tensors) {
  const TaskScope scope;
  return kernel(detail::zeros_on_cpu(tensors)...);
}

// A new tensor with the geometry that CPU gives the result of `kernel`, or CPU's error: for arguments so unusual that
// what they lead to is not worth a rule here.
template <typename Kernel, typename... Tensors>
at::Tensor new_as_on_cpu(const at::Tensor& like, const Kernel& kernel, const Tensors&... tensors) {
  const at::Tensor result = ask_cpu(kernel, tensors...);
  return new_strided(like, result.sizes(), result.strides(), result.scalar_type());
}

// In a body: runs a CPU kernel that has no out= form so that its results lie in `planned`, in the order in which the
// kernel allocates them. Those that the caller does not want are undefined.
template <typename Kernel>
void run_into(const at::Tensor& planned, const Kernel& kernel) {
  at::Tensor result;
  {
    const OutputPlacement placement(planned);
    result = kernel();
  }
  OutputPlacement::deliver(planned, result);
}

template <typename Kernel>
void run_into(const std::array<at::Tensor, 2>& planned, const Kernel& kernel) {
  std::optional<decltype(kernel())> results;
  {
    const OutputPlacement placement(planned);
    results.emplace(kernel());
  }
  detail::deliver(planned, *results);
}

template <typename Kernel>
void run_into(const std::array<at::Tensor, 3>& planned, const Kernel& kernel) {
  std::optional<decltype(kernel())> results;
  {
    const OutputPlacement placement(planned);
    results.emplace(kernel());
  }
  detail::deliver(planned, *results);
}

// Launches kernel(args...) into `planned`, as run_into.
template <typename Kernel, typename... Args>
void launch_into(OpRecord& op, const at::Tensor& planned, Kernel kernel, const Args&... args) {
  launch(
      op,
      [kernel](const at::Tensor& planned, const auto&... args) { run_into(planned, [&] { return kernel(args...); }); },
      planned, args...);
}

template <typename Kernel, typename... Args>
void launch_into(OpRecord& op, const std::array<at::Tensor, 2>& planned, Kernel kernel, const Args&... args) {
  launch(
      op,
      [kernel](const at::Tensor& first, const at::Tensor& second, const auto&... args) {
        run_into(std::array{first, second}, [&] { return kernel(args...); });
      },
      planned[0], planned[1], args...);
}

template <typename Kernel, typename... Args>
void launch_into(OpRecord& op, const std::array<at::Tensor, 3>& planned, Kernel kernel, const Args&... args) {
  launch(
      op,
      [kernel](const at::Tensor& first, const at::Tensor& second, const at::Tensor& third, const auto&... args) {
        run_into(std::array{first, second, third}, [&] { return kernel(args...); });
      },
      planned[0], planned[1], planned[2], args...);
}

}  // namespace torchneuron
