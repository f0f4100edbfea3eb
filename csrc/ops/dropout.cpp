#include "ops/philox.h"
#include "ops/random.h"
#include "ops/random_fill.h"
#include "ops/unstructured.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>

namespace torchneuron {

namespace {

// What kept values are multiplied by. CPU's dropout multiplies by a mask of the input's dtype that it has divided by 1
// - p, so the factor has the rounding of that dtype there.
float kept_factor(double scale, at::ScalarType dtype) {
  if (!match_cpu_random()) {
    return static_cast<float>(scale);
  }
  const float factor = scale == 0 ? 0.0f : 1.0f / static_cast<float>(1.0 / scale);
  if (dtype == at::kBFloat16) {
    return static_cast<at::BFloat16>(factor);
  }
  return dtype == at::kHalf ? static_cast<float>(static_cast<at::Half>(factor)) : factor;
}

bool is_fast(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf; }

// One pass over memory that is contiguous: out = input * (kept ? factor : 0).
void drop(
    const at::Tensor& input, const at::Tensor& out, const at::Tensor& mask, PhiloxKey key, double keep, float factor) {
  const auto threshold = static_cast<uint64_t>(std::ldexp(keep, 32));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "dropout", [&] {
    const scalar_t* in = input.const_data_ptr<scalar_t>();
    bool* kept = mask.mutable_data_ptr<bool>();
    fill_in_pieces<scalar_t>(out, [&](int64_t first, int64_t n, scalar_t* to) {
      constexpr int64_t kStep = 1024;
      uint32_t words[kStep];
      for (int64_t done = 0; done < n; done += kStep) {
        const int64_t count = std::min(kStep, n - done);
        philox_words(key, 0, first + done, count, words);
        const scalar_t* from = in + first + done;
        bool* keeps = kept + first + done;
        for (int64_t i = 0; i < count; ++i) {
          keeps[i] = words[i] < threshold;
          to[done + i] = static_cast<scalar_t>(static_cast<float>(from[i]) * (keeps[i] ? factor : 0.0f));
        }
      }
    });
  });
}

void drop_and_copy(
    const at::Tensor& input, const at::Tensor& out, const at::Tensor& mask, PhiloxKey key, double keep, float factor) {
  const at::Tensor mask_in_order = mask.is_contiguous() ? mask : at::empty(mask.sizes(), mask.options());
  drop(input.contiguous(), out, mask_in_order, key, keep, factor);
  if (!mask_in_order.is_same(mask)) {
    mask.copy_(mask_in_order);
  }
}

// CPU's own dropout: the mask is drawn in the dtype of the input.
std::tuple<at::Tensor, at::Tensor> dropout_as_on_cpu(OpRecord& op, const at::Tensor& input, double keep) {
  at::Tensor out = at::empty_like(input);
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  at::Tensor noise = at::empty_like(input);
  draw_on_cpu(
      op, noise, std::nullopt, [keep](at::Tensor& t, const at::Generator& source) { t.bernoulli_(keep, source); });
  launch(
      op,
      [keep](const at::Tensor& input, at::Tensor noise, at::Tensor out, const at::Tensor& mask) {
        mask.copy_(noise);
        noise.div_(keep);
        at::mul_out(out, input, noise);
      },
      input, noise, out, mask);
  return {std::move(out), std::move(mask)};
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  static OpRecord& op = op_record("aten::native_dropout");
  if (input.numel() == 0) {
    return {input, at::empty_like(input, input.options())};
  }
  if (train.has_value() && !*train) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  const double keep = 1.0 - p;
  TORCH_CHECK(0 <= keep && keep <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", keep);
  const double scale = keep == 0 ? 0.0 : 1.0 / keep;
  if (match_cpu_random() && keep > 0 && at::isFloatingType(input.scalar_type())) {
    return dropout_as_on_cpu(op, input, keep);
  }
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  if (!is_fast(input.scalar_type())) {
    mask.bernoulli_(keep);
    return {input.mul(mask).mul_(scale), std::move(mask)};
  }
  at::Tensor out = new_like(input);
  launch(
      op,
      [keep, factor = static_cast<float>(scale)](
          const at::Tensor& input, const at::Tensor& out, const at::Tensor& mask, const PhiloxCursor& cursor) {
        drop_and_copy(input, out, mask, cursor.key(), keep, factor);
      },
      input, out, mask, generator_or_default(std::nullopt, input.device()).draw(input.numel()));
  return {std::move(out), std::move(mask)};
}

// out = grad * (kept ? factor : 0), all of one dense geometry.
void scale_kept(const at::Tensor& grad, const at::Tensor& mask, const at::Tensor& out, float factor) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, grad.scalar_type(), "native_dropout_backward", [&] {
    const scalar_t* from = grad.const_data_ptr<scalar_t>();
    const bool* kept = mask.const_data_ptr<bool>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, out.numel(), 32768, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        to[i] = static_cast<scalar_t>(static_cast<float>(from[i]) * (kept[i] ? factor : 0.0f));
      }
    });
  });
}

at::Tensor native_dropout_backward(const at::Tensor& grad, const at::Tensor& mask, double scale) {
  static OpRecord& op = op_record("aten::native_dropout_backward");
  const bool dense =
      mask.scalar_type() == at::kBool && mask.is_non_overlapping_and_dense() && grad.sizes() == mask.sizes();
  // A dense gradient of other strides than the mask's gives its strides to the result.
  const bool led_by_gradient = grad.strides() != mask.strides() && grad.is_non_overlapping_and_dense();
  if (!is_fast(grad.scalar_type()) || !dense || led_by_gradient) {
    return grad * (mask.type_as(grad) * scale);
  }
  check_one_device("native_dropout_backward", grad, mask);
  at::Tensor out = new_strided(mask, mask.sizes(), mask.strides(), grad.scalar_type());
  launch(
      op,
      [factor = kept_factor(scale, grad.scalar_type())](
          const at::Tensor& grad, const at::Tensor& mask, const at::Tensor& out) {
        if (grad.strides() == mask.strides()) {
          scale_kept(grad, mask, out, factor);
          return;
        }
        // A gradient of other strides, such as the expanded one of a sum, is first brought to those of the mask.
        out.copy_(grad);
        scale_kept(out, mask, out, factor);
      },
      grad, mask, out);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout", &native_dropout);
  m.impl("native_dropout_backward", &native_dropout_backward);
}

}  // namespace torchneuron
