#include "ops/described.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/kthvalue.h>
#include <ATen/ops/median.h>
#include <ATen/ops/mode.h>
#include <ATen/ops/nanmedian.h>
#include <ATen/ops/searchsorted.h>
#include <torch/library.h>

#include <string_view>

// Order statistics and searches in sorted sequences. Operators whose result's size depends on values (unique, nonzero)
// are left to the fallback, since they must wait.
namespace torchneuron::described {

namespace {

// Values and indices along a dimension that goes.
struct AlongDimMeta : ShapeMeta {
  void meta(const at::Tensor& self, int64_t dim, bool keepdim) {
    const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/true);
    at::DimVector shape(self.sizes());
    if (!shape.empty()) {
      if (keepdim) {
        shape[wrapped] = 1;
      } else {
        shape.erase(shape.begin() + wrapped);
      }
    }
    set(self, shape, self.scalar_type(), 0);
    set(self, shape, at::kLong, 1);
  }
};

template <typename Kernel>
bool has_elements(const at::Tensor& self, int64_t dim, const Kernel& kernel) {
  if (self.dim() > 0 && self.size(at::maybe_wrap_dim(dim, self.dim())) == 0) {
    ask_cpu(kernel, self);
  }
  return true;
}

struct MedianMeta : AlongDimMeta {
  void meta(const at::Tensor& self, int64_t dim, bool keepdim) {
    has_elements(self, dim, [&](const at::Tensor& t) { return at::median(t, dim, keepdim); });
    AlongDimMeta::meta(self, dim, keepdim);
  }
};

struct MedianAlong {
  static constexpr const char* kName = "aten::median.dim";
  using Meta = MedianMeta;
  static void run(at::Tensor& values, at::Tensor& indices, const at::Tensor& self, int64_t dim, bool keepdim) {
    at::median_out(values, indices, self, dim, keepdim);
  }
};

struct NanmedianAlong {
  static constexpr const char* kName = "aten::nanmedian.dim";
  using Meta = MedianMeta;
  static void run(at::Tensor& values, at::Tensor& indices, const at::Tensor& self, int64_t dim, bool keepdim) {
    at::nanmedian_out(values, indices, self, dim, keepdim);
  }
};

struct ModeMeta : AlongDimMeta {
  void meta(const at::Tensor& self, int64_t dim, bool keepdim) {
    has_elements(self, dim, [&](const at::Tensor& t) { return at::mode(t, dim, keepdim); });
    AlongDimMeta::meta(self, dim, keepdim);
  }
};

struct Mode {
  static constexpr const char* kName = "aten::mode";
  using Meta = ModeMeta;
  static void run(at::Tensor& values, at::Tensor& indices, const at::Tensor& self, int64_t dim, bool keepdim) {
    run_into(std::array<at::Tensor, 2>{values, indices}, [&] { return at::mode(self, dim, keepdim); });
  }
};

struct KthValueMeta : AlongDimMeta {
  void meta(const at::Tensor& self, int64_t k, int64_t dim, bool keepdim) {
    const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/true);
    const int64_t length = self.dim() > 0 ? self.size(wrapped) : 1;
    if (k < 1 || k > length) {
      ask_cpu([&](const at::Tensor& t) { return at::kthvalue(t, k, dim, keepdim); }, self);
    }
    AlongDimMeta::meta(self, dim, keepdim);
  }
};

struct KthValue {
  static constexpr const char* kName = "aten::kthvalue";
  using Meta = KthValueMeta;
  static void run(
      at::Tensor& values, at::Tensor& indices, const at::Tensor& self, int64_t k, int64_t dim, bool keepdim) {
    at::kthvalue_out(values, indices, self, k, dim, keepdim);
  }
};

struct ScalarOfSelfMeta : ShapeMeta {
  void meta(const at::Tensor& self) { set(self, {}); }
};

struct Median {
  static constexpr const char* kName = "aten::median";
  using Meta = ScalarOfSelfMeta;
  static void run(at::Tensor& out, const at::Tensor& self) { out.copy_(at::median(self)); }
};

struct Nanmedian {
  static constexpr const char* kName = "aten::nanmedian";
  using Meta = ScalarOfSelfMeta;
  static void run(at::Tensor& out, const at::Tensor& self) { out.copy_(at::nanmedian(self)); }
};

using Side = std::optional<std::string_view>;
using Sorter = const std::optional<at::Tensor>&;

struct SearchSortedMeta : ShapeMeta {
  void meta(
      const at::Tensor& sequence, const at::Tensor& values, bool out_int32, bool right, Side side, Sorter sorter) {
    const bool fits = sequence.dim() == 1 ||
                      (sequence.dim() > 0 && sequence.dim() == values.dim() &&
                       sequence.sizes().slice(0, sequence.dim() - 1) == values.sizes().slice(0, values.dim() - 1));
    const bool plain = !side.has_value() && !(sorter.has_value() && sorter->defined());
    if (!fits || !plain || sequence.scalar_type() != values.scalar_type() || values.numel() == 0 ||
        sequence.is_complex()) {
      ask_cpu(
          [&](const at::Tensor& s, const at::Tensor& v, const std::optional<at::Tensor>& order) {
            return at::searchsorted(s, v, out_int32, right, side, order);
          },
          sequence, values, sorter);
    }
    check_one_device("searchsorted", sequence, values, sorter);
    set(values, values.sizes(), out_int32 ? at::kInt : at::kLong);
  }
};

struct SearchSorted {
  static constexpr const char* kName = "aten::searchsorted.Tensor";
  using Meta = SearchSortedMeta;
  static void run(
      at::Tensor& out, const at::Tensor& sequence, const at::Tensor& values, bool out_int32, bool right, Side side,
      Sorter sorter) {
    at::searchsorted_out(out, sequence, values, out_int32, right, side, sorter);
  }
};

struct BucketizeMeta : ShapeMeta {
  void meta(const at::Tensor& self, const at::Tensor& boundaries, bool out_int32, bool right) {
    if (boundaries.dim() != 1 || boundaries.scalar_type() != self.scalar_type() || self.is_complex()) {
      ask_cpu(
          [&](const at::Tensor& s, const at::Tensor& b) { return at::bucketize(s, b, out_int32, right); }, self,
          boundaries);
    }
    check_one_device("bucketize", boundaries, self);
    set(self, self.sizes(), out_int32 ? at::kInt : at::kLong);
  }
};

struct Bucketize {
  static constexpr const char* kName = "aten::bucketize.Tensor";
  using Meta = BucketizeMeta;
  static void run(at::Tensor& out, const at::Tensor& self, const at::Tensor& boundaries, bool out_int32, bool right) {
    at::bucketize_out(out, self, boundaries, out_int32, right);
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using Tensor = const at::Tensor&;
  m.impl("median", &functional<Median, Tensor>);
  m.impl("nanmedian", &functional<Nanmedian, Tensor>);
  m.impl("median.dim", &functional_pair<MedianAlong, Tensor, int64_t, bool>);
  m.impl("median.dim_values", &into_pair<MedianAlong, Tensor, int64_t, bool>);
  m.impl("nanmedian.dim", &functional_pair<NanmedianAlong, Tensor, int64_t, bool>);
  m.impl("nanmedian.dim_values", &into_pair<NanmedianAlong, Tensor, int64_t, bool>);
  m.impl("mode", &functional_pair<Mode, Tensor, int64_t, bool>);
  m.impl("kthvalue", &functional_pair<KthValue, Tensor, int64_t, int64_t, bool>);
  m.impl("kthvalue.values", &into_pair<KthValue, Tensor, int64_t, int64_t, bool>);
  m.impl("searchsorted.Tensor", &functional<SearchSorted, Tensor, Tensor, bool, bool, Side, Sorter>);
  m.impl("bucketize.Tensor", &functional<Bucketize, Tensor, Tensor, bool, bool>);
}

}  // namespace torchneuron::described
