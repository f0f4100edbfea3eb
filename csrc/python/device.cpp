#include "runtime/device.h"

#include "python/bindings.h"
#include "runtime/stream.h"
#include "runtime/topology.h"

#include <pybind11/stl.h>

namespace torchneuron {

namespace {

using InstanceRow = std::tuple<std::string, std::string, int, int, int, bool, uint64_t>;

void register_instances(const std::vector<InstanceRow>& rows) {
  std::vector<InstanceType> types;
  types.reserve(rows.size());
  for (const auto& [name, chip, chips, cores, lnc, lnc_selectable, hbm_bytes] : rows) {
    types.push_back({name, chip, chips, cores, lnc, lnc_selectable, hbm_bytes});
  }
  register_instance_types(std::move(types));
}

// (number on the instance, chip, bytes of HBM) of each device.
std::vector<std::tuple<int, int, uint64_t>> cores() {
  std::vector<std::tuple<int, int, uint64_t>> result;
  for (const LogicalCore& core : topology().cores) {
    result.emplace_back(core.id, core.chip_index, core.hbm_bytes);
  }
  return result;
}

}  // namespace

void bind_device(pybind11::module_& m) {
  def(m, "register_instances", &register_instances);
  def(m, "instance_name", [] { return topology().instance.name; });
  def(m, "lnc", [] { return topology().lnc; });
  def(m, "cores", &cores);

  // Of the two counts, the first explains a wrong environment and the second takes it for no device.
  def(m, "device_count", [] { return static_cast<int>(topology().cores.size()); });
  def(m, "device_count_or_zero", [] { return static_cast<int>(device_count()); });
  def(m, "check_device_index", &check_device_index);
  def(m, "current_device", [] { return static_cast<int>(current_device()); });
  def(m, "set_device", [](c10::DeviceIndex index) { set_current_device(index); });
  def(m, "exchange_device", [](c10::DeviceIndex index) { return static_cast<int>(exchange_device(index)); });

  def(m, "ensure_usable", [] { ensure_usable(); });
  def(m, "initialized", [] { return initialized(); });
  def(m, "in_bad_fork", [] { return in_bad_fork(); });

  def(m, "synchronize_device", [](c10::DeviceIndex index) { synchronize_device(index); });
  def(m, "finish_queued_work", [] { finish_queued_work(); });
  def(m, "abandon_queued_work", [] { abandon_queued_work(); });
}

}  // namespace torchneuron
