#pragma once

#include "runtime/device.h"

#include <ATen/core/Generator.h>

#include <memory>
#include <mutex>
#include <optional>

namespace torchneuron {

// The random stream of a `neuron` device is Philox4x32-10 with a 64-bit seed as its key. The k-th 32-bit word of
// element i of an operator is
//
//   philox(key = seed, counter = (low 64: (offset + i) / 4, high 64: k))[(offset + i) % 4]
//
// with `offset` the generator's offset at the call, and every operator over n elements advances the offset by n rounded
// up to a multiple of 4, whatever its dtype and distribution. So a value depends on nothing but (seed, offset, i): not
// on threads, streams or strides; and the shards of a tensor, drawn at the offsets of their first elements as DTensor
// does it, are the pieces of the whole tensor's draw.

// What a captured graph keeps for one generator. A replay first queues a task that writes seed and offset.
struct GraphRng {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

struct PhiloxKey {
  uint64_t seed;
  uint64_t offset;  // a multiple of 4
};

// Where an operator's draw starts; captured by value at the launch, resolved by the body. In a graph the start moves
// with every replay, so the body must call key() each time it runs.
class PhiloxCursor {
 public:
  PhiloxCursor(uint64_t seed, uint64_t offset) : seed_(seed), offset_(offset) {}
  PhiloxCursor(std::shared_ptr<const GraphRng> graph, uint64_t offset_in_graph)
      : seed_(0), offset_(offset_in_graph), graph_(std::move(graph)) {}

  PhiloxKey key() const {
    return graph_ ? PhiloxKey{graph_->seed, graph_->offset + offset_} : PhiloxKey{seed_, offset_};
  }

 private:
  uint64_t seed_;
  uint64_t offset_;
  std::shared_ptr<const GraphRng> graph_;
};

// What generators share after graphsafe_set_state. Its own mutex guards it, so a generator's methods need no lock.
class PhiloxState;

class NeuronGeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit NeuronGeneratorImpl(c10::DeviceIndex device);
  static c10::DeviceType device_type() { return kNeuron; }

  // Starts the stream of `seed` at offset 0.
  void set_current_seed(uint64_t seed) override;
  // `offset` must be a multiple of 4.
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  // Seeds from the system's entropy and returns the seed.
  uint64_t seed() override;
  // 16 bytes on the CPU: uint64 seed, int64 offset, little endian; 8 bytes are taken as a seed with offset 0. While
  // match_cpu_random() is on, the state of a generator that is not the default one has the CPU generator's appended.
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  // The start of a draw for `elements` elements; advances the offset past them. On a stream that a graph captures the
  // cursor is relative to the graph's GraphRng, and the generator's own offset stays.
  PhiloxCursor draw(int64_t elements);

  // Whether both draw from one stream of numbers, as after graphsafe_set_state.
  bool shares_state(const NeuronGeneratorImpl& other) const;

  // Graph capture. `rng` is filled by the graph at each replay; capture_epilogue returns by how much one replay must
  // advance the offset. A replay does, on the launching thread,
  //     PhiloxKey key = generator.reserve(increment);
  // and queues a task that stores `key` into `rng` ahead of the graph's tasks.
  void capture_prologue(std::shared_ptr<GraphRng> rng);
  uint64_t capture_epilogue();
  PhiloxKey reserve(uint64_t increment);

  // The CPU generator to draw from while match_cpu_random() is on: the CPU's default generator itself for a device's
  // default generator (one stream of numbers, as in a run on CPU), else one that follows this generator's seed.
  at::Generator cpu_generator() const;

 private:
  friend const at::Generator& default_generator(c10::DeviceIndex);
  NeuronGeneratorImpl(c10::DeviceIndex device, c10::intrusive_ptr<PhiloxState> state);
  NeuronGeneratorImpl* clone_impl() const override;
  c10::intrusive_ptr<PhiloxState> state() const;

  mutable std::mutex state_pointer_mutex_;
  c10::intrusive_ptr<PhiloxState> state_;
};

// The generator of `device` (-1: the current one), seeded from entropy on first use. Does not start the device.
const at::Generator& default_generator(c10::DeviceIndex device = -1);
// A new generator with PyTorch's default seed.
at::Generator make_generator(c10::DeviceIndex device = -1);
// What a draw into memory of `device` draws from: `generator` if it is given, else the default one of `device`. Throws
// unless both are of `neuron`: since a generator takes part in the dispatch, one of neuron brings CPU tensors here.
NeuronGeneratorImpl& generator_or_default(const std::optional<at::Generator>& generator, c10::Device device);

// While on, random operators draw with the CPU's own algorithm and from cpu_generator(), in the order of their calls.
bool match_cpu_random() noexcept;
void set_match_cpu_random(bool on) noexcept;

}  // namespace torchneuron
