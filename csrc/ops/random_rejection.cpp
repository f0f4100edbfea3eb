#include "ops/philox.h"
#include "ops/random.h"
#include "ops/unstructured.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Distributions.h>
#include <ATen/ops/_dirichlet_grad.h>
#include <ATen/ops/_sample_dirichlet.h>
#include <ATen/ops/_standard_gamma.h>
#include <ATen/ops/_standard_gamma_grad.h>
#include <ATen/ops/binomial.h>
#include <ATen/ops/poisson.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

// Samplers that take as many words of their element as they need.
namespace torchneuron {

namespace {

using OptionalGenerator = std::optional<at::Generator>;

// PTRS of W. Hörmann, "The transformed rejection method for generating Poisson random variables" (1993), for rates from
// 10; else products of uniforms.
double sample_poisson(double rate, PhiloxElement& source) {
  TORCH_CHECK(rate >= 0, "invalid Poisson rate, expected rate to be non-negative");
  if (rate < 10) {
    const double limit = std::exp(-rate);
    double count = 0;
    for (double product = source.uniform(); product > limit; product *= source.uniform()) {
      ++count;
    }
    return count;
  }
  const double b = 0.931 + 2.53 * std::sqrt(rate);
  const double a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  const double v_r = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = source.uniform() - 0.5;
    const double v = source.uniform();
    const double us = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= v_r) {
      return k;
    }
    if (k < 0 || (us < 0.013 && v > us)) {
      continue;
    }
    if (std::log(v * inverse_alpha / (a / (us * us) + b)) <= k * std::log(rate) - rate - std::lgamma(k + 1)) {
      return k;
    }
  }
}

double sample_standard_gamma(double alpha, PhiloxElement& source) {
  const auto next_uniform = [&source] { return source.uniform(); };
  const auto next_normal = [&source] { return source.normal(); };
  BaseSampler<double, decltype(next_uniform)> uniform(next_uniform);
  BaseSampler<double, decltype(next_normal)> normal(next_normal);
  return sample_gamma<double, double>(alpha, uniform, normal);
}

// Fills `out` with sample(i, source) for each element i.
template <typename scalar_t, typename Sample>
void fill_samples(const at::Tensor& out, PhiloxKey key, const Sample& sample) {
  fill_in_pieces<scalar_t>(out, [&](int64_t first, int64_t n, scalar_t* to) {
    for (int64_t i = 0; i < n; ++i) {
      PhiloxElement source(key, first + i);
      to[i] = sample(first + i, source);
    }
  });
}

at::Tensor poisson(const at::Tensor& rate, OptionalGenerator generator) {
  static OpRecord& op = op_record("aten::poisson");
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, rate.scalar_type(), "poisson_cpu", [] {});
  at::Tensor out = new_tensor(rate, rate.sizes(), rate.scalar_type());
  if (match_cpu_random()) {
    run_cpu_draw(
        op, generator,
        [](const at::Tensor& rate, const at::Tensor& out, const at::Generator& source) {
          out.copy_(at::poisson(rate, source));
        },
        rate, out);
    return out;
  }
  launch(
      op,
      [](const at::Tensor& rate, const at::Tensor& out, const PhiloxCursor& cursor) {
        AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, rate.scalar_type(), "poisson", [&] {
          const at::Tensor rates = rate.contiguous();
          const scalar_t* data = rates.const_data_ptr<scalar_t>();
          fill_samples<scalar_t>(out, cursor.key(), [data](int64_t i, PhiloxElement& source) {
            return static_cast<scalar_t>(sample_poisson(static_cast<double>(data[i]), source));
          });
        });
      },
      rate, out, generator_or_default(generator, rate.device()).draw(rate.numel()));
  return out;
}

at::Tensor binomial(const at::Tensor& count, const at::Tensor& probability, OptionalGenerator generator) {
  static OpRecord& op = op_record("aten::binomial");
  at::Tensor out;
  if (count.sizes() == probability.sizes() && count.scalar_type() == probability.scalar_type() &&
      (count.scalar_type() == at::kFloat || count.scalar_type() == at::kDouble)) {
    out = new_tensor(count, count.sizes(), count.scalar_type());
  } else {
    // Of a count of 0 nothing is drawn.
    const at::Tensor like =
        ask_cpu([](const at::Tensor& n, const at::Tensor& p) { return at::binomial(n, p); }, count, probability);
    out = new_tensor(count, like.sizes(), like.scalar_type());
  }
  check_one_device("binomial", count, probability);
  if (match_cpu_random()) {
    run_cpu_draw(
        op, generator,
        [](const at::Tensor& count, const at::Tensor& probability, const at::Tensor& out, const at::Generator& source) {
          out.copy_(at::binomial(count, probability, source));
        },
        count, probability, out);
    return out;
  }
  launch(
      op,
      [](const at::Tensor& count, const at::Tensor& probability, const at::Tensor& out, const PhiloxCursor& cursor) {
        AT_DISPATCH_FLOATING_TYPES(out.scalar_type(), "binomial", [&] {
          const at::Tensor n = count.expand(out.sizes()).contiguous();
          const at::Tensor p = probability.expand(out.sizes()).contiguous();
          const scalar_t* n_data = n.const_data_ptr<scalar_t>();
          const scalar_t* p_data = p.const_data_ptr<scalar_t>();
          fill_samples<scalar_t>(out, cursor.key(), [=](int64_t i, PhiloxElement& source) {
            const auto next = [&source] { return source.uniform(); };
            BaseSampler<double, decltype(next)> uniform(next);
            return sample_binomial<scalar_t, double>(n_data[i], p_data[i], uniform);
          });
        });
      },
      count, probability, out, generator_or_default(generator, count.device()).draw(out.numel()));
  return out;
}

at::Tensor standard_gamma(const at::Tensor& alpha, OptionalGenerator generator) {
  static OpRecord& op = op_record("aten::_standard_gamma");
  AT_DISPATCH_FLOATING_TYPES(alpha.scalar_type(), "gamma_cpu", [] {});
  at::Tensor out = new_tensor(alpha, alpha.sizes(), alpha.scalar_type());
  if (match_cpu_random()) {
    run_cpu_draw(
        op, generator,
        [](const at::Tensor& alpha, const at::Tensor& out, const at::Generator& source) {
          out.copy_(at::_standard_gamma(alpha, source));
        },
        alpha, out);
    return out;
  }
  launch(
      op,
      [](const at::Tensor& alpha, const at::Tensor& out, const PhiloxCursor& cursor) {
        AT_DISPATCH_FLOATING_TYPES(alpha.scalar_type(), "gamma", [&] {
          const at::Tensor shapes = alpha.contiguous();
          const scalar_t* data = shapes.const_data_ptr<scalar_t>();
          fill_samples<scalar_t>(out, cursor.key(), [data](int64_t i, PhiloxElement& source) {
            const double sample = sample_standard_gamma(static_cast<double>(data[i]), source);
            return std::max(std::numeric_limits<scalar_t>::min(), static_cast<scalar_t>(sample));
          });
        });
      },
      alpha, out, generator_or_default(generator, alpha.device()).draw(alpha.numel()));
  return out;
}

at::Tensor sample_dirichlet(const at::Tensor& alpha, OptionalGenerator generator) {
  static OpRecord& op = op_record("aten::_sample_dirichlet");
  AT_DISPATCH_FLOATING_TYPES(alpha.scalar_type(), "dirichlet", [] {});
  at::Tensor out = new_tensor(alpha, alpha.sizes(), alpha.scalar_type());
  if (match_cpu_random()) {
    run_cpu_draw(
        op, generator,
        [](const at::Tensor& alpha, const at::Tensor& out, const at::Generator& source) {
          out.copy_(at::_sample_dirichlet(alpha, source));
        },
        alpha, out);
    return out;
  }
  launch(
      op,
      [](const at::Tensor& alpha, const at::Tensor& out, const PhiloxCursor& cursor) {
        const at::Tensor shapes = alpha.to(at::kDouble).contiguous();
        const double* data = shapes.const_data_ptr<double>();
        const at::Tensor gamma = at::empty(shapes.sizes(), shapes.options());
        fill_samples<double>(gamma, cursor.key(), [data](int64_t i, PhiloxElement& source) {
          return sample_standard_gamma(data[i], source);
        });
        AT_DISPATCH_FLOATING_TYPES(out.scalar_type(), "dirichlet", [&] {
          const at::Tensor share = gamma / gamma.sum(-1, /*keepdim=*/true);
          out.copy_(share.clamp(std::numeric_limits<scalar_t>::min(), std::nextafter(scalar_t(1), scalar_t(0))));
        });
      },
      alpha, out, generator_or_default(generator, alpha.device()).draw(alpha.numel()));
  return out;
}

at::Tensor standard_gamma_grad(const at::Tensor& self, const at::Tensor& sample) {
  static OpRecord& op = op_record("aten::_standard_gamma_grad");
  if (self.sizes() != sample.sizes() || self.scalar_type() != sample.scalar_type() || !self.is_floating_point()) {
    ask_cpu([](const at::Tensor& a, const at::Tensor& s) { return at::_standard_gamma_grad(a, s); }, self, sample);
  }
  AT_DISPATCH_FLOATING_TYPES(self.scalar_type(), "_standard_gamma_grad_cpu", [] {});
  at::Tensor out = new_tensor(self, self.sizes(), self.scalar_type());
  launch(
      op,
      [](const at::Tensor& self, const at::Tensor& sample, const at::Tensor& out) {
        run_into(out, [&] { return at::_standard_gamma_grad(self, sample); });
      },
      self, sample, out);
  return out;
}

at::Tensor dirichlet_grad(const at::Tensor& x, const at::Tensor& alpha, const at::Tensor& total) {
  static OpRecord& op = op_record("aten::_dirichlet_grad");
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "_dirichlet_grad_cpu", [] {});
  at::Tensor out = new_tensor(x, x.sizes(), x.scalar_type());
  launch(
      op,
      [](const at::Tensor& x, const at::Tensor& alpha, const at::Tensor& total, const at::Tensor& out) {
        run_into(out, [&] { return at::_dirichlet_grad(x, alpha, total); });
      },
      x, alpha, total, out);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("poisson", &poisson);
  m.impl("binomial", &binomial);
  m.impl("_standard_gamma", &standard_gamma);
  m.impl("_standard_gamma_grad", &standard_gamma_grad);
  m.impl("_sample_dirichlet", &sample_dirichlet);
  m.impl("_dirichlet_grad", &dirichlet_grad);
}

}  // namespace torchneuron
