#include "runtime/generator.h"

#include "runtime/stream.h"
#include "runtime/topology.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <atomic>
#include <cstring>
#include <deque>

namespace torchneuron {
namespace {

std::atomic<bool> match_cpu{false};

constexpr size_t kStateBytes = 16;

size_t cpu_state_bytes() {
  static const auto bytes = static_cast<size_t>(at::detail::createCPUGenerator().get_state().numel());
  return bytes;
}

uint64_t round_up_to_4(uint64_t n) { return (n + 3) & ~uint64_t{3}; }

at::Generator cpu_generator_of_seed(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

}  // namespace

class PhiloxState final : public c10::intrusive_ptr_target {
 public:
  PhiloxState(uint64_t seed, bool is_default) : seed_(seed), is_default_(is_default) {}

  void set_seed(uint64_t seed) {
    at::Generator cpu;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      refuse_while_capturing();
      seed_ = seed;
      offset_ = 0;
      cpu = reseeded_cpu(seed);
    }
    if (cpu.defined()) {
      std::lock_guard<std::mutex> lock(cpu.mutex());
      cpu.set_current_seed(seed);
    }
  }

  void set(PhiloxKey key) {
    const auto offset = static_cast<int64_t>(key.offset);
    TORCH_CHECK(offset >= 0 && offset % 4 == 0, "offset must be a multiple of 4, 0 or more, but got ", offset);
    std::lock_guard<std::mutex> lock(mutex_);
    refuse_while_capturing();
    seed_ = key.seed;
    offset_ = key.offset;
  }

  PhiloxKey get() const {
    std::lock_guard<std::mutex> lock(mutex_);
    refuse_while_capturing();
    return {seed_, offset_};
  }

  uint64_t seed() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return seed_;
  }

  PhiloxKey reserve(uint64_t increment) {
    std::lock_guard<std::mutex> lock(mutex_);
    const PhiloxKey key{seed_, offset_};
    offset_ += round_up_to_4(increment);
    return key;
  }

  PhiloxCursor draw(uint64_t elements, bool in_graph) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t increment = round_up_to_4(elements);
    if (in_graph) {
      TORCH_CHECK(
          graph_rng_ != nullptr,
          "While a graph captures a stream, random numbers come from the default generator of its device or from one "
          "that the graph was told of by register_generator_state() before the capture.");
      return {graph_rng_, std::exchange(offset_in_graph_, offset_in_graph_ + increment)};
    }
    return {seed_, std::exchange(offset_, offset_ + increment)};
  }

  void begin_capture(std::shared_ptr<GraphRng> rng) {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(graph_rng_ == nullptr, "A generator can take part in one graph capture at a time.");
    graph_rng_ = std::move(rng);
    offset_in_graph_ = 0;
  }

  uint64_t end_capture() {
    std::lock_guard<std::mutex> lock(mutex_);
    graph_rng_.reset();
    return offset_in_graph_;
  }

  at::Generator cpu() {
    if (is_default_) {
      return at::detail::getDefaultCPUGenerator();
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (!cpu_.defined()) {
      cpu_ = cpu_generator_of_seed(seed_);
    }
    return cpu_;
  }

  bool is_default() const { return is_default_; }

  c10::intrusive_ptr<PhiloxState> copy() const {
    std::lock_guard<std::mutex> lock(mutex_);
    refuse_while_capturing();
    auto other = c10::make_intrusive<PhiloxState>(seed_, /*is_default=*/false);
    other->offset_ = offset_;
    if (is_default_ && match_cpu_random()) {
      other->cpu_ = at::detail::getDefaultCPUGenerator().clone();
    } else if (cpu_.defined()) {
      other->cpu_ = cpu_.clone();
    }
    return other;
  }

 private:
  void refuse_while_capturing() const {
    TORCH_CHECK(
        graph_rng_ == nullptr, "The state of a generator cannot be read or set while a graph captures its draws.");
  }

  // Seeding a device in match mode also seeds the stream that it shares, which torch.manual_seed has just seeded alike.
  at::Generator reseeded_cpu(uint64_t seed) {
    if (!is_default_) {
      return cpu_;
    }
    return match_cpu_random() ? at::detail::getDefaultCPUGenerator() : at::Generator();
  }

  mutable std::mutex mutex_;
  uint64_t seed_;
  uint64_t offset_ = 0;
  const bool is_default_;
  at::Generator cpu_;
  std::shared_ptr<GraphRng> graph_rng_;
  uint64_t offset_in_graph_ = 0;
};

NeuronGeneratorImpl::NeuronGeneratorImpl(c10::DeviceIndex device)
    : NeuronGeneratorImpl(device, c10::make_intrusive<PhiloxState>(c10::default_rng_seed_val, /*is_default=*/false)) {}

NeuronGeneratorImpl::NeuronGeneratorImpl(c10::DeviceIndex device, c10::intrusive_ptr<PhiloxState> state)
    : c10::GeneratorImpl(c10::Device(kNeuron, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::move(state)) {}

c10::intrusive_ptr<PhiloxState> NeuronGeneratorImpl::state() const {
  std::lock_guard<std::mutex> lock(state_pointer_mutex_);
  return state_;
}

void NeuronGeneratorImpl::set_current_seed(uint64_t seed) { state()->set_seed(seed); }

void NeuronGeneratorImpl::set_offset(uint64_t offset) {
  auto state = this->state();
  state->set({state->get().seed, offset});
}

uint64_t NeuronGeneratorImpl::get_offset() const { return state()->get().offset; }

uint64_t NeuronGeneratorImpl::current_seed() const { return state()->seed(); }

uint64_t NeuronGeneratorImpl::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);
  set_current_seed(random);
  return random;
}

c10::intrusive_ptr<c10::TensorImpl> NeuronGeneratorImpl::get_state() const {
  auto state = this->state();
  const PhiloxKey key = state->get();
  at::Tensor cpu_state;
  if (match_cpu_random() && !state->is_default()) {
    at::Generator cpu = state->cpu();
    std::lock_guard<std::mutex> lock(cpu.mutex());
    cpu_state = cpu.get_state();
  }
  const int64_t cpu_bytes = cpu_state.defined() ? cpu_state.numel() : 0;
  at::Tensor bytes =
      at::empty({static_cast<int64_t>(kStateBytes) + cpu_bytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  uint8_t* data = bytes.mutable_data_ptr<uint8_t>();
  std::memcpy(data, &key.seed, sizeof(key.seed));
  std::memcpy(data + sizeof(key.seed), &key.offset, sizeof(key.offset));
  if (cpu_bytes > 0) {
    std::memcpy(data + kStateBytes, cpu_state.const_data_ptr<uint8_t>(), cpu_bytes);
  }
  return bytes.getIntrusivePtr();
}

void NeuronGeneratorImpl::set_state(const c10::TensorImpl& new_state) {
  at::detail::check_rng_state(new_state);
  const size_t size = new_state.numel();
  auto state = this->state();
  const bool with_cpu_state = !state->is_default() && size == kStateBytes + cpu_state_bytes();
  TORCH_CHECK(
      size == sizeof(uint64_t) || size == kStateBytes || with_cpu_state, "RNG state is wrong size: expected ",
      kStateBytes, " bytes (seed, offset) or 8 (seed), but got ", size);
  PhiloxKey key{0, 0};
  const auto* data = static_cast<const uint8_t*>(new_state.data());
  std::memcpy(&key.seed, data, sizeof(key.seed));
  if (size >= kStateBytes) {
    std::memcpy(&key.offset, data + sizeof(key.seed), sizeof(key.offset));
  }
  if (with_cpu_state) {
    at::Tensor cpu_state =
        at::empty({static_cast<int64_t>(size - kStateBytes)}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
    std::memcpy(cpu_state.mutable_data_ptr<uint8_t>(), data + kStateBytes, size - kStateBytes);
    at::Generator cpu = state->cpu();
    std::lock_guard<std::mutex> lock(cpu.mutex());
    cpu.set_state(cpu_state);
  }
  state->set(key);
}

void NeuronGeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) {
  auto* other = dynamic_cast<NeuronGeneratorImpl*>(new_state.get());
  TORCH_CHECK(other != nullptr, "Provided generator is not a neuron generator");
  auto state = other->state();
  std::lock_guard<std::mutex> lock(state_pointer_mutex_);
  state_ = std::move(state);
}

c10::intrusive_ptr<c10::GeneratorImpl> NeuronGeneratorImpl::graphsafe_get_state() const {
  return c10::intrusive_ptr<c10::GeneratorImpl>::unsafe_steal_from_new(
      new NeuronGeneratorImpl(device().index(), state()));
}

NeuronGeneratorImpl* NeuronGeneratorImpl::clone_impl() const {
  return new NeuronGeneratorImpl(device().index(), state()->copy());
}

PhiloxCursor NeuronGeneratorImpl::draw(int64_t elements) {
  const bool in_graph = current_stream(device().index()).capturing() != nullptr;
  return state()->draw(static_cast<uint64_t>(elements), in_graph);
}

bool NeuronGeneratorImpl::shares_state(const NeuronGeneratorImpl& other) const { return state() == other.state(); }

void NeuronGeneratorImpl::capture_prologue(std::shared_ptr<GraphRng> rng) { state()->begin_capture(std::move(rng)); }

uint64_t NeuronGeneratorImpl::capture_epilogue() { return state()->end_capture(); }

PhiloxKey NeuronGeneratorImpl::reserve(uint64_t increment) { return state()->reserve(increment); }

at::Generator NeuronGeneratorImpl::cpu_generator() const { return state()->cpu(); }

const at::Generator& default_generator(c10::DeviceIndex device) {
  if (device < 0) {
    device = current_device();
  }
  check_device_index(device);
  static std::mutex mutex;
  // Never freed: Python may hold generators until after static destruction has begun.
  static auto& generators = *new std::deque<at::Generator>();
  std::lock_guard<std::mutex> lock(mutex);
  while (generators.size() <= static_cast<size_t>(device)) {
    const auto index = static_cast<c10::DeviceIndex>(generators.size());
    const uint64_t seed = c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);
    auto state = c10::make_intrusive<PhiloxState>(seed, /*is_default=*/true);
    generators.emplace_back(
        c10::intrusive_ptr<c10::GeneratorImpl>::unsafe_steal_from_new(
            new NeuronGeneratorImpl(index, std::move(state))));
  }
  return generators[device];
}

at::Generator make_generator(c10::DeviceIndex device) {
  if (device < 0) {
    device = current_device();
  }
  check_device_index(device);
  return at::make_generator<NeuronGeneratorImpl>(device);
}

NeuronGeneratorImpl& generator_or_default(const std::optional<at::Generator>& generator, c10::Device device) {
  TORCH_CHECK(
      device.type() == kNeuron, "Expected a '", device.type(), "' device type for generator but found '", kNeuron, "'");
  if (!generator.has_value() || !generator->defined()) {
    return *default_generator(device.index()).get<NeuronGeneratorImpl>();
  }
  return *at::check_generator<NeuronGeneratorImpl>(generator);
}

bool match_cpu_random() noexcept { return match_cpu.load(std::memory_order_relaxed); }

void set_match_cpu_random(bool on) noexcept { match_cpu.store(on, std::memory_order_relaxed); }

}  // namespace torchneuron
