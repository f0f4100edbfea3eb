#pragma once

#include "engine/launch.h"
#include "engine/op_record.h"

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/FunctionRef.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torchneuron {

// An operator that raises at the call, as CPU does, where its CPU kernel is not written for the dtypes it is given.
//
// Which dtypes a kernel takes stands nowhere but in the kernel. So the first launch with dtypes that are new to the
// operator tries the body on one element, on the calling thread; it takes microseconds. Keep it in a static.
class CheckedOp {
 public:
  explicit CheckedOp(const std::string& name) : record_(op_record(name)) {}

  // As torchneuron::launch. The body gives sizes to the last `kOutputs` arguments, if they have none.
  template <size_t kOutputs, typename Body, typename... Args>
  void launch(const Body& body, const Args&... args) {
    launch_body<kOutputs>(detail::plain_body(body), args...);
  }

 private:
  template <size_t kOutputs, typename Body, typename... Args>
  void launch_body(const Body& body, const Args&... args) {
    uint64_t dtypes = 0;
    (fold(dtypes, args), ...);
    const bool known = is_known(dtypes);
    std::exception_ptr refusal;
    if (C10_UNLIKELY(!known)) {
      refusal = try_one_element<kOutputs>(std::index_sequence_for<Args...>(), body, args...);
    }
    torchneuron::launch(record_, body, args...);
    if (C10_UNLIKELY(!known)) {
      std::optional<at::Device> device;
      (find_device(device, args), ...);
      conclude(dtypes, refusal, device);
    }
  }

  // What the body raises if it is not written for the dtypes.
  template <size_t kOutputs, size_t... kIndex, typename Body, typename... Args>
  static std::exception_ptr try_one_element(std::index_sequence<kIndex...>, const Body& body, const Args&... args) {
    return refusal_of([&] { body(one_element(args, kIndex + kOutputs >= sizeof...(Args))...); });
  }
  static std::exception_ptr refusal_of(c10::function_ref<void()> attempt);

  // After the launch: remembers the dtypes, or raises `refusal` if the worker says the same.
  void conclude(uint64_t dtypes, const std::exception_ptr& refusal, std::optional<at::Device> device);

  // At most one element of a tensor, on the CPU; none for an output.
  static at::Tensor one_element(const at::Tensor& tensor, bool output);
  static std::vector<at::Tensor> one_element(const at::ITensorListRef& tensors, bool output);
  static std::optional<at::Tensor> one_element(const std::optional<at::Tensor>& tensor, bool output) {
    return tensor.has_value() ? std::optional<at::Tensor>(one_element(*tensor, output)) : std::nullopt;
  }
  template <typename T>
  static const T& one_element(const T& argument, bool /*output*/) {
    return argument;
  }

  static void fold(uint64_t& dtypes, uint64_t value) { dtypes = dtypes * 61 + value; }
  static void fold(uint64_t& dtypes, const at::Tensor& tensor) {
    fold(dtypes, uint64_t{1} + (tensor.defined() ? static_cast<uint64_t>(tensor.scalar_type()) : 0));
  }
  static void fold(uint64_t& dtypes, const std::optional<at::Tensor>& tensor) {
    fold(dtypes, tensor.has_value() && tensor->defined() ? static_cast<uint64_t>(tensor->scalar_type()) : 0);
  }
  static void fold(uint64_t& dtypes, const at::ITensorListRef& tensors) {
    for (const at::Tensor& tensor : tensors) {
      fold(dtypes, tensor);
    }
  }
  static void fold(uint64_t& dtypes, const at::Scalar& scalar) { fold(dtypes, static_cast<uint64_t>(scalar.type())); }
  static void fold(uint64_t& dtypes, const std::optional<at::Scalar>& scalar) {
    fold(dtypes, scalar.has_value() ? uint64_t{1} + static_cast<uint64_t>(scalar->type()) : 0);
  }
  template <typename T>
  static void fold(uint64_t& /*dtypes*/, const T& /*argument*/) {}

  static void find_device(std::optional<at::Device>& device, const at::Tensor& tensor) {
    if (!device.has_value() && tensor.defined() && tensor.device().type() == kNeuron) {
      device = tensor.device();
    }
  }
  static void find_device(std::optional<at::Device>& device, const at::ITensorListRef& tensors) {
    for (const at::Tensor& tensor : tensors) {
      find_device(device, tensor);
    }
  }
  template <typename T>
  static void find_device(std::optional<at::Device>& /*device*/, const T& /*argument*/) {}

  bool is_known(uint64_t dtypes) const {
    for (const auto& known : known_) {
      if (known.load(std::memory_order_relaxed) == dtypes) {
        return true;
      }
    }
    return false;
  }

  OpRecord& record_;
  std::array<std::atomic<uint64_t>, 8> known_{};
  std::atomic<uint32_t> next_{0};
};

}  // namespace torchneuron
