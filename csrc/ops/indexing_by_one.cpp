#include "engine/silence.h"
#include "ops/described.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/masked_scatter.h>
#include <ATen/ops/put.h>
#include <ATen/ops/take.h>
#include <torch/library.h>

#include <utility>

// Reads and writes by a single index or mask.
namespace torchneuron::described {

namespace {

struct IndexSelectMeta : ShapeMeta {
  void meta(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
    const bool fits = index.dim() <= 1 && (index.scalar_type() == at::kLong || index.scalar_type() == at::kInt) &&
                      (self.dim() > 0 || index.numel() == 1);
    if (!fits) {
      ask_cpu([dim](const at::Tensor& t, const at::Tensor& i) { return at::index_select(t, dim, i); }, self, index);
    }
    check_one_device("index_select", self, index);
    const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim());
    if (const at::Tensor& out = maybe_get_output(); out.defined()) {
      TORCH_CHECK(
          out.scalar_type() == self.scalar_type(), "index_select(): self and result must have the same scalar type");
      at::assert_no_internal_overlap(out);
      at::assert_no_overlap(out, self);
      at::assert_no_overlap(out, index);
    }
    at::DimVector sizes(self.sizes());
    if (!sizes.empty()) {
      sizes[wrapped] = index.numel();
    }
    set(self, sizes);
  }
};

struct IndexSelect {
  static constexpr const char* kName = "aten::index_select";
  using Meta = IndexSelectMeta;
  static void run(at::Tensor& out, const at::Tensor& self, int64_t dim, const at::Tensor& index) {
    at::index_select_out(out, self, dim, index);
  }
};

struct TakeMeta : ShapeMeta {
  void meta(const at::Tensor& self, const at::Tensor& index) {
    if (index.scalar_type() != at::kLong || (self.numel() == 0 && index.numel() > 0)) {
      ask_cpu([](const at::Tensor& t, const at::Tensor& i) { return at::take(t, i); }, self, index);
    }
    check_one_device("take", self, index);
    set(self, index.sizes());
  }
};

struct Take {
  static constexpr const char* kName = "aten::take";
  using Meta = TakeMeta;
  static void run(at::Tensor& out, const at::Tensor& self, const at::Tensor& index) { at::take_out(out, self, index); }
};

at::Tensor& put_(at::Tensor& self, const at::Tensor& index, const at::Tensor& source, bool accumulate) {
  static OpRecord& op = op_record("aten::put_");
  if (index.scalar_type() != at::kLong || source.scalar_type() != self.scalar_type() ||
      index.numel() != source.numel() || self.numel() == 0) {
    ask_cpu(
        [accumulate](const at::Tensor& t, const at::Tensor& i, const at::Tensor& s) {
          return at::put(t, i, s, accumulate);
        },
        self, index, source);
  }
  check_one_device("put_", self, index, source);
  at::assert_no_overlap(self, index);
  at::assert_no_overlap(self, source);
  launch(
      op,
      [accumulate](const at::Tensor& self, const at::Tensor& index, const at::Tensor& source) {
        self.put_(index, source, accumulate);
      },
      self, index, source);
  return self;
}

// Whether a launch on `self` can take a value without dimensions: it is a host scalar or lies there too.
bool can_be_captured(const at::Tensor& value, const at::Tensor& self) {
  return value.is_cpu() || value.device() == self.device();
}

void check_fill_device(const char* op, const at::Tensor& self, const at::Tensor& value) {
  if (self.device().type() != kNeuron || !can_be_captured(value, self)) {
    check_one_device(op, self, value);
  }
}

void check_mask(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(
      mask.scalar_type() == at::kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
      mask.dtype());
  check_one_device("masked_fill_", self, mask);
}

// Raises CPU's error for a value that the dtype cannot hold.
void check_fill_value(const at::Tensor& self, const at::Scalar& value) {
  AT_DISPATCH_V2(
      self.scalar_type(), "masked_fill", AT_WRAP([&] { value.to<scalar_t>(); }), AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool, at::kHalf, at::kBFloat16, at::kComplexHalf);
}

void check_fill_value(const at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(
      value.dim() == 0, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ", value.dim(),
      " dimension(s).");
  if (value.is_cpu()) {
    check_fill_value(self, value.item());
  }
}

void check_fill_sizes(const at::Tensor& self, const at::Tensor& mask) {
  if (!at::is_expandable_to(mask.sizes(), self.sizes())) {
    ask_cpu([](const at::Tensor& t, const at::Tensor& m) { return t.masked_fill_(m, 0); }, self, mask);
  }
}

void warn_if_expanded(const at::Tensor& self) {
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes) {
    TORCH_WARN(
        "Use of masked_fill_ on expanded tensors is deprecated. Please clone() the tensor before performing this "
        "operation. This also applies to advanced indexing e.g. tensor[mask] = scalar");
  }
}

at::Tensor& masked_fill_scalar_(at::Tensor& self, const at::Tensor& mask, const at::Scalar& value) {
  static OpRecord& op = op_record("aten::masked_fill_.Scalar");
  check_mask(self, mask);
  check_fill_sizes(self, mask);
  warn_if_expanded(self);
  check_fill_value(self, value);
  launch(
      op,
      [](const at::Tensor& self, const at::Tensor& mask, const at::Scalar& value) {
        const Silence warned;
        self.masked_fill_(mask, value);
      },
      self, mask, value);
  return self;
}

at::Tensor& masked_fill_tensor_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
  static OpRecord& op = op_record("aten::masked_fill_.Tensor");
  check_fill_value(self, value);
  check_fill_device("masked_fill_", self, value);
  check_mask(self, mask);
  check_fill_sizes(self, mask);
  warn_if_expanded(self);
  launch(
      op,
      [](const at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
        const Silence warned;
        self.masked_fill_(mask, value);
      },
      self, mask, value);
  return self;
}

// As at::masked_fill does it: a copy, broadcast with the mask, contiguous.
template <typename Value>
at::Tensor masked_fill(const at::Tensor& self, const at::Tensor& mask, const Value& value) {
  static OpRecord& op =
      op_record(std::is_same_v<Value, at::Tensor> ? "aten::masked_fill.Tensor" : "aten::masked_fill.Scalar");
  check_fill_value(self, value);
  if constexpr (std::is_same_v<Value, at::Tensor>) {
    check_fill_device("masked_fill", self, value);
  }
  check_mask(self, mask);
  at::Tensor out = new_tensor(self, at::infer_size_dimvector(mask.sizes(), self.sizes()), self.scalar_type());
  launch(
      op,
      [](const at::Tensor& out, const at::Tensor& self, const at::Tensor& mask, const Value& value) {
        out.copy_(self).masked_fill_(mask, value);
      },
      out, self, mask, value);
  return out;
}

at::Tensor& masked_scatter_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
  static OpRecord& op = op_record("aten::masked_scatter_");
  at::assert_no_internal_overlap(self);
  TORCH_CHECK(
      self.scalar_type() == source.scalar_type(),
      "masked_scatter: expected self and source to have same dtypes but got", self.scalar_type(), " and ",
      source.scalar_type());
  TORCH_CHECK(
      mask.scalar_type() == at::kBool, "masked_scatter_ only supports boolean masks, but got mask with dtype ",
      mask.scalar_type());
  TORCH_CHECK(
      self.device() == mask.device() && self.device() == source.device(),
      "expected self, mask and source to be on the same device");
  if (mask.sizes() != self.sizes()) {
    at::expand_inplace(self, mask, "masked_scatter_");
  }
  launch(
      op,
      [](const at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
        self.masked_scatter_(mask, source);
      },
      self, mask, source);
  return self;
}

template <typename Value>
at::Tensor& index_fill_(at::Tensor& self, int64_t dim, const at::Tensor& index, const Value& value) {
  static OpRecord& op =
      op_record(std::is_same_v<Value, at::Tensor> ? "aten::index_fill_.int_Tensor" : "aten::index_fill_.int_Scalar");
  if constexpr (std::is_same_v<Value, at::Tensor>) {
    TORCH_CHECK(
        value.dim() == 0, "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ", value.dim(),
        " dimension(s).");
    if (self.device().type() != kNeuron || !can_be_captured(value, self)) {
      return self.index_fill_(dim, index, value.item());
    }
  }
  if (index.scalar_type() != at::kLong || index.dim() > 1 || self.dim() == 0) {
    ask_cpu([&](const at::Tensor& t, const at::Tensor& i) { return at::index_fill(t, dim, i, 0); }, self, index);
  }
  const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim());
  check_one_device("index_fill_", self, index);
  at::assert_no_overlap(self, index);
  launch(
      op,
      [wrapped](const at::Tensor& self, const at::Tensor& index, const Value& value) {
        self.index_fill_(wrapped, index, value);
      },
      self, index, value);
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using Tensor = const at::Tensor&;
  m.impl("index_select", &functional<IndexSelect, Tensor, int64_t, Tensor>);
  m.impl("index_select.out", &into<IndexSelect, Tensor, int64_t, Tensor>);
  m.impl("take", &functional<Take, Tensor, Tensor>);
  m.impl("take.out", &into<Take, Tensor, Tensor>);
  m.impl("put_", &put_);
  m.impl("masked_fill_.Scalar", &masked_fill_scalar_);
  m.impl("masked_fill_.Tensor", &masked_fill_tensor_);
  m.impl("masked_fill.Scalar", &masked_fill<at::Scalar>);
  m.impl("masked_fill.Tensor", &masked_fill<at::Tensor>);
  m.impl("masked_scatter_", &masked_scatter_);
  m.impl("index_fill_.int_Scalar", &index_fill_<at::Scalar>);
  m.impl("index_fill_.int_Tensor", &index_fill_<at::Tensor>);
}

}  // namespace torchneuron::described
