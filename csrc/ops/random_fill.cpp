#include "ops/random_fill.h"

#include "ops/philox.h"
#include "ops/random.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>

#include <cmath>
#include <limits>
#include <type_traits>

namespace torchneuron {

namespace {

constexpr int64_t kStep = 1024;

// The type that a value of `scalar_t` is computed in.
template <typename scalar_t>
using computed_t = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;

// Fills `self` with convert(x) for x from source(key, first, n, computed_t*).
template <typename scalar_t, typename Source, typename Convert>
void fill_from(const at::Tensor& self, PhiloxKey key, const Source& source, const Convert& convert) {
  using computed = computed_t<scalar_t>;
  fill_in_pieces<scalar_t>(self, [&](int64_t first, int64_t n, scalar_t* out) {
    computed buffer[kStep];
    for (int64_t done = 0; done < n; done += kStep) {
      const int64_t count = std::min(kStep, n - done);
      source(key, first + done, count, buffer);
      for (int64_t i = 0; i < count; ++i) {
        out[done + i] = static_cast<scalar_t>(convert(buffer[i]));
      }
    }
  });
}

// [0, 1) as the CPU makes it: as many bits as the dtype has digits, so that the value is exact and below 1.
template <typename scalar_t>
void unit_uniform(PhiloxKey key, int64_t first, int64_t n, computed_t<scalar_t>* out) {
  philox_uniform(key, first, n, out);
  if constexpr (sizeof(scalar_t) == 2) {
    constexpr float kScale = 1 << std::numeric_limits<scalar_t>::digits;
    for (int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<float>(static_cast<int32_t>(out[i] * kScale)) / kScale;
    }
  }
}

}  // namespace

void fill_uniform(const at::Tensor& self, PhiloxKey key, double from, double to) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "uniform", [&] {
    using computed = computed_t<scalar_t>;
    const auto low = static_cast<computed>(from);
    const auto range = static_cast<computed>(to - from);
    const auto high = static_cast<computed>(static_cast<scalar_t>(to));
    fill_from<scalar_t>(self, key, unit_uniform<scalar_t>, [=](computed x) {
      // The interval is open above, whatever the rounding.
      const auto value = static_cast<scalar_t>(x * range + low);
      return static_cast<computed>(value) < high ? value : static_cast<scalar_t>(low);
    });
  });
}

void fill_normal(const at::Tensor& self, PhiloxKey key, double mean, double std) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "normal", [&] {
    using computed = computed_t<scalar_t>;
    const auto shift = static_cast<computed>(mean);
    const auto scale = static_cast<computed>(std);
    using Source = void (*)(PhiloxKey, int64_t, int64_t, computed*);
    fill_from<scalar_t>(self, key, static_cast<Source>(philox_normal), [=](computed x) { return x * scale + shift; });
  });
}

void fill_log_normal(const at::Tensor& self, PhiloxKey key, double mean, double std) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "log_normal", [&] {
    using computed = computed_t<scalar_t>;
    const auto shift = static_cast<computed>(mean);
    const auto scale = static_cast<computed>(std);
    using Source = void (*)(PhiloxKey, int64_t, int64_t, computed*);
    fill_from<scalar_t>(
        self, key, static_cast<Source>(philox_normal), [=](computed x) { return std::exp(x * scale + shift); });
  });
}

void fill_exponential(const at::Tensor& self, PhiloxKey key, double lambda) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "exponential", [&] {
    using computed = computed_t<scalar_t>;
    const auto scale = static_cast<computed>(1.0 / lambda);
    using Source = void (*)(PhiloxKey, int64_t, int64_t, computed*);
    fill_from<scalar_t>(self, key, static_cast<Source>(philox_exponential), [=](computed x) { return x * scale; });
  });
}

void fill_cauchy(const at::Tensor& self, PhiloxKey key, double median, double sigma) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "cauchy", [&] {
    using computed = computed_t<scalar_t>;
    using Source = void (*)(PhiloxKey, int64_t, int64_t, computed*);
    fill_from<scalar_t>(self, key, static_cast<Source>(philox_uniform), [=](computed x) {
      return median + sigma * std::tan(M_PI * (static_cast<double>(x) - 0.5));
    });
  });
}

void fill_geometric(const at::Tensor& self, PhiloxKey key, double p) {
  const double scale = 1.0 / -std::log1p(-p);
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "geometric", [&] {
    fill_in_pieces<scalar_t>(self, [&](int64_t first, int64_t n, scalar_t* out) {
      double buffer[kStep];
      for (int64_t done = 0; done < n; done += kStep) {
        const int64_t count = std::min(kStep, n - done);
        philox_exponential(key, first + done, count, buffer);
        for (int64_t i = 0; i < count; ++i) {
          out[done + i] = static_cast<scalar_t>(std::ceil(buffer[i] * scale));
        }
      }
    });
  });
}

void fill_bernoulli(const at::Tensor& self, PhiloxKey key, double p) {
  const auto threshold = static_cast<uint64_t>(std::ldexp(p, 32));
  AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, self.scalar_type(), "bernoulli", [&] {
    fill_in_pieces<scalar_t>(self, [&](int64_t first, int64_t n, scalar_t* out) {
      uint32_t words[kStep];
      for (int64_t done = 0; done < n; done += kStep) {
        const int64_t count = std::min(kStep, n - done);
        philox_words(key, 0, first + done, count, words);
        for (int64_t i = 0; i < count; ++i) {
          out[done + i] = static_cast<scalar_t>(words[i] < threshold);
        }
      }
    });
  });
}

void fill_bernoulli(const at::Tensor& self, PhiloxKey key, const at::Tensor& p) {
  const at::Tensor probabilities = p.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, p.scalar_type(), "bernoulli", [&] {
    using p_t = scalar_t;
    const p_t* p_data = probabilities.const_data_ptr<p_t>();
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, self.scalar_type(), "bernoulli", [&] {
      fill_in_pieces<scalar_t>(self, [&](int64_t first, int64_t n, scalar_t* out) {
        uint32_t words[kStep];
        for (int64_t done = 0; done < n; done += kStep) {
          const int64_t count = std::min(kStep, n - done);
          philox_words(key, 0, first + done, count, words);
          for (int64_t i = 0; i < count; ++i) {
            const auto p_in = static_cast<double>(p_data[first + done + i]);
            TORCH_CHECK(p_in >= 0 && p_in <= 1);
            out[done + i] = static_cast<scalar_t>(static_cast<double>(words[i]) * 0x1p-32 < p_in);
          }
        }
      });
    });
  });
}

// By multiplication, whose bias is at most 2^-16 of
// a value's probability for small ranges, which one word serves, and range / 2^64 for others.
void fill_integers(const at::Tensor& self, PhiloxKey key, int64_t base, uint64_t range) {
  AT_DISPATCH_V2(
      self.scalar_type(), "random", AT_WRAP([&] {
        fill_in_pieces<scalar_t>(self, [&](int64_t first, int64_t n, scalar_t* out) {
          const auto value = [base](uint64_t x) {
            return static_cast<scalar_t>(static_cast<int64_t>(x + static_cast<uint64_t>(base)));
          };
          for (int64_t done = 0; done < n; done += kStep) {
            const int64_t count = std::min(kStep, n - done);
            if (range != 0 && range <= (uint64_t{1} << 16)) {
              uint32_t words[kStep];
              philox_words(key, 0, first + done, count, words);
              for (int64_t i = 0; i < count; ++i) {
                out[done + i] = value(words[i] * range >> 32);
              }
              continue;
            }
            uint64_t words[kStep];
            philox_words64(key, first + done, count, words);
            for (int64_t i = 0; i < count; ++i) {
              const auto product = static_cast<unsigned __int128>(words[i]) * range;
              out[done + i] = value(range == 0 ? words[i] : static_cast<uint64_t>(product >> 64));
            }
          }
        });
      }),
      AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool, at::kHalf, at::kBFloat16);
}

uint64_t default_range(at::ScalarType dtype) {
  uint64_t range = 0;
  AT_DISPATCH_V2(
      dtype, "random_kernel_cpu", AT_WRAP([&] {
        if constexpr (std::is_same_v<scalar_t, bool>) {
          range = 2;
        } else if constexpr (std::is_integral_v<scalar_t>) {
          range = static_cast<uint64_t>(std::numeric_limits<scalar_t>::max()) + 1;
        } else {
          range = (uint64_t{1} << std::numeric_limits<scalar_t>::digits) + 1;
        }
      }),
      AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool, at::kHalf, at::kBFloat16);
  return range;
}

}  // namespace torchneuron
