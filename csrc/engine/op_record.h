#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace torchneuron {

// What is known of one operator: its name, how often it ran and for how long, and how often it had to wait.
struct OpRecord {
  std::string name;                      // "aten::add.Tensor"
  std::atomic<uint64_t> launches{0};     // queued on a stream
  std::atomic<uint64_t> fallbacks{0};    // waited for its stream and ran on the calling thread
  std::atomic<uint64_t> nanoseconds{0};  // time in its bodies
};

// The one record of `name`; the reference stays valid. Keep it in a static.
OpRecord& op_record(const std::string& name);

struct OpCount {
  std::string name;
  uint64_t launches;
  uint64_t fallbacks;
  uint64_t nanoseconds;
};
std::vector<OpCount> op_counts();
void clear_op_counts();

}  // namespace torchneuron
