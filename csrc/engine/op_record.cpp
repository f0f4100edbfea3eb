#include "engine/op_record.h"

#include <map>
#include <memory>
#include <mutex>

namespace torchneuron {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<OpRecord>> records;
};

Registry& registry() {
  static auto* instance = new Registry();
  return *instance;
}

}  // namespace

OpRecord& op_record(const std::string& name) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  auto& record = registry().records[name];
  if (record == nullptr) {
    record = std::make_unique<OpRecord>();
    record->name = name;
  }
  return *record;
}

std::vector<OpCount> op_counts() {
  std::lock_guard<std::mutex> lock(registry().mutex);
  std::vector<OpCount> counts;
  for (const auto& [name, record] : registry().records) {
    if (record->launches + record->fallbacks > 0) {
      counts.push_back({name, record->launches, record->fallbacks, record->nanoseconds});
    }
  }
  return counts;
}

void clear_op_counts() {
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (auto& [name, record] : registry().records) {
    record->launches = record->fallbacks = record->nanoseconds = 0;
  }
}

}  // namespace torchneuron
