#include "python/bindings.h"
#include "runtime/allocator.h"
#include "runtime/topology.h"

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <pybind11/stl.h>

#include <optional>
#include <set>
#include <string>

namespace torch {
// Declared here because the header that does, torch/csrc/profiler/python/combined_traceback.h, includes nlohmann's JSON
// library, which PyTorch does not ship.
TORCH_API std::vector<pybind11::object> py_symbolize(std::vector<CapturedTraceback*>& to_symbolize);
}  // namespace torch

namespace torchneuron {

namespace py = pybind11;

namespace {

using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;
using Context = std::shared_ptr<c10::GatheredContext>;

Context python_stack() { return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, /*cpp=*/false); }
Context whole_stack() { return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, /*cpp=*/true); }

// What record_memory_history was last asked for that the allocator does not keep itself.
struct Recording {
  std::set<TraceEntry::Action> skipped;
  std::unique_ptr<c10::ApproximateClockToUnixTimeConverter> clock;
};

Recording& recording() {
  static auto* made = new Recording();
  return *made;
}

void check_option(const char* name, const std::string& value, const std::vector<std::string>& options) {
  std::ostringstream known;
  for (const std::string& option : options) {
    if (option == value) {
      return;
    }
    known << (known.tellp() > 0 ? ", " : "") << "'" << option << "'";
  }
  TORCH_CHECK_VALUE(false, name, " may be None or one of ", known.str(), ", but got '", value, "'");
}

// The arguments of torch.cuda.memory._record_memory_history.
void record_memory_history(
    const std::optional<std::string>& enabled, const std::optional<std::string>& context, const std::string& stacks,
    size_t max_entries, bool clear_history, const std::vector<std::string>& skip_actions) {
  if (!enabled.has_value()) {
    device_memory().record_history(RecordContext::NEVER, nullptr, 0, clear_history);
    return;
  }
  check_option("enabled", *enabled, {"state", "all"});
  check_option("stacks", stacks, {"python", "all"});
  // Without stacks the actions are kept all the same, so they are asked for with a gatherer that is not there.
  auto when = RecordContext::ALL;
  c10::CachingDeviceAllocator::CreateContextFn gather = nullptr;
  if (context.has_value()) {
    check_option("context", *context, {"state", "alloc", "all"});
    when = *context == "all" ? RecordContext::ALL : *context == "alloc" ? RecordContext::ALLOC : RecordContext::STATE;
    gather = stacks == "all" ? &whole_stack : &python_stack;
  }
  std::set<TraceEntry::Action> skipped;
  for (const std::string& action : skip_actions) {
    skipped.insert(c10::CachingDeviceAllocator::parseTraceEntryAction(action));
  }
  recording().skipped = std::move(skipped);
  if (recording().clock == nullptr) {
    recording().clock = std::make_unique<c10::ApproximateClockToUnixTimeConverter>();
  }
  // "state" needs no history; the allocator keeps at least one entry.
  device_memory().record_history(when, gather, *enabled == "state" ? 1 : max_entries, clear_history);
}

const char* name_of(TraceEntry::Action action) {
  switch (action) {
    case TraceEntry::ALLOC:
      return "alloc";
    case TraceEntry::FREE_REQUESTED:
      return "free_requested";
    case TraceEntry::FREE_COMPLETED:
      return "free_completed";
    case TraceEntry::SEGMENT_ALLOC:
      return "segment_alloc";
    case TraceEntry::SEGMENT_FREE:
      return "segment_free";
    case TraceEntry::SEGMENT_MAP:
      return "segment_map";
    case TraceEntry::SEGMENT_UNMAP:
      return "segment_unmap";
    case TraceEntry::SNAPSHOT:
      return "snapshot";
    case TraceEntry::OOM:
      return "oom";
  }
  return "unknown";
}

// Collects the places where a stack belongs, so that all stacks are symbolized together.
class Frames {
 public:
  void put(const py::dict& place, const Context& context) {
    if (auto* traceback = dynamic_cast<torch::CapturedTraceback*>(context.get())) {
      tracebacks_.push_back(traceback);
      places_.push_back(place);
    } else {
      place["frames"] = py::list();
    }
  }

  void symbolize() {
    const std::vector<py::object> frames = torch::py_symbolize(tracebacks_);
    for (size_t i = 0; i < frames.size(); ++i) {
      places_[i]["frames"] = frames[i];
    }
  }

 private:
  std::vector<torch::CapturedTraceback*> tracebacks_;
  std::vector<py::dict> places_;
};

py::dict to_dict(const BlockInfo& block, size_t address, Frames& frames) {
  py::dict result;
  result["address"] = address;
  result["size"] = block.size;
  result["requested_size"] = block.requested_size;
  result["state"] = block.allocated ? "active_allocated" : block.active ? "active_awaiting_free" : "inactive";
  frames.put(result, block.context_when_allocated);
  return result;
}

py::dict to_dict(const SegmentInfo& segment, Frames& frames) {
  py::dict result;
  result["device"] = static_cast<int>(segment.device);
  result["address"] = segment.address;
  result["total_size"] = segment.total_size;
  result["allocated_size"] = segment.allocated_size;
  result["active_size"] = segment.active_size;
  result["requested_size"] = segment.requested_size;
  result["stream"] = reinterpret_cast<uintptr_t>(segment.stream);
  result["segment_type"] = segment.is_large ? "large" : "small";
  result["segment_pool_id"] = segment.owner_private_pool_id;
  result["is_expandable"] = segment.is_expandable;
  frames.put(result, segment.context_when_allocated);
  py::list blocks;
  size_t address = segment.address;
  for (const BlockInfo& block : segment.blocks) {
    blocks.append(to_dict(block, address, frames));
    address += block.size;
  }
  result["blocks"] = blocks;
  return result;
}

py::dict to_dict(
    const TraceEntry& entry, const std::function<c10::time_t(c10::approx_time_t)>& to_unix, Frames& frames) {
  py::dict result;
  result["action"] = name_of(entry.action_);
  result[entry.action_ == TraceEntry::OOM ? "device_free" : "addr"] = entry.addr_;
  result["size"] = entry.size_;
  result["stream"] = reinterpret_cast<uintptr_t>(entry.stream_);
  result["time_us"] = to_unix(entry.time_.approx_t_) / 1000;
  result["pool_id"] = entry.mempool_;
  result["compile_context"] = entry.compile_context_;
  result["user_metadata"] = entry.user_metadata_;
  frames.put(result, entry.context_);
  return result;
}

// The layout that torch.cuda.memory._snapshot returns and PyTorch's memory viewer reads.
py::dict memory_snapshot(std::optional<c10::MempoolId_t> pool, bool include_traces) {
  std::vector<SegmentInfo> segments;
  std::vector<std::vector<TraceEntry>> traces(device_count());
  std::function<c10::time_t(c10::approx_time_t)> to_unix;
  c10::ApproximateClockToUnixTimeConverter* clock = recording().clock.get();
  {
    // A thread that allocates takes the GIL for its stack.
    py::gil_scoped_release no_gil;
    for (c10::DeviceIndex device = 0; initialized() && device < device_count(); ++device) {
      for (SegmentInfo& segment : device_memory().segments(device)) {
        if (!pool.has_value() || segment.owner_private_pool_id == *pool) {
          segments.push_back(std::move(segment));
        }
      }
      if (include_traces && clock != nullptr) {
        traces[device] = device_memory().trace(device);
      }
    }
    if (clock != nullptr) {
      to_unix = clock->makeConverter();
    }
  }

  Frames frames;
  py::list segment_list;
  for (const SegmentInfo& segment : segments) {
    segment_list.append(to_dict(segment, frames));
  }
  py::list trace_lists;
  for (const std::vector<TraceEntry>& trace : traces) {
    py::list entries;
    for (const TraceEntry& entry : trace) {
      if (recording().skipped.count(entry.action_) == 0) {
        entries.append(to_dict(entry, to_unix, frames));
      }
    }
    trace_lists.append(entries);
  }
  frames.symbolize();

  py::dict settings;
  settings["expandable_segments"] = false;
  settings["max_split_size"] = -1;
  settings["garbage_collection_threshold"] = 0.0;
  settings["roundup_power2_divisions"] = py::dict();
  py::dict result;
  result["segments"] = segment_list;
  result["device_traces"] = trace_lists;
  result["allocator_settings"] = settings;
  result["external_annotations"] = py::list();
  return result;
}

}  // namespace

void bind_memory_history(py::module_& m) {
  def(m, "record_memory_history", &record_memory_history);
  def(m, "memory_snapshot", &memory_snapshot);
}

}  // namespace torchneuron
