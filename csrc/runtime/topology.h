#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

namespace torchneuron {

// One row of torchneuron/trainium/instances.py, handed over when the package loads.
struct InstanceType {
  std::string name;
  std::string chip;  // "trn1", "inf2", "trn2", "trn3"
  int chips;         // chips that one host of this instance sees
  int physical_cores_per_chip;
  int default_lnc;  // physical NeuronCores that form one logical core
  bool lnc_selectable;
  uint64_t hbm_bytes_per_chip;
};

// One logical NeuronCore, i.e. one `neuron:i`.
struct LogicalCore {
  int id;  // number among all the instance's logical cores
  int chip_index;
  uint64_t hbm_bytes;
};

struct Topology {
  InstanceType instance;
  int lnc;
  std::vector<LogicalCore> cores;  // in the order of `neuron:0 … N-1`
  int local_rank;                  // of this process on its host; 0 where it is the only one
  std::string tensor_engine;       // "measured", "onednn" or "mkl": what computes matrix products
};

void register_instance_types(std::vector<InstanceType> types);

// Reads TORCHNEURON_INSTANCE, NEURON_LOGICAL_NC_CONFIG, NEURON_RT_VISIBLE_CORES, NEURON_RT_NUM_CORES, LOCAL_RANK and
// TORCHNEURON_TENSOR_ENGINE, once.
// Throws c10::ValueError that names the variable and its allowed values.
const Topology& topology();

// Number of visible cores; 0 where topology() throws. Never throws.
c10::DeviceIndex device_count() noexcept;

}  // namespace torchneuron
