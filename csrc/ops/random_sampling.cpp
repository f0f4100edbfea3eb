#include "ops/philox.h"
#include "ops/random.h"
#include "ops/random_fill.h"
#include "ops/unstructured.h"

#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/rrelu_with_noise.h>
#include <ATen/ops/topk.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <vector>

// Draws that depend on more than a few numbers: permutations, samples from given probabilities, normal variates of
// given means, leaky rectifiers with random slopes.
namespace torchneuron {

namespace {

using OptionalGenerator = std::optional<at::Generator>;

// Fisher and Yates' shuffle; step i takes the words of element i.
void fill_permutation(const at::Tensor& out, PhiloxKey key) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "randperm", [&] {
    const at::Tensor result = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
    scalar_t* data = result.mutable_data_ptr<scalar_t>();
    const int64_t n = result.numel();
    for (int64_t i = 0; i < n; ++i) {
      data[i] = static_cast<scalar_t>(i);
    }
    constexpr int64_t kStep = 1024;
    uint64_t words[kStep];
    for (int64_t done = 0; done < n; done += kStep) {
      const int64_t count = std::min(kStep, n - done);
      philox_words64(key, done, count, words);
      for (int64_t i = done; i < done + count; ++i) {
        const auto product = static_cast<unsigned __int128>(words[i - done]) * static_cast<uint64_t>(n - i);
        std::swap(data[i], data[i + static_cast<int64_t>(product >> 64)]);
      }
    }
    if (!result.is_same(out)) {
      out.copy_(result);
    }
  });
}

at::Tensor& randperm_out(int64_t n, OptionalGenerator generator, at::Tensor& out) {
  static OpRecord& op = op_record("aten::randperm.generator_out");
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK(
      !generator.has_value() || generator->device() == out.device(), "Expected a '", out.device(),
      "' generator device but found '", generator->device(), "'");
  at::native::check_supported_max_int_with_precision(n, at::empty({0}, out.options().device(at::kCPU)));
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "randperm", [] {});
  out.resize_({n});
  if (match_cpu_random()) {
    return draw_on_cpu(
        op, out, generator, [n](at::Tensor& t, const at::Generator& source) { at::randperm_out(t, n, source); });
  }
  launch_draw(op, out, generator, fill_permutation);
  return out;
}

// Sample j of row i is element i * samples + j of the draw.
void sample_with_replacement(const at::Tensor& probabilities, const at::Tensor& out, PhiloxKey key) {
  const at::Tensor weights = probabilities.contiguous();
  const int64_t categories = weights.size(-1);
  const int64_t samples = out.size(-1);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, weights.scalar_type(), "multinomial", [&] {
    const scalar_t* weight = weights.const_data_ptr<scalar_t>();
    std::vector<double> cumulative(categories);
    std::vector<double> uniform(samples + 4);
    const at::Tensor result = out.contiguous();
    int64_t* index = result.mutable_data_ptr<int64_t>();
    for (int64_t row = 0; row < weights.numel() / categories; ++row, weight += categories, index += samples) {
      double sum = 0;
      int64_t last_possible = 0;
      for (int64_t i = 0; i < categories; ++i) {
        const auto value = static_cast<double>(weight[i]);
        TORCH_CHECK(
            value >= 0 || std::isnan(value), "invalid multinomial distribution (encountering probability entry < 0)");
        TORCH_CHECK(
            std::isfinite(value),
            "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
        sum += value;
        cumulative[i] = sum;
        last_possible = value > 0 ? i : last_possible;
      }
      TORCH_CHECK(sum > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
      const int64_t first = row * samples;
      const int64_t skipped = first % 4;
      philox_uniform(key, first - skipped, samples + skipped, uniform.data());
      for (int64_t j = 0; j < samples; ++j) {
        const auto above = std::upper_bound(cumulative.begin(), cumulative.end(), uniform[skipped + j] * sum);
        index[j] = std::min<int64_t>(above - cumulative.begin(), last_possible);
      }
    }
    if (!result.is_same(out)) {
      out.copy_(result);
    }
  });
}

// The exponential race: category i wins with probability p[i] / sum(p) where p[i] / e[i] is greatest.
void sample_without_replacement(const at::Tensor& probabilities, at::Tensor out, PhiloxKey key) {
  TORCH_CHECK(
      ((probabilities.max() < std::numeric_limits<double>::infinity()) & (probabilities.min() >= 0)).item<bool>(),
      "probability tensor contains either `inf`, `nan` or element < 0");
  TORCH_CHECK(
      !(probabilities.sum(-1) == 0).any().item<bool>(), "invalid multinomial distribution (sum of probabilities <= 0)");
  at::Tensor race = at::empty_like(probabilities);
  fill_exponential(race, key, 1.0);
  at::div_out(race, probabilities, race);
  if (out.size(-1) == 1) {
    at::argmax_out(out, race, -1, /*keepdim=*/true);
    return;
  }
  out.copy_(std::get<1>(race.topk(out.size(-1))));
}

at::Tensor& multinomial_out(
    const at::Tensor& self, int64_t samples, bool replacement, OptionalGenerator generator, at::Tensor& out) {
  static OpRecord& op = op_record("aten::multinomial");
  TORCH_CHECK(out.device() == self.device(), "multinomial arguments must have the same device");
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(
      at::isFloatingType(self.scalar_type()),
      "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(out.scalar_type() == at::kLong, "multinomial expects Long tensor out, got: ", out.scalar_type());
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  const int64_t categories = self.size(-1);
  TORCH_CHECK(
      replacement || samples <= categories, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(categories <= int64_t{1} << 24, "number of categories cannot exceed 2^24");
  if (self.dim() == 1) {
    out.resize_({samples});
  } else {
    out.resize_({self.size(0), samples});
  }
  if (out.numel() == 0) {
    return out;
  }
  if (match_cpu_random()) {
    run_cpu_draw(
        op, generator,
        [samples, replacement](const at::Tensor& self, at::Tensor out, const at::Generator& source) {
          at::multinomial_out(out, self, samples, replacement, source);
        },
        self, out);
    return out;
  }
  const bool race = !replacement || samples == 1;
  NeuronGeneratorImpl& source = generator_or_default(generator, self.device());
  launch(
      op,
      [race](const at::Tensor& self, const at::Tensor& out, const PhiloxCursor& cursor) {
        race ? sample_without_replacement(self, out, cursor.key()) : sample_with_replacement(self, out, cursor.key());
      },
      self, out, source.draw(race ? self.numel() : out.numel()));
  return out;
}

at::Tensor multinomial(const at::Tensor& self, int64_t samples, bool replacement, OptionalGenerator generator) {
  at::Tensor out = at::empty({0}, self.options().dtype(at::kLong));
  multinomial_out(self, samples, replacement, std::move(generator), out);
  return out;
}

// CPU looks at the values of `std` before it draws; here that is left to the worker.
void check_std(const at::Tensor& std) {
  static OpRecord& op = op_record("aten::normal");
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  if (std.numel() > 0 && std.device().type() == kNeuron) {
    launch(
        op,
        [](const at::Tensor& std) {
          TORCH_CHECK(std.min().ge(0).item<bool>(), "normal expects all elements of std >= 0.0");
        },
        std);
  } else {
    TORCH_CHECK(std.numel() == 0 || std.min().ge(0).item<bool>(), "normal expects all elements of std >= 0.0");
  }
}

at::Tensor& normal_tensor_float_out(const at::Tensor& mean, double std, OptionalGenerator generator, at::Tensor& out) {
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  at::native::resize_output(out, at::infer_size(mean.sizes(), out.sizes()));
  return out.normal_(0, std, std::move(generator)).add_(mean);
}

at::Tensor& normal_float_tensor_out(double mean, const at::Tensor& std, OptionalGenerator generator, at::Tensor& out) {
  check_std(std);
  at::native::resize_output(out, std.sizes());
  return out.normal_(0, 1, std::move(generator)).mul_(std).add_(mean);
}

at::Tensor& normal_tensor_tensor_out(
    const at::Tensor& mean, const at::Tensor& std, OptionalGenerator generator, at::Tensor& out) {
  check_std(std);
  at::native::resize_output(out, at::infer_size(mean.sizes(), std.sizes()));
  return out.normal_(0, 1, std::move(generator)).mul_(std).add_(mean);
}

at::Tensor normal_tensor_float(const at::Tensor& mean, double std, OptionalGenerator generator) {
  at::Tensor out = at::empty_like(mean, at::MemoryFormat::Contiguous);
  return normal_tensor_float_out(mean, std, std::move(generator), out);
}

at::Tensor normal_float_tensor(double mean, const at::Tensor& std, OptionalGenerator generator) {
  at::Tensor out = at::empty_like(std, at::MemoryFormat::Contiguous);
  return normal_float_tensor_out(mean, std, std::move(generator), out);
}

at::Tensor normal_tensor_tensor(const at::Tensor& mean, const at::Tensor& std, OptionalGenerator generator) {
  at::Tensor out = at::empty(at::infer_size(mean.sizes(), std.sizes()), mean.options());
  return normal_tensor_tensor_out(mean, std, std::move(generator), out);
}

// noise = a random slope where self <= 0 and 1 elsewhere; out = self * noise.
void rectify(
    const at::Tensor& self, const at::Tensor& noise, const at::Tensor& out, double lower, double upper, PhiloxKey key) {
  const at::Tensor input = self.contiguous();
  const at::Tensor slopes = noise.is_contiguous() ? noise : at::empty(noise.sizes(), noise.options());
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, self.scalar_type(), "rrelu_with_noise_out_cpu", [&] {
    const scalar_t* in = input.const_data_ptr<scalar_t>();
    scalar_t* slope = slopes.mutable_data_ptr<scalar_t>();
    fill_in_pieces<scalar_t>(out, [&](int64_t first, int64_t n, scalar_t* to) {
      constexpr int64_t kStep = 1024;
      float uniform[kStep];
      for (int64_t done = 0; done < n; done += kStep) {
        const int64_t count = std::min(kStep, n - done);
        philox_uniform(key, first + done, count, uniform);
        for (int64_t i = 0; i < count; ++i) {
          const scalar_t x = in[first + done + i];
          const auto r = static_cast<scalar_t>(x <= 0 ? uniform[i] * (upper - lower) + lower : 1.0);
          slope[first + done + i] = r;
          to[done + i] = x * r;
        }
      }
    });
  });
  if (!slopes.is_same(noise)) {
    noise.copy_(slopes);
  }
}

at::Tensor& rrelu_with_noise_out(
    const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool training,
    OptionalGenerator generator, at::Tensor& out) {
  static OpRecord& op = op_record("aten::rrelu_with_noise");
  TORCH_CHECK(
      self.sizes() == noise.sizes(), "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
      " noise.shape = ", noise.sizes());
  if (!training) {
    const double slope = (lower.toDouble() + upper.toDouble()) / 2;
    return at::leaky_relu_out(out, self, slope);
  }
  check_one_device("rrelu_with_noise", self, noise, out);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, self.scalar_type(), "rrelu_with_noise_out_cpu", [] {});
  at::native::resize_output(out, self.sizes());
  const double from = lower.toDouble();
  const double to = upper.toDouble();
  if (self.numel() == 0) {
    return out;
  }
  TORCH_CHECK(from <= to);
  if (match_cpu_random()) {
    run_cpu_draw(
        op, generator,
        [=](const at::Tensor& self, at::Tensor noise, at::Tensor out, const at::Generator& source) {
          at::rrelu_with_noise_out(out, self, noise, from, to, /*training=*/true, source);
        },
        self, noise, out);
    return out;
  }
  launch(
      op,
      [=](const at::Tensor& self, const at::Tensor& noise, const at::Tensor& out, const PhiloxCursor& cursor) {
        rectify(self, noise, out, from, to, cursor.key());
      },
      self, noise, out, generator_or_default(generator, self.device()).draw(self.numel()));
  return out;
}

at::Tensor rrelu_with_noise(
    const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool training,
    OptionalGenerator generator) {
  at::Tensor out = at::empty_like(self, at::MemoryFormat::Contiguous);
  return rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), out);
}

at::Tensor& rrelu_with_noise_(
    at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool training,
    OptionalGenerator generator) {
  return rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("randperm.generator_out", &randperm_out);
  m.impl("multinomial", &multinomial);
  m.impl("multinomial.out", &multinomial_out);
  m.impl("normal.Tensor_float", &normal_tensor_float);
  m.impl("normal.Tensor_float_out", &normal_tensor_float_out);
  m.impl("normal.float_Tensor", &normal_float_tensor);
  m.impl("normal.float_Tensor_out", &normal_float_tensor_out);
  m.impl("normal.Tensor_Tensor", &normal_tensor_tensor);
  m.impl("normal.Tensor_Tensor_out", &normal_tensor_tensor_out);
  m.impl("rrelu_with_noise", &rrelu_with_noise);
  m.impl("rrelu_with_noise.out", &rrelu_with_noise_out);
  m.impl("rrelu_with_noise_", &rrelu_with_noise_);
}

}  // namespace torchneuron
