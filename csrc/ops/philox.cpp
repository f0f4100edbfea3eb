#include "ops/philox.h"

#include <algorithm>
#include <cmath>
#include <cstring>

// Loops in this file are written for the compiler's vectoriser, and compiled for several instruction sets. None of
// these may contract a product and a sum into one rounding, or the numbers would depend on the machine.
#pragma GCC optimize("O3", "no-trapping-math", "fp-contract=off")

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TORCHNEURON_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TORCHNEURON_CLONES
#endif

namespace torchneuron {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;

// Blocks that are computed side by side, and the words they give.
constexpr int kLanes = 16;
constexpr int kWords = 4 * kLanes;
// Elements per step of the transformations: their words stay in the first-level cache.
constexpr int kStep = 1024;

TORCHNEURON_CLONES void fill_words(uint64_t seed, uint64_t low, uint64_t high, int64_t n, uint32_t* __restrict out) {
  uint32_t words[kWords];
  const uint32_t key0 = static_cast<uint32_t>(seed);
  const uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  const uint32_t high0 = static_cast<uint32_t>(high);
  const uint32_t high1 = static_cast<uint32_t>(high >> 32);
  for (int64_t done = 0; done < n; done += kWords, low += kLanes) {
    const uint32_t low0 = static_cast<uint32_t>(low);
    const uint32_t low1 = static_cast<uint32_t>(low >> 32);
    for (int j = 0; j < kLanes; ++j) {
      uint32_t x0 = low0 + static_cast<uint32_t>(j);
      uint32_t x1 = low1 + (x0 < low0 ? 1u : 0u);
      uint32_t x2 = high0;
      uint32_t x3 = high1;
#pragma GCC unroll 10
      for (uint32_t round = 0; round < 10; ++round) {
        const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * x0;
        const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * x2;
        x0 = static_cast<uint32_t>(p1 >> 32) ^ x1 ^ (key0 + round * kWeyl0);
        x2 = static_cast<uint32_t>(p0 >> 32) ^ x3 ^ (key1 + round * kWeyl1);
        x1 = static_cast<uint32_t>(p1);
        x3 = static_cast<uint32_t>(p0);
      }
      words[4 * j] = x0;
      words[4 * j + 1] = x1;
      words[4 * j + 2] = x2;
      words[4 * j + 3] = x3;
    }
    std::memcpy(out + done, words, static_cast<size_t>(std::min<int64_t>(n - done, kWords)) * sizeof(uint32_t));
  }
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// -ln(u) for u = (x / 2 + 1/2) / 2^31, in (0, 1]. A polynomial (Cephes, logf) on the mantissa, taken around 1.
inline float minus_log(uint32_t x) {
  const float u = (static_cast<float>(static_cast<int32_t>(x >> 1)) + 0.5f) * 0x1p-31f;
  constexpr uint32_t kSqrtHalf = 0x3F3504F3;
  const uint32_t shifted = bits_of(u) - kSqrtHalf;
  const float exponent = static_cast<float>(static_cast<int32_t>(shifted) >> 23);
  const float t = float_of((shifted & 0x007FFFFF) + kSqrtHalf) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * t - 1.1514610310e-1f;
  p = p * t + 1.1676998740e-1f;
  p = p * t - 1.2420140846e-1f;
  p = p * t + 1.4249322787e-1f;
  p = p * t - 1.6668057665e-1f;
  p = p * t + 2.0000714765e-1f;
  p = p * t - 2.4999993993e-1f;
  p = p * t + 3.3333331174e-1f;
  const float z = t * t;
  float y = p * t * z;
  y += exponent * -2.12194440e-4f;
  y -= 0.5f * z;
  return -(t + y + exponent * 0.693359375f);
}

// By Newton's iteration on 1 / sqrt(x): a call of sqrtf could set errno, which keeps a loop from being vectorised.
inline float square_root(float x) {
  float y = float_of(0x5F3759DF - (bits_of(x) >> 1));
  y = y * (1.5f - 0.5f * x * y * y);
  y = y * (1.5f - 0.5f * x * y * y);
  y = y * (1.5f - 0.5f * x * y * y);
  return x * y;
}

TORCHNEURON_CLONES void uniform_of(const uint32_t* __restrict words, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(static_cast<int32_t>(words[i] >> 8)) * 0x1p-24f;
  }
}

TORCHNEURON_CLONES void exponential_of(const uint32_t* __restrict words, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    const float value = minus_log(words[i]);
    out[i] = value > 0x1p-25f ? value : 0x1p-25f;
  }
}

// The angle 2 pi x / 2^32 is reduced in integers to an eighth of a turn either way (polynomials: Cephes, sinf and
// cosf).
TORCHNEURON_CLONES void normal_of(const uint32_t* __restrict words, int64_t pairs, float* __restrict out) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float radius = square_root(2.0f * minus_log(words[2 * i]));
    const uint32_t turned = words[2 * i + 1] + 0x20000000u;
    const float a =
        static_cast<float>(static_cast<int32_t>(turned & 0x3FFFFFFFu) - 0x20000000) * 1.4629180792671596e-9f;
    const float z = a * a;
    float s = -1.9515295891e-4f;
    s = s * z + 8.3321608736e-3f;
    s = s * z - 1.6666654611e-1f;
    s = s * z * a + a;
    float c = 2.443315711809948e-5f;
    c = c * z - 1.388731625493765e-3f;
    c = c * z + 4.166664568298827e-2f;
    c = c * z * z - 0.5f * z + 1.0f;
    const uint32_t quadrant = turned >> 30;
    const uint32_t swap = 0u - (quadrant & 1u);
    const uint32_t cos_bits = (bits_of(c) & ~swap) | (bits_of(s) & swap);
    const uint32_t sin_bits = (bits_of(s) & ~swap) | (bits_of(c) & swap);
    const uint32_t cos_sign = ((quadrant + 1u) & 2u) << 30;
    const uint32_t sin_sign = (quadrant & 2u) << 30;
    out[2 * i] = radius * float_of(cos_bits ^ cos_sign);
    out[2 * i + 1] = radius * float_of(sin_bits ^ sin_sign);
  }
}

// Calls step(element offset, count) for pieces of n elements that a stack buffer holds.
template <typename Step>
void in_steps(int64_t n, const Step& step) {
  for (int64_t done = 0; done < n; done += kStep) {
    step(done, std::min<int64_t>(kStep, n - done));
  }
}

// On (0, 1]: 53 bits.
double positive_uniform(uint64_t word) { return static_cast<double>((word >> 11) + 1) * 0x1p-53; }

double turn(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53 * 2.0 * M_PI; }

}  // namespace

std::array<uint32_t, 4> philox_block(uint64_t seed, uint64_t low, uint64_t high) {
  std::array<uint32_t, 4> c{
      static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
      static_cast<uint32_t>(high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round, k0 += kWeyl0, k1 += kWeyl1) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * c[2];
    c = {
        static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
        static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
  }
  return c;
}

void philox_words(PhiloxKey key, uint64_t k, int64_t first, int64_t n, uint32_t* out) {
  fill_words(key.seed, (key.offset + static_cast<uint64_t>(first)) / 4, k, n, out);
}

void philox_words64(PhiloxKey key, int64_t first, int64_t n, uint64_t* out) {
  uint32_t high[kStep];
  uint32_t low[kStep];
  in_steps(n, [&](int64_t done, int64_t count) {
    philox_words(key, 0, first + done, count, high);
    philox_words(key, 1, first + done, count, low);
    for (int64_t i = 0; i < count; ++i) {
      out[done + i] = static_cast<uint64_t>(high[i]) << 32 | low[i];
    }
  });
}

void philox_uniform(PhiloxKey key, int64_t first, int64_t n, float* out) {
  uint32_t words[kStep];
  in_steps(n, [&](int64_t done, int64_t count) {
    philox_words(key, 0, first + done, count, words);
    uniform_of(words, count, out + done);
  });
}

void philox_uniform(PhiloxKey key, int64_t first, int64_t n, double* out) {
  uint64_t words[kStep];
  in_steps(n, [&](int64_t done, int64_t count) {
    philox_words64(key, first + done, count, words);
    for (int64_t i = 0; i < count; ++i) {
      out[done + i] = static_cast<double>(words[i] >> 11) * 0x1p-53;
    }
  });
}

void philox_normal(PhiloxKey key, int64_t first, int64_t n, float* out) {
  uint32_t words[kStep];
  float last[2];
  in_steps(n, [&](int64_t done, int64_t count) {
    philox_words(key, 0, first + done, count + count % 2, words);
    normal_of(words, count / 2, out + done);
    if (count % 2 != 0) {
      normal_of(words + count - 1, 1, last);
      out[done + count - 1] = last[0];
    }
  });
}

void philox_normal(PhiloxKey key, int64_t first, int64_t n, double* out) {
  uint64_t words[kStep];
  in_steps(n, [&](int64_t done, int64_t count) {
    philox_words64(key, first + done, count + count % 2, words);
    for (int64_t i = 0; i < count; i += 2) {
      const double radius = std::sqrt(-2.0 * std::log(positive_uniform(words[i])));
      const double angle = turn(words[i + 1]);
      out[done + i] = radius * std::cos(angle);
      if (i + 1 < count) {
        out[done + i + 1] = radius * std::sin(angle);
      }
    }
  });
}

void philox_exponential(PhiloxKey key, int64_t first, int64_t n, float* out) {
  uint32_t words[kStep];
  in_steps(n, [&](int64_t done, int64_t count) {
    philox_words(key, 0, first + done, count, words);
    exponential_of(words, count, out + done);
  });
}

void philox_exponential(PhiloxKey key, int64_t first, int64_t n, double* out) {
  uint64_t words[kStep];
  in_steps(n, [&](int64_t done, int64_t count) {
    philox_words64(key, first + done, count, words);
    for (int64_t i = 0; i < count; ++i) {
      out[done + i] = std::max(-std::log(positive_uniform(words[i])), 0x1p-54);
    }
  });
}

double PhiloxElement::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * M_PI * uniform());
}

}  // namespace torchneuron
