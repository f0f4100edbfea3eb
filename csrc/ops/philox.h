#pragma once

#include "runtime/generator.h"

#include <array>
#include <cstdint>

namespace torchneuron {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) and what is made of its words.
// Elements are numbered as in runtime/generator.h. Every function writes `n` values, of elements first … first + n - 1;
// `first` must be a multiple of 4. Results are the same on every machine, whatever vectors it has.

// The four words of the counter (low, high).
std::array<uint32_t, 4> philox_block(uint64_t seed, uint64_t low, uint64_t high);

// Word `k` of each element.
void philox_words(PhiloxKey key, uint64_t k, int64_t first, int64_t n, uint32_t* out);
// Words 0 (high half) and 1 (low half) of each element.
void philox_words64(PhiloxKey key, int64_t first, int64_t n, uint64_t* out);

// Uniform on [0, 1): multiples of 2^-24.
void philox_uniform(PhiloxKey key, int64_t first, int64_t n, float* out);
// Uniform on [0, 1): multiples of 2^-53.
void philox_uniform(PhiloxKey key, int64_t first, int64_t n, double* out);
// Standard normal, by Box and Muller; elements 2j and 2j + 1 are one pair.
void philox_normal(PhiloxKey key, int64_t first, int64_t n, float* out);
void philox_normal(PhiloxKey key, int64_t first, int64_t n, double* out);
// Exponential of rate 1; never 0.
void philox_exponential(PhiloxKey key, int64_t first, int64_t n, float* out);
void philox_exponential(PhiloxKey key, int64_t first, int64_t n, double* out);

// The 32-bit words and uniform doubles of one element, one after another: for rejection samplers.
class PhiloxElement {
 public:
  PhiloxElement(PhiloxKey key, int64_t element)
      : seed_(key.seed),
        low_((key.offset + static_cast<uint64_t>(element)) / 4),
        lane_(static_cast<uint64_t>(element) % 4) {}
  uint32_t word() { return philox_block(seed_, low_, k_++)[lane_]; }
  // On [0, 1), 53 bits.
  double uniform() {
    const uint64_t high = word();
    return static_cast<double>((high << 32 | word()) >> 11) * 0x1p-53;
  }
  double normal();

 private:
  uint64_t seed_;
  uint64_t low_;
  size_t lane_;
  uint64_t k_ = 0;
};

}  // namespace torchneuron
