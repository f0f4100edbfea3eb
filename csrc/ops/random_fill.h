#pragma once

#include "runtime/generator.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace torchneuron {

// Bodies of the random operators: fill a CPU view, in logical order, with draws that start at `key`. Parameters and
// dtypes have been checked.

void fill_uniform(const at::Tensor& self, PhiloxKey key, double from, double to);
void fill_normal(const at::Tensor& self, PhiloxKey key, double mean, double std);
void fill_log_normal(const at::Tensor& self, PhiloxKey key, double mean, double std);
void fill_exponential(const at::Tensor& self, PhiloxKey key, double lambda);
void fill_cauchy(const at::Tensor& self, PhiloxKey key, double median, double sigma);
void fill_geometric(const at::Tensor& self, PhiloxKey key, double p);
void fill_bernoulli(const at::Tensor& self, PhiloxKey key, double p);
// `p` has the sizes of `self`; raises where a probability is not in [0, 1].
void fill_bernoulli(const at::Tensor& self, PhiloxKey key, const at::Tensor& p);

// Integers base … base + range - 1; a range of 0 stands for all 2^64.
void fill_integers(const at::Tensor& self, PhiloxKey key, int64_t base, uint64_t range);
// The number of values that random_() without bounds draws from, 0 … that - 1; 0 stands for 2^64.
uint64_t default_range(at::ScalarType dtype);

}  // namespace torchneuron
