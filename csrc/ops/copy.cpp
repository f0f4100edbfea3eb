#include "engine/launch.h"
#include "runtime/event.h"
#include "runtime/pinned.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/fill_native.h>
#include <ATen/ops/zero_native.h>
#include <torch/library.h>

namespace torchneuron {

namespace {

// Pageable host memory up to this size, and of any size in a captured graph, is copied into the task, so that the host
// need not wait for the stream.
constexpr int64_t kStagedBytes = int64_t{64} << 10;

// Host memory that a task reads or writes in place; holds the storage, not the Python object.
struct HostMemory {
  explicit HostMemory(const at::Tensor& t)
      : tensor(at::Tensor(t.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), false))) {}
  at::Tensor tensor;
};

bool reads_asynchronously(const at::Tensor& host, bool non_blocking) {
  return non_blocking && is_pinned(host.const_data_ptr());
}

void copy_host_to_device(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  static OpRecord& op = op_record("neuron::copy_host_to_device");
  const bool asynchronous = reads_asynchronously(source, non_blocking);
  Stream& stream = current_stream(destination.device().index());
  if (!asynchronous && (static_cast<int64_t>(source.nbytes()) <= kStagedBytes || stream.capturing() != nullptr)) {
    launch(op, [](const at::Tensor& to, const at::Tensor& from) { to.copy_(from); }, destination, source);
    return;
  }
  launch_on(
      stream, op, [](const at::Tensor& to, const HostMemory& from) { to.copy_(from.tensor); }, destination,
      HostMemory(source));
  if (!asynchronous) {
    stream.synchronize();
  }
}

void copy_device_to_host(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  static OpRecord& op = op_record("neuron::copy_device_to_host");
  Stream& stream = current_stream(source.device().index());
  const bool asynchronous = reads_asynchronously(destination, non_blocking);
  if (!asynchronous) {
    stream.check_not_capturing("a copy to the host that is not asynchronous");
  }
  launch_on(
      stream, op, [](const HostMemory& to, const at::Tensor& from) { to.tensor.copy_(from); }, HostMemory(destination),
      source);
  if (!asynchronous) {
    stream.synchronize();
  }
}

// Runs on the source's stream, between what the destination's stream had queued and what it queues later.
void copy_between_devices(const at::Tensor& source, const at::Tensor& destination) {
  static OpRecord& op = op_record("neuron::copy_peer");
  Stream& from_stream = current_stream(source.device().index());
  Stream& to_stream = current_stream(destination.device().index());
  Event destination_ready(false);
  destination_ready.record(to_stream);
  destination_ready.block(from_stream);
  launch_on(from_stream, op, [](const at::Tensor& to, const at::Tensor& from) { to.copy_(from); }, destination, source);
  Event copied(false);
  copied.record(from_stream);
  copied.block(to_stream);
}

void check_copy(const at::Tensor& source, const at::Tensor& destination) {
  if (source.sizes() != destination.sizes()) {
    const auto shape = at::infer_size(destination.sizes(), source.sizes());
    TORCH_CHECK(
        destination.sizes() == at::IntArrayRef(shape), "output with shape ", destination.sizes(),
        " doesn't match the broadcast shape ", at::IntArrayRef(shape));
  }
  at::assert_no_internal_overlap(destination);
  if (source.device() == destination.device()) {
    at::assert_no_partial_overlap(destination, source);
  }
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  if (source.is_same(destination)) {
    return destination;
  }
  check_copy(source, destination);
  if (destination.numel() == 0) {
    return destination;
  }
  const bool from_device = source.device().type() == kNeuron;
  const bool to_device = destination.device().type() == kNeuron;
  if (!from_device) {
    copy_host_to_device(source, destination, non_blocking);
  } else if (!to_device) {
    copy_device_to_host(source, destination, non_blocking);
  } else if (source.device() != destination.device()) {
    copy_between_devices(source, destination);
  } else {
    static OpRecord& op = op_record("aten::copy_");
    launch(op, [](const at::Tensor& to, const at::Tensor& from) { to.copy_(from); }, destination, source);
  }
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& destination) {
  destination.resize_(source.sizes());
  return copy_from(source, destination, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  static OpRecord& op = op_record("aten::_local_scalar_dense");
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  at::Scalar value;
  run_blocking(self.device().index(), op, [&] { value = at::_local_scalar_dense(cpu_view(self)); });
  return value;
}

// Raises here what the kernel would raise on the worker.
void check_converts(const at::Scalar& value, at::ScalarType dtype) {
  if (at::isIntegralType(dtype, /*includeBool=*/true) || (value.isComplex() && at::isFloatingType(dtype))) {
    AT_DISPATCH_V2(
        dtype, "fill_", AT_WRAP([&] { static_cast<void>(value.to<scalar_t>()); }), AT_EXPAND(AT_ALL_TYPES),
        AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), AT_EXPAND(AT_FLOAT8_TYPES), at::kHalf, at::kBFloat16, at::kBool);
  }
}

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  check_converts(value, self.scalar_type());
  static OpRecord& op = op_record("aten::fill_.Scalar");
  launch(op, [](at::Tensor to, const at::Scalar& v) { at::native::fill_(to, v); }, self, value);
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(
      value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
      " dimensions.");
  static OpRecord& op = op_record("aten::fill_.Tensor");
  if (value.device() != self.device() && value.device().type() == kNeuron) {
    return fill_tensor(self, value.to(self.device()));
  }
  launch(op, [](at::Tensor to, const at::Tensor& v) { at::native::fill_(to, v); }, self, value);
  return self;
}

at::Tensor& zero(at::Tensor& self) {
  static OpRecord& op = op_record("aten::zero_");
  launch(op, [](at::Tensor to) { at::native::zero_(to); }, self);
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("fill_.Scalar", &fill_scalar);
  m.impl("fill_.Tensor", &fill_tensor);
  m.impl("zero_", &zero);
}

// A copy reads the conjugate and negative bits itself; materialising its arguments first would copy forever.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace

}  // namespace torchneuron
