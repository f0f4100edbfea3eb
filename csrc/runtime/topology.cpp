#include "runtime/topology.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>

namespace torchneuron {

namespace {

constexpr const char* kInstance = "TORCHNEURON_INSTANCE";
constexpr const char* kLogicalCoreConfig = "NEURON_LOGICAL_NC_CONFIG";
constexpr const char* kVirtualCoreSize = "NEURON_RT_VIRTUAL_CORE_SIZE";  // its older name
constexpr const char* kVisibleCores = "NEURON_RT_VISIBLE_CORES";
constexpr const char* kNumCores = "NEURON_RT_NUM_CORES";
constexpr const char* kLocalRank = "LOCAL_RANK";
constexpr const char* kTensorEngine = "TORCHNEURON_TENSOR_ENGINE";
constexpr const char* kDefaultInstance = "trn2.3xlarge";

// A device index is 8 bits wide in PyTorch.
constexpr int kMaxDevices = 127;

std::vector<InstanceType>& instance_types() {
  static auto* types = new std::vector<InstanceType>();
  return *types;
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The variable's text, or nullopt where it is unset.
std::optional<std::string> variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : std::optional<std::string>(trim(text));
}

std::optional<int> to_int(std::string_view text) {
  text = trim(text);
  if (text.empty() || text.size() > 6 || text.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  return std::atoi(std::string(text).c_str());
}

const InstanceType& read_instance() {
  std::string name = variable(kInstance).value_or("");
  if (name.empty()) {
    name = kDefaultInstance;
  }
  std::ostringstream known;
  for (const InstanceType& type : instance_types()) {
    if (type.name == name) {
      return type;
    }
    known << (known.tellp() > 0 ? ", " : "") << type.name;
  }
  C10_THROW_ERROR(
      ValueError, c10::str(kInstance, "='", name, "' names no known instance; it may be one of: ", known.str()));
}

int read_lnc(const InstanceType& instance) {
  int lnc = instance.default_lnc;
  const char* set_by = nullptr;
  for (const char* name : {kVirtualCoreSize, kLogicalCoreConfig}) {
    const std::optional<std::string> text = variable(name);
    if (!text.has_value() || text->empty()) {
      continue;
    }
    const std::optional<int> value = to_int(*text);
    TORCH_CHECK_VALUE(
        value == instance.default_lnc || (instance.lnc_selectable && (value == 1 || value == 2)), name, "='", *text,
        "' is not a number of physical NeuronCores per logical one that ", instance.name, " offers; it may be ",
        instance.lnc_selectable ? "1 or 2" : std::to_string(instance.default_lnc));
    TORCH_CHECK_VALUE(
        set_by == nullptr || value == lnc, kVirtualCoreSize, "=", lnc, " and ", kLogicalCoreConfig, "=", *value,
        " contradict each other; set only ", kLogicalCoreConfig, " (1 or 2)");
    lnc = *value;
    set_by = name;
  }
  return lnc;
}

// "0-3", "2" and "0,2,4-5" as Neuron's runtime reads them; "" is no core at all.
std::vector<int> parse_cores(const std::string& text, int total, const InstanceType& instance) {
  std::vector<int> cores;
  const auto fail = [&](const std::string& why) {
    TORCH_CHECK_VALUE(
        false, kVisibleCores, "='", text, "' ", why,
        "; it may be a core, a range or a list of both, each core once, out "
        "of 0-",
        total - 1, " on ", instance.name, " (for example '0-", std::min(total - 1, 3), "' or '0,",
        std::min(total - 1, 2), "'), or empty for no core");
  };
  if (text.empty()) {
    return cores;
  }
  std::istringstream parts(text + ",");
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const std::optional<int> first = to_int(std::string_view(part).substr(0, dash));
    const std::optional<int> last = dash == std::string::npos ? first : to_int(std::string_view(part).substr(dash + 1));
    if (!first.has_value() || !last.has_value()) {
      fail("is not a list of cores");
    }
    if (*first > *last) {
      fail("has a range that ends before it starts");
    }
    if (*last >= total) {
      fail("names a core that is not there");
    }
    for (int core = *first; core <= *last; ++core) {
      if (std::find(cores.begin(), cores.end(), core) != cores.end()) {
        fail("names a core twice");
      }
      cores.push_back(core);
    }
  }
  return cores;
}

// The visible cores by their number on the instance. The list wins over the count, as in Neuron's runtime.
std::vector<int> read_visible(int total, const InstanceType& instance) {
  int count = total;
  if (const std::optional<std::string> text = variable(kNumCores); text.has_value() && !text->empty()) {
    const std::optional<int> value = to_int(*text);
    TORCH_CHECK_VALUE(
        value.has_value() && *value <= total, kNumCores, "='", *text, "' is not a number of cores; it may be 1 to ",
        total, " on ", instance.name, ", or 0 for all");
    count = *value == 0 ? total : *value;
  }
  if (const std::optional<std::string> text = variable(kVisibleCores); text.has_value()) {
    return parse_cores(*text, total, instance);
  }
  std::vector<int> cores(count);
  for (int core = 0; core < count; ++core) {
    cores[core] = core;
  }
  return cores;
}

// Launchers and training scripts take -1 for a process that is not one of several.
int read_local_rank() {
  const std::optional<std::string> text = variable(kLocalRank);
  if (!text.has_value() || text->empty() || *text == "-1") {
    return 0;
  }
  const std::optional<int> rank = to_int(*text);
  TORCH_CHECK_VALUE(
      rank.has_value(), kLocalRank, "='", *text,
      "' is not the rank of a process on its host; it may be 0 or more, or -1 outside of a distributed run");
  return *rank;
}

std::string read_tensor_engine() {
  const std::string engine = variable(kTensorEngine).value_or("");
  TORCH_CHECK_VALUE(
      engine.empty() || engine == "measured" || engine == "onednn" || engine == "mkl", kTensorEngine, "='", engine,
      "' names no library of matrix products; it may be measured, onednn or mkl");
  return engine.empty() ? "measured" : engine;
}

Topology read_topology() {
  const InstanceType& instance = read_instance();
  const int lnc = read_lnc(instance);
  const int per_chip = instance.physical_cores_per_chip / lnc;
  const int total = per_chip * instance.chips;
  const std::vector<int> visible = read_visible(total, instance);
  TORCH_CHECK_VALUE(
      visible.size() <= kMaxDevices, instance.name, " with ", kLogicalCoreConfig, "=", lnc, " has ", visible.size(),
      " cores, but PyTorch counts at most ", kMaxDevices, " devices; set ", kVisibleCores, " (for example '0-",
      kMaxDevices - 1, "') or ", kNumCores, " (1 to ", kMaxDevices, ")");
  Topology result{instance, lnc, {}, read_local_rank(), read_tensor_engine()};
  for (const int core : visible) {
    result.cores.push_back(LogicalCore{core, core / per_chip, instance.hbm_bytes_per_chip / per_chip});
  }
  return result;
}

}  // namespace

void register_instance_types(std::vector<InstanceType> types) { instance_types() = std::move(types); }

const Topology& topology() {
  static const auto* read = new Topology(read_topology());
  return *read;
}

c10::DeviceIndex device_count() noexcept {
  // Asked on every launch, so without the lock of a static's initialisation; a failure is not kept.
  static std::atomic<int> known{-1};
  const int count = known.load(std::memory_order_relaxed);
  if (C10_LIKELY(count >= 0)) {
    return static_cast<c10::DeviceIndex>(count);
  }
  try {
    known.store(static_cast<int>(topology().cores.size()), std::memory_order_relaxed);
    return static_cast<c10::DeviceIndex>(known.load(std::memory_order_relaxed));
  } catch (...) {
    return 0;
  }
}

}  // namespace torchneuron
