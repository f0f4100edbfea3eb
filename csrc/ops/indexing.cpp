#include "engine/silence.h"
#include "ops/unstructured.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/index_cpu_dispatch.h>
#include <ATen/ops/index_meta.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>
#include <vector>

// tensor[indices] and tensor[indices] = values.
namespace torchneuron {

namespace {

using Indices = c10::List<std::optional<at::Tensor>>;

bool is_on_another_device(const at::Tensor& tensor, const at::Tensor& self) {
  return tensor.device().type() == kNeuron && tensor.device() != self.device();
}

bool is_mask(const at::Tensor& index) { return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte; }

bool has_mask(const Indices& indices) {
  for (const std::optional<at::Tensor>& index : indices) {
    if (index.has_value() && index->defined() && is_mask(*index)) {
      return true;
    }
  }
  return false;
}

// Masks become the positions of their true elements: the host must wait for these, since it needs their number.
Indices without_masks(const at::Tensor& self, const Indices& indices) {
  at::native::checkIndexTensorTypes(at::IOptTensorListRef(indices), /*allow_int=*/true);
  Indices positions;
  for (at::Tensor& index :
       at::native::expandTensors(self, at::IOptTensorListRef(indices), /*ensure_same_device=*/true)) {
    positions.push_back(index.defined() ? std::optional<at::Tensor>(std::move(index)) : std::nullopt);
  }
  return positions;
}

void check_devices(const at::Tensor& self, const Indices& indices) {
  for (const std::optional<at::Tensor>& index : indices) {
    TORCH_CHECK(
        !index.has_value() || !index->defined() || index->is_cpu() || index->device() == self.device(),
        "indices should be either on cpu or on the same device as the indexed tensor (", self.device(), ")");
  }
}

template <typename Op>
void launch_index(OpRecord& record, Op& op, const at::Tensor& self, const Indices& indices, const at::Tensor& out) {
  op.meta(self, at::IOptTensorListRef(indices));
  launch(
      record,
      [](const at::Tensor& self, const Indices& indices, at::Tensor out) { at::cpu::index_out(out, self, indices); },
      self, indices, op.maybe_get_output(0));
}

at::Tensor index_tensor(const at::Tensor& self, const Indices& indices) {
  static OpRecord& record = op_record("aten::index.Tensor");
  check_devices(self, indices);
  if (has_mask(indices)) {
    return index_tensor(self, without_masks(self, indices));
  }
  structured::Functional<at::meta::structured_index_Tensor, 1> op;
  launch_index(record, op, self, indices, op.outputs[0]);
  return std::move(op.outputs[0]);
}

at::Tensor& index_tensor_out(const at::Tensor& self, const Indices& indices, at::Tensor& out) {
  static OpRecord& record = op_record("aten::index.Tensor_out");
  check_devices(self, indices);
  if (has_mask(indices)) {
    return index_tensor_out(self, without_masks(self, indices), out);
  }
  structured::Out<at::meta::structured_index_Tensor, 1> op(out);
  launch_index(record, op, self, indices, out);
  return out;
}

// The sizes of self[indices], or nothing where the host cannot tell or CPU would raise.
std::optional<at::DimVector> indexed_sizes(const at::Tensor& self, const Indices& indices) {
  at::DimVector broadcast;
  int64_t first = -1;
  int64_t last = -1;
  bool adjacent = true;
  for (const auto i : c10::irange(static_cast<int64_t>(indices.size()))) {
    const std::optional<at::Tensor> index = indices.get(i);
    if (!index.has_value() || !index->defined()) {
      continue;
    }
    if (i >= self.dim() || (index->scalar_type() != at::kLong && index->scalar_type() != at::kInt) ||
        index->dim() > 8) {
      return std::nullopt;
    }
    adjacent = adjacent && (last < 0 || last == i - 1);
    first = first < 0 ? i : first;
    last = i;
    const at::IntArrayRef sizes = index->sizes();
    if (broadcast.size() < sizes.size()) {
      broadcast.insert(broadcast.begin(), sizes.size() - broadcast.size(), 1);
    }
    for (size_t j = 0; j < sizes.size(); ++j) {
      int64_t& size = broadcast[broadcast.size() - sizes.size() + j];
      if (size != sizes[j] && size != 1 && sizes[j] != 1) {
        return std::nullopt;
      }
      size = size == 1 ? sizes[j] : size;
    }
  }
  if (first < 0) {
    return at::DimVector(self.sizes());
  }
  at::DimVector result;
  const auto append_sizes_of_self = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const bool indexed =
          i < static_cast<int64_t>(indices.size()) && indices.get(i).has_value() && indices.get(i)->defined();
      if (!indexed) {
        result.push_back(self.size(i));
      } else if (self.size(i) == 0 && c10::multiply_integers(broadcast) != 0) {
        result.push_back(-1);
      }
    }
  };
  append_sizes_of_self(0, adjacent ? first : 0);
  result.insert(result.end(), broadcast.begin(), broadcast.end());
  append_sizes_of_self(adjacent ? first : 0, self.dim());
  for (const int64_t size : result) {
    if (size < 0) {
      return std::nullopt;
    }
  }
  return result;
}

// CPU's error for what launch would take amiss.
void ask_cpu_to_put(const at::Tensor& self, const Indices& indices, const at::Tensor& values, bool accumulate) {
  const TaskScope scope;
  Indices zeros;
  for (const std::optional<at::Tensor>& index : indices) {
    zeros.push_back(detail::zeros_on_cpu(index));
  }
  at::Tensor target = detail::zeros_on_cpu(self);
  at::_index_put_impl_(target, zeros, detail::zeros_on_cpu(values), accumulate);
}

void check_masks(const at::Tensor& self, const Indices& indices) {
  int64_t dim = 0;
  for (const std::optional<at::Tensor>& index : indices) {
    if (!index.has_value() || !index->defined() || !is_mask(*index)) {
      ++dim;
      continue;
    }
    for (int64_t i = 0; i < index->dim(); ++i, ++dim) {
      TORCH_CHECK_INDEX(dim < self.dim(), "too many indices for tensor of dimension ", self.dim());
      if (index->size(i) != self.size(dim)) {
        at::native::invalid_mask(self, dim, *index, i);
      }
    }
  }
}

// The indices and a value without dimensions may lie elsewhere: they are moved, as PyTorch's kernels do it.
bool lies_elsewhere(const at::Tensor& self, const Indices& indices, const at::Tensor& values) {
  return self.device().type() != kNeuron || (values.dim() == 0 && is_on_another_device(values, self)) ||
         std::any_of(indices.begin(), indices.end(), [&](const std::optional<at::Tensor>& index) {
           return index.has_value() && index->defined() && is_on_another_device(*index, self);
         });
}

Indices on_device_of(const at::Tensor& self, const Indices& indices) {
  Indices moved;
  for (const std::optional<at::Tensor>& index : indices) {
    moved.push_back(index.has_value() && index->defined() ? index->to(self.device()) : index);
  }
  return moved;
}

// Masks stay masks: the worker finds their true elements.
at::Tensor& index_put_impl_(
    at::Tensor& self, const Indices& indices, const at::Tensor& values, bool accumulate, bool unsafe) {
  static OpRecord& record = op_record("aten::_index_put_impl_");
  if (C10_UNLIKELY(lies_elsewhere(self, indices, values))) {
    const at::Tensor moved = values.dim() == 0 ? values.to(self.device()) : values;
    check_one_device("index_put_", self, moved);
    return at::_index_put_impl_(self, on_device_of(self, indices), moved, accumulate, unsafe);
  }
  const bool masked = has_mask(indices);
  std::optional<at::DimVector> sizes;
  if (masked) {
    check_masks(self, indices);
  } else {
    sizes = indexed_sizes(self, indices);
  }
  const bool fits = values.scalar_type() == self.scalar_type() &&
                    (masked || (sizes.has_value() && at::is_expandable_to(values.sizes(), *sizes)));
  const bool asked = !fits || at::has_internal_overlap(self) == at::MemOverlap::Yes;
  if (asked) {
    ask_cpu_to_put(self, indices, values, accumulate);
  }
  if (values.dim() > 0 || values.device().type() == kNeuron) {
    check_one_device("index_put_", self, values);
  }
  at::assert_no_overlap(self, values);
  launch(
      record,
      [accumulate, unsafe, asked](at::Tensor self, const Indices& indices, const at::Tensor& values) {
        std::optional<Silence> warned;
        if (asked) {
          warned.emplace();
        }
        at::_index_put_impl_(self, indices, values, accumulate, unsafe);
      },
      self, indices, values);
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index.Tensor", &index_tensor);
  m.impl("index.Tensor_out", &index_tensor_out);
  m.impl("_index_put_impl_", &index_put_impl_);
}

}  // namespace torchneuron
