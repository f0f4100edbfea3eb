#include "ops/recorded_kernel.h"

#include "engine/launch.h"
#include "engine/silence.h"
#include "ops/fallback_arguments.h"
#include "ops/tensor_parts.h"
#include "ops/unstructured.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace torchneuron {

namespace {

using Tensors = std::vector<at::Tensor>;

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

// The body of the task.
void run_kernel_into(
    const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const Tensors& views, const Tensors& planned) {
  const Silence warned_at_the_capture;
  std::vector<at::DimVector> sizes;
  for (const at::Tensor& view : views) {
    sizes.emplace_back(view.defined() ? view.sizes() : at::IntArrayRef());
  }
  const auto check = [](at::IntArrayRef expected, at::IntArrayRef made) {
    TORCH_CHECK(
        expected == made, "a graph was captured with a result of size ", expected,
        " but this replay makes one of size ", made);
  };
  auto next = planned.begin();
  for (const c10::IValue& result : run_kernel(op, arguments, views)) {
    replace_tensors(result, [&](const at::Tensor& made) {
      if (const at::Tensor& place = *next++; place.defined()) {
        check(place.sizes(), made.sizes());
        place.copy_(made);
      }
      return made;
    });
  }
  for (size_t i = 0; i < views.size(); ++i) {
    check(sizes[i], views[i].defined() ? views[i].sizes() : at::IntArrayRef());
  }
}

// Learns from a run on zeros in host memory what the kernel makes of tensors of this geometry.
class Rehearsal {
 public:
  Rehearsal(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const Tensors& tensors)
      : tensors_(tensors) {
    for (const at::Tensor& tensor : tensors) {
      const size_t first =
          std::find_if(tensors.begin(), tensors.end(), [&](const at::Tensor& t) { return t.is_same(tensor); }) -
          tensors.begin();
      stand_ins_.push_back(first < stand_ins_.size() ? stand_ins_[first] : stand_in(tensor));
    }
    try {
      results_ = run_kernel(op, arguments, stand_ins_);
    } catch (c10::Error& e) {
      e.add_context("raised while a graph was captured, by the kernel's run on zeros that plans its results");
      throw;
    }
  }

  // Gives the arguments that the kernel resizes their new geometry.
  void resize_arguments() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (is_neuron(tensors_[i]) && tensors_[i].sizes() != stand_ins_[i].sizes()) {
        tensors_[i].resize_(stand_ins_[i].sizes());
        tensors_[i].unsafeGetTensorImpl()->set_sizes_and_strides(stand_ins_[i].sizes(), stand_ins_[i].strides());
      }
    }
  }

  // The results as the caller gets them. Of those that are no arguments, `planned` gets the tensors that a task is to
  // write, else undefined ones.
  torch::jit::Stack results(c10::DeviceIndex device, Tensors& planned) const {
    torch::jit::Stack results;
    for (const c10::IValue& result : results_) {
      results.push_back(replace_tensors(result, [&](const at::Tensor& made) {
        planned.emplace_back();
        if (!made.defined()) {
          return made;
        }
        TORCH_CHECK_NOT_IMPLEMENTED(
            !has_parts(made), "a graph cannot capture what makes a ",
            made.is_nested() ? "nested tensor" : "sparse tensor");
        for (size_t i = 0; i < tensors_.size(); ++i) {
          if (is_neuron(tensors_[i]) && made.is_alias_of(stand_ins_[i])) {
            return of_argument(i, made);
          }
        }
        planned.back() = new_planned(made, device);
        return planned.back();
      }));
    }
    return results;
  }

 private:
  static at::Tensor stand_in(const at::Tensor& tensor) {
    if (!is_neuron(tensor)) {
      return tensor;
    }
    at::Tensor zeros = detail::zeros_on_cpu(tensor);
    zeros._set_conj(tensor.is_conj());
    zeros._set_neg(tensor.is_neg());
    return zeros;
  }

  at::Tensor of_argument(size_t i, const at::Tensor& made) const {
    return made.is_same(stand_ins_[i])
               ? tensors_[i]
               : tensors_[i].as_strided(
                     made.sizes(), made.strides(), tensors_[i].storage_offset() + made.storage_offset());
  }

  static at::Tensor new_planned(const at::Tensor& made, c10::DeviceIndex device) {
    at::Tensor tensor = structured::allocate_output(
        made.sizes(), made.strides(), at::TensorOptions(c10::Device(kNeuron, device)).dtype(made.scalar_type()));
    tensor._set_conj(made.is_conj());
    tensor._set_neg(made.is_neg());
    return tensor;
  }

  const Tensors& tensors_;
  Tensors stand_ins_;
  torch::jit::Stack results_;
};

}  // namespace

void record_cpu_kernel(const c10::OperatorHandle& op, OpRecord& record, Stream& stream, torch::jit::Stack* stack) {
  Tensors tensors;
  torch::jit::Stack arguments;
  for (const c10::IValue& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    arguments.push_back(
        argument.isDevice() ? c10::IValue(c10::Device(c10::kCPU))
                            : replace_tensors(argument, [&](const at::Tensor& tensor) {
                                tensors.push_back(tensor);
                                return at::Tensor();
                              }));
  }
  if (!can_be_recorded(op, tensors)) {
    stream.check_not_capturing((record.name + " has to wait").c_str());
  }
  const TaskScope scope;
  Tensors planned;
  torch::jit::Stack results;
  // Without results there is nothing to plan, and an assertion would fail on zeros.
  if (!op.schema().returns().empty()) {
    const Rehearsal rehearsal(op, arguments, tensors);
    rehearsal.resize_arguments();
    results = rehearsal.results(stream.device(), planned);
  }
  launch_on(
      stream, record,
      [op, arguments = std::move(arguments)](const Tensors& views, const Tensors& outputs) {
        run_kernel_into(op, arguments, views, outputs);
      },
      tensors, planned);
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->insert(stack->end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
}

}  // namespace torchneuron
