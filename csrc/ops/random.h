#pragma once

#include "engine/launch.h"
#include "runtime/generator.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <optional>

namespace torchneuron {

// Fills the CPU view `self` from piece(first, n, scalar_t* out), which writes elements first … first + n - 1 in logical
// order; `first` is a multiple of 4. Pieces run on the intra-op threads.
template <typename scalar_t, typename Piece>
void fill_in_pieces(const at::Tensor& self, const Piece& piece) {
  constexpr int64_t kGrain = 16384;
  const at::Tensor target = self.is_contiguous() ? self : at::empty(self.sizes(), self.options());
  scalar_t* data = target.mutable_data_ptr<scalar_t>();
  const int64_t n = target.numel();
  at::parallel_for(0, (n + kGrain - 1) / kGrain, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * kGrain; i < std::min(end * kGrain, n); i += kGrain) {
      piece(i, std::min(kGrain, n - i), data + i);
    }
  });
  if (!target.is_same(self)) {
    self.copy_(target);
  }
}

// Queues fill(self, key): one draw for each element of `self`.
template <typename Fill>
void launch_draw(OpRecord& op, const at::Tensor& self, const std::optional<at::Generator>& generator, Fill fill) {
  launch(
      op, [fill](const at::Tensor& target, const PhiloxCursor& cursor) { fill(target, cursor.key()); }, self,
      generator_or_default(generator, self.device()).draw(self.numel()));
}

// The rest is for match_cpu_random(): CPU's own kernels draw, from the CPU generator that belongs to `generator`. In a
// captured graph they draw at each replay.

inline bool capturing(const at::Tensor& self) { return current_stream(self.device().index()).capturing() != nullptr; }

// For draw(self, CPU generator) that reads nothing from the device: draws here and now, so in the order of the calls,
// and queues a copy to `self`.
template <typename Draw>
at::Tensor& draw_on_cpu(
    OpRecord& op, at::Tensor& self, const std::optional<at::Generator>& generator, const Draw& draw) {
  const at::Generator cpu = generator_or_default(generator, self.device()).cpu_generator();
  if (capturing(self)) {
    launch(op, [draw](at::Tensor target, const at::Generator& source) { draw(target, source); }, self, cpu);
    return self;
  }
  // Of the same strides, since a kernel's order of draws depends on them.
  at::Tensor drawn = at::empty_strided(self.sizes(), self.strides(), self.options().device(at::kCPU));
  draw(drawn, cpu);
  launch(op, [](const at::Tensor& target, const at::Tensor& source) { target.copy_(source); }, self, drawn);
  return self;
}

// For draw(CPU views of tensors…, CPU generator) that reads device memory: waits for the stream and draws.
template <typename Draw, typename... Tensors>
void run_cpu_draw(
    OpRecord& op, const std::optional<at::Generator>& generator, const Draw& draw, const at::Tensor& self,
    const Tensors&... others) {
  const c10::DeviceIndex device = self.device().index();
  const at::Generator cpu = generator_or_default(generator, self.device()).cpu_generator();
  if (capturing(self)) {
    launch(op, draw, self, others..., cpu);
    return;
  }
  const auto view = [](const at::Tensor& t) { return t.is_cpu() ? t : cpu_view(t); };
  run_blocking(device, op, [&] { draw(view(self), view(others)..., cpu); });
}

}  // namespace torchneuron
