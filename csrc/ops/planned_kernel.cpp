#include "ops/planned_kernel.h"

#include "engine/launch.h"
#include "engine/silence.h"
#include "ops/call_key.h"
#include "ops/fallback_arguments.h"
#include "ops/tensor_parts.h"
#include "ops/unstructured.h"

#include <ATen/core/jit_type.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace torchneuron {

namespace {

using Tensors = std::vector<at::Tensor>;

constexpr size_t kNone = SIZE_MAX;

}  // namespace

struct KernelPlan {
  struct Geometry {
    explicit Geometry(const at::Tensor& tensor)
        : sizes(tensor.sizes()),
          strides(tensor.strides()),
          offset(tensor.storage_offset()),
          dtype(tensor.scalar_type()),
          conj(tensor.is_conj()),
          neg(tensor.is_neg()) {}

    at::DimVector sizes;
    at::DimVector strides;
    int64_t offset;
    at::ScalarType dtype;
    bool conj;
    bool neg;
  };
  struct Result {
    std::optional<Geometry> geometry;  // none for an undefined tensor
    size_t argument = kNone;           // that it is, or is a view of
    bool is_argument = false;
  };
  struct Resized {
    size_t argument;
    bool is_out;
    Geometry geometry;
    int64_t elements;  // of the memory, of which a kernel may need more for a while
  };

  torch::jit::Stack structure;  // the results, with undefined tensors in their place
  std::vector<Result> results;
  std::vector<Resized> resized;
};

namespace {

// Remembers plans: a program that meets ever new sizes starts again from time to time.
class Plans {
 public:
  std::shared_ptr<const KernelPlan> find(const CallKey& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = plans_.find(key);
    return found == plans_.end() ? nullptr : found->second;
  }

  void insert(const CallKey& key, const std::shared_ptr<const KernelPlan>& plan) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (plans_.size() >= kMost) {
      plans_.clear();
    }
    plans_.insert_or_assign(key, plan);
  }

 private:
  static constexpr size_t kMost = 4096;

  std::mutex mutex_;
  std::unordered_map<CallKey, std::shared_ptr<const KernelPlan>, CallKeyHash> plans_;
};

Plans& plans() {
  static auto* instance = new Plans();
  return *instance;
}

// What the kernel returns for `arguments` with `tensors` in the place of theirs.
torch::jit::Stack run_kernel(
    const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const Tensors& tensors) {
  torch::jit::Stack stack;
  auto next = tensors.begin();
  for (const c10::IValue& argument : arguments) {
    stack.push_back(replace_tensors(argument, [&](const at::Tensor&) { return *next++; }));
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  return stack;
}

// Zeros, but of matrices the identity, which most kernels can factor and solve.
at::Tensor stand_in(const at::Tensor& tensor) {
  if (!is_neuron(tensor)) {
    return tensor;
  }
  at::Tensor values = detail::zeros_on_cpu(tensor);
  if (values.dim() >= 2 && (values.is_floating_point() || values.is_complex()) &&
      values.is_non_overlapping_and_dense()) {
    values.diagonal(0, -2, -1).fill_(1);
  }
  values._set_conj(tensor.is_conj());
  values._set_neg(tensor.is_neg());
  return values;
}

Tensors stand_ins(const Tensors& tensors) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) {
    const size_t first = first_alike(tensors, tensor);
    result.push_back(first < result.size() ? result[first] : stand_in(tensor));
  }
  return result;
}

KernelPlan::Result planned_result(const at::Tensor& made, const Tensors& tensors, const Tensors& stand_ins) {
  KernelPlan::Result result;
  if (!made.defined()) {
    return result;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !has_parts(made), "a launch cannot make a ", made.is_nested() ? "nested tensor" : "sparse tensor");
  result.geometry.emplace(made);
  for (size_t i = 0; i < tensors.size() && result.argument == kNone; ++i) {
    if (is_neuron(tensors[i]) && made.is_alias_of(stand_ins[i])) {
      result.argument = i;
      result.is_argument = made.is_same(stand_ins[i]);
    }
  }
  return result;
}

size_t memory_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.storage().nbytes() : 0; }

KernelPlan rehearse(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const Tensors& tensors) {
  const TaskScope scope;
  const Tensors doubles = stand_ins(tensors);
  std::vector<size_t> bytes;
  for (const at::Tensor& tensor : doubles) {
    bytes.push_back(memory_of(tensor));
  }
  KernelPlan plan;
  for (const c10::IValue& result : run_kernel(op, arguments, doubles)) {
    plan.structure.push_back(replace_tensors(result, [&](const at::Tensor& made) {
      plan.results.push_back(planned_result(made, tensors, doubles));
      return at::Tensor();
    }));
  }
  size_t index = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    replace_tensors(arguments[i], [&](const at::Tensor& placeholder) {
      const at::Tensor& tensor = doubles[index];
      if (is_neuron(tensors[index]) &&
          (tensors[index].sizes() != tensor.sizes() || tensors[index].strides() != tensor.strides() ||
           memory_of(tensor) != bytes[index])) {
        plan.resized.push_back(
            {index, op.schema().arguments()[i].is_out(), KernelPlan::Geometry(tensor),
             static_cast<int64_t>(memory_of(tensor) / tensor.itemsize())});
      }
      ++index;
      return placeholder;
    });
  }
  return plan;
}

at::Tensor new_result(const KernelPlan::Geometry& geometry, c10::DeviceIndex device) {
  at::Tensor tensor = structured::allocate_output(
      geometry.sizes, geometry.strides, at::TensorOptions(c10::Device(kNeuron, device)).dtype(geometry.dtype));
  tensor._set_conj(geometry.conj);
  tensor._set_neg(geometry.neg);
  return tensor;
}

void check_sizes(at::IntArrayRef planned, at::IntArrayRef made) {
  TORCH_CHECK(
      planned == made, "a result of size ", planned, " was planned, but the kernel makes one of size ", made,
      ": its size depends on values");
}

// The body of the task.
void run_planned(
    const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const Tensors& views, const Tensors& planned) {
  std::vector<at::DimVector> sizes;
  for (const at::Tensor& view : views) {
    sizes.emplace_back(view.defined() ? view.sizes() : at::IntArrayRef());
  }
  Tensors made;
  {
    const OutputPlacement placement(planned);
    for (const c10::IValue& result : run_kernel(op, arguments, views)) {
      replace_tensors(result, [&](const at::Tensor& tensor) {
        made.push_back(tensor);
        return tensor;
      });
    }
  }
  for (size_t i = 0; i < planned.size(); ++i) {
    if (planned[i].defined()) {
      check_sizes(planned[i].sizes(), made[i].sizes());
    }
  }
  OutputPlacement::deliver_all(planned, std::move(made));
  for (size_t i = 0; i < views.size(); ++i) {
    check_sizes(sizes[i], views[i].defined() ? views[i].sizes() : at::IntArrayRef());
  }
}

bool returns_tensors(const c10::FunctionSchema& schema) {
  return std::all_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    return result.type()->isSubtypeOf(*c10::TensorType::get()) ||
           result.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

bool can_be_recorded(const c10::OperatorHandle& op, const Tensors& tensors) {
  return returns_tensors(op.schema()) && !op.hasTag(at::Tag::dynamic_output_shape) &&
         !op.hasTag(at::Tag::data_dependent_output) && !op.hasTag(at::Tag::nondeterministic_seeded) &&
         std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
           return !tensor.defined() || !has_parts(tensor);
         });
}

}  // namespace

PlannedKernel::PlannedKernel(const c10::OperatorHandle& op, const torch::jit::Stack& stack) : op_(op) {
  for (const c10::IValue& argument : torch::jit::last(stack, op.schema().arguments().size())) {
    arguments_.push_back(
        argument.isDevice() ? c10::IValue(c10::Device(c10::kCPU))
                            : replace_tensors(argument, [&](const at::Tensor& tensor) {
                                tensors_.push_back(tensor);
                                return at::Tensor();
                              }));
  }
}

void PlannedKernel::check_overlap(const torch::jit::Stack& stack) const {
  const auto& schema = op_.schema().arguments();
  const auto arguments = torch::jit::last(stack, schema.size());
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].alias_info() == nullptr || !schema[i].alias_info()->isWrite() || !arguments[i].isTensor()) {
      continue;
    }
    for (const at::Tensor& tensor : tensors_) {
      structured::check_overlap(arguments[i].toTensor(), tensor);
    }
  }
}

void PlannedKernel::plan() {
  // Without results there is nothing to plan, and an assertion would fail on stand-ins.
  if (op_.schema().returns().empty()) {
    plan_ = std::make_shared<const KernelPlan>();
    return;
  }
  const std::optional<CallKey> key = call_key(op_, arguments_, tensors_);
  plan_ = key.has_value() ? plans().find(*key) : nullptr;
  if (plan_ == nullptr) {
    plan_ = std::make_shared<const KernelPlan>(rehearse(op_, arguments_, tensors_));
    rehearsed_ = true;
    if (key.has_value()) {
      plans().insert(*key, plan_);
    }
  }
}

void PlannedKernel::launch(OpRecord& record, Stream& stream, torch::jit::Stack* stack) {
  for (const KernelPlan::Resized& resized : plan_->resized) {
    const at::Tensor& argument = tensors_[resized.argument];
    // Of an out= that has elements already, resize_output warns; in a rehearsal the kernel did.
    if (resized.is_out && !rehearsed_) {
      at::native::resize_output(argument, resized.geometry.sizes);
    }
    argument.resize_({resized.elements});
    argument.unsafeGetTensorImpl()->set_sizes_and_strides(resized.geometry.sizes, resized.geometry.strides);
  }
  Tensors planned;
  const auto result = [&](const at::Tensor&) {
    const KernelPlan::Result& made = plan_->results[planned.size()];
    planned.emplace_back();
    if (made.argument == kNone) {
      planned.back() = made.geometry.has_value() ? new_result(*made.geometry, stream.device()) : at::Tensor();
      return planned.back();
    }
    const at::Tensor& argument = tensors_[made.argument];
    return made.is_argument
               ? argument
               : argument.as_strided(
                     made.geometry->sizes, made.geometry->strides, argument.storage_offset() + made.geometry->offset);
  };
  torch::jit::Stack results;
  for (const c10::IValue& structure : plan_->structure) {
    results.push_back(replace_tensors(structure, result));
  }
  // What a kernel warns of it has told in the rehearsal, or before the capture of a graph.
  const bool silent = rehearsed_ || stream.capturing() != nullptr;
  launch_on(
      stream, record,
      [op = op_, arguments = std::move(arguments_), silent](const Tensors& views, const Tensors& outputs) {
        std::optional<Silence> silence;
        if (silent) {
          silence.emplace();
        }
        run_planned(op, arguments, views, outputs);
      },
      tensors_, planned);
  torch::jit::drop(*stack, op_.schema().arguments().size());
  stack->insert(stack->end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
}

void record_cpu_kernel(const c10::OperatorHandle& op, OpRecord& record, Stream& stream, torch::jit::Stack* stack) {
  PlannedKernel kernel(op, *stack);
  if (!can_be_recorded(op, kernel.tensors())) {
    stream.check_not_capturing((record.name + " has to wait").c_str());
  }
  try {
    kernel.plan();
  } catch (c10::Error& e) {
    e.add_context("raised while a graph was captured, by the kernel's run on stand-ins that plans its results");
    throw;
  }
  kernel.launch(record, stream, stack);
}

}  // namespace torchneuron
