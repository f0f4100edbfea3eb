#include "ops/random.h"

#include "ops/random_fill.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/DistributionTemplates.h>
#include <torch/library.h>

#include <utility>

// The in-place draws. PyTorch's templates check the arguments, as for CPU, and call the launches below for non-empty
// ones.
namespace torchneuron {

namespace {

using OptionalGenerator = std::optional<at::Generator>;

// The functors that PyTorch's templates call. Their type argument is the generator's type, always
// at::Generator. A dispatch that does nothing raises CPU's error for a dtype that its kernel has no code for.

template <typename>
struct Random {
  void operator()(at::TensorIterator& iter, const OptionalGenerator& generator) const {
    static OpRecord& op = op_record("aten::random_");
    const uint64_t range = default_range(iter.dtype());
    launch_draw(
        op, iter.tensor(0), generator, [=](const at::Tensor& t, PhiloxKey key) { fill_integers(t, key, 0, range); });
  }
};

template <typename>
struct RandomFromTo {
  void operator()(at::TensorIterator& iter, uint64_t range, int64_t from, const OptionalGenerator& generator) const {
    static OpRecord& op = op_record("aten::random_.from");
    launch_draw(
        op, iter.tensor(0), generator, [=](const at::Tensor& t, PhiloxKey key) { fill_integers(t, key, from, range); });
  }
  void operator()(at::TensorIterator& iter, const OptionalGenerator& generator) const {
    static OpRecord& op = op_record("aten::random_.from");
    AT_DISPATCH_V2(
        iter.dtype(), "random_full_64_bits_range_kernel_cpu", AT_WRAP([] {}), at::kLong, at::kUInt64, at::kDouble,
        at::kFloat, at::kBFloat16);
    launch_draw(op, iter.tensor(0), generator, [](const at::Tensor& t, PhiloxKey key) { fill_integers(t, key, 0, 0); });
  }
};

template <typename>
struct Uniform {
  void operator()(at::TensorIterator& iter, double from, double to, const OptionalGenerator& generator) const {
    static OpRecord& op = op_record("aten::uniform_");
    launch_draw(
        op, iter.tensor(0), generator, [=](const at::Tensor& t, PhiloxKey key) { fill_uniform(t, key, from, to); });
  }
};

template <typename>
struct Normal {
  void operator()(const at::Tensor& self, double mean, double std, const OptionalGenerator& generator) const {
    static OpRecord& op = op_record("aten::normal_");
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "normal_kernel_cpu", [] {});
    at::assert_no_internal_overlap(self);
    launch_draw(op, self, generator, [=](const at::Tensor& t, PhiloxKey key) { fill_normal(t, key, mean, std); });
  }
};

template <typename>
struct LogNormal {
  void operator()(at::TensorIterator& iter, double mean, double std, const OptionalGenerator& generator) const {
    static OpRecord& op = op_record("aten::log_normal_");
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, iter.dtype(), "log_normal_cpu", [] {});
    launch_draw(
        op, iter.tensor(0), generator, [=](const at::Tensor& t, PhiloxKey key) { fill_log_normal(t, key, mean, std); });
  }
};

template <typename>
struct Cauchy {
  void operator()(at::TensorIterator& iter, double median, double sigma, const OptionalGenerator& generator) const {
    static OpRecord& op = op_record("aten::cauchy_");
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, iter.dtype(), "cauchy_cpu", [] {});
    launch_draw(
        op, iter.tensor(0), generator, [=](const at::Tensor& t, PhiloxKey key) { fill_cauchy(t, key, median, sigma); });
  }
};

template <typename>
struct Exponential {
  void operator()(at::TensorIterator& iter, double lambda, const OptionalGenerator& generator) const {
    static OpRecord& op = op_record("aten::exponential_");
    TORCH_CHECK(
        at::isFloatingType(iter.dtype()),
        "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you "
        "specified ",
        iter.dtype());
    launch_draw(
        op, iter.tensor(0), generator, [=](const at::Tensor& t, PhiloxKey key) { fill_exponential(t, key, lambda); });
  }
};

template <typename>
struct Geometric {
  void operator()(at::TensorIterator& iter, double p, const OptionalGenerator& generator) const {
    static OpRecord& op = op_record("aten::geometric_");
    AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, iter.dtype(), "geometric_cpu", [] {});
    launch_draw(op, iter.tensor(0), generator, [=](const at::Tensor& t, PhiloxKey key) { fill_geometric(t, key, p); });
  }
};

template <typename>
struct Bernoulli {
  void operator()(const at::Tensor& self, double p, const OptionalGenerator& generator) const {
    static OpRecord& op = op_record("aten::bernoulli_.float");
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kBFloat16, at::kHalf, self.scalar_type(), "bernoulli_scalar_cpu_", [] {});
    launch_draw(op, self, generator, [=](const at::Tensor& t, PhiloxKey key) { fill_bernoulli(t, key, p); });
  }
  void operator()(const at::Tensor& self, const at::Tensor& p, const OptionalGenerator& generator) const {
    static OpRecord& op = op_record("aten::bernoulli_.Tensor");
    AT_DISPATCH_ALL_TYPES_AND3(
        at::kBool, at::kBFloat16, at::kHalf, self.scalar_type(), "bernoulli_tensor_cpu_self_", [] {});
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, p.scalar_type(), "bernoulli_tensor_cpu_p_", [] {});
    launch(
        op,
        [](const at::Tensor& t, const at::Tensor& probabilities, const PhiloxCursor& cursor) {
          fill_bernoulli(t, cursor.key(), probabilities);
        },
        self, p.expand(self.sizes()), generator_or_default(generator, self.device()).draw(self.numel()));
  }
};

namespace templates = at::native::templates;

at::Tensor& random_(at::Tensor& self, OptionalGenerator generator) {
  if (match_cpu_random()) {
    static OpRecord& op = op_record("aten::random_");
    return draw_on_cpu(op, self, generator, [](at::Tensor& t, const at::Generator& source) { t.random_(source); });
  }
  return templates::random_impl<Random, at::Generator>(self, std::move(generator));
}

at::Tensor& random_from(at::Tensor& self, int64_t from, std::optional<int64_t> to, OptionalGenerator generator) {
  if (match_cpu_random()) {
    static OpRecord& op = op_record("aten::random_.from");
    return draw_on_cpu(
        op, self, generator, [=](at::Tensor& t, const at::Generator& source) { t.random_(from, to, source); });
  }
  return templates::random_from_to_impl<RandomFromTo, at::Generator>(self, from, to, std::move(generator));
}

at::Tensor& random_to(at::Tensor& self, int64_t to, OptionalGenerator generator) {
  return random_from(self, 0, to, std::move(generator));
}

at::Tensor& uniform_(at::Tensor& self, double from, double to, OptionalGenerator generator) {
  if (match_cpu_random()) {
    static OpRecord& op = op_record("aten::uniform_");
    return draw_on_cpu(
        op, self, generator, [=](at::Tensor& t, const at::Generator& source) { t.uniform_(from, to, source); });
  }
  return templates::uniform_impl_<Uniform, at::Generator>(self, from, to, std::move(generator));
}

at::Tensor& normal_(at::Tensor& self, double mean, double std, OptionalGenerator generator) {
  if (match_cpu_random()) {
    static OpRecord& op = op_record("aten::normal_");
    return draw_on_cpu(
        op, self, generator, [=](at::Tensor& t, const at::Generator& source) { t.normal_(mean, std, source); });
  }
  return templates::normal_impl_<Normal, at::Generator>(self, mean, std, std::move(generator));
}

at::Tensor& log_normal_(at::Tensor& self, double mean, double std, OptionalGenerator generator) {
  if (match_cpu_random()) {
    static OpRecord& op = op_record("aten::log_normal_");
    return draw_on_cpu(
        op, self, generator, [=](at::Tensor& t, const at::Generator& source) { t.log_normal_(mean, std, source); });
  }
  return templates::log_normal_impl_<LogNormal, at::Generator>(self, mean, std, std::move(generator));
}

at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, OptionalGenerator generator) {
  if (match_cpu_random()) {
    static OpRecord& op = op_record("aten::cauchy_");
    return draw_on_cpu(
        op, self, generator, [=](at::Tensor& t, const at::Generator& source) { t.cauchy_(median, sigma, source); });
  }
  return templates::cauchy_impl_<Cauchy, at::Generator>(self, median, sigma, std::move(generator));
}

at::Tensor& exponential_(at::Tensor& self, double lambda, OptionalGenerator generator) {
  if (match_cpu_random()) {
    static OpRecord& op = op_record("aten::exponential_");
    return draw_on_cpu(
        op, self, generator, [=](at::Tensor& t, const at::Generator& source) { t.exponential_(lambda, source); });
  }
  return templates::exponential_impl_<Exponential, at::Generator>(self, lambda, std::move(generator));
}

at::Tensor& geometric_(at::Tensor& self, double p, OptionalGenerator generator) {
  if (match_cpu_random()) {
    static OpRecord& op = op_record("aten::geometric_");
    return draw_on_cpu(
        op, self, generator, [=](at::Tensor& t, const at::Generator& source) { t.geometric_(p, source); });
  }
  return templates::geometric_impl_<Geometric, at::Generator>(self, p, std::move(generator));
}

at::Tensor& bernoulli_float(at::Tensor& self, double p, OptionalGenerator generator) {
  if (match_cpu_random()) {
    static OpRecord& op = op_record("aten::bernoulli_.float");
    return draw_on_cpu(
        op, self, generator, [=](at::Tensor& t, const at::Generator& source) { t.bernoulli_(p, source); });
  }
  return templates::bernoulli_impl_<Bernoulli, at::Generator>(self, p, std::move(generator));
}

at::Tensor& bernoulli_tensor(at::Tensor& self, const at::Tensor& p, OptionalGenerator generator) {
  if (match_cpu_random()) {
    static OpRecord& op = op_record("aten::bernoulli_.Tensor");
    run_cpu_draw(
        op, generator, [](at::Tensor t, const at::Tensor& p, const at::Generator& source) { t.bernoulli_(p, source); },
        self, p);
    return self;
  }
  return templates::bernoulli_impl_<Bernoulli, at::Generator>(self, p, std::move(generator));
}

at::Tensor& bernoulli_out(const at::Tensor& self, OptionalGenerator generator, at::Tensor& out) {
  out.resize_(self.sizes());
  return bernoulli_tensor(out, self, std::move(generator));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("random_", &random_);
  m.impl("random_.from", &random_from);
  m.impl("random_.to", &random_to);
  m.impl("uniform_", &uniform_);
  m.impl("normal_", &normal_);
  m.impl("log_normal_", &log_normal_);
  m.impl("cauchy_", &cauchy_);
  m.impl("exponential_", &exponential_);
  m.impl("geometric_", &geometric_);
  m.impl("bernoulli_.float", &bernoulli_float);
  m.impl("bernoulli_.Tensor", &bernoulli_tensor);
  m.impl("bernoulli.out", &bernoulli_out);
}

}  // namespace torchneuron
