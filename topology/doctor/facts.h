// What a rank's process and host say of themselves before anything is loaded, as ranks send it to
// who holds them against each other. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::topology {

// One for each address of IPv4, or one without where an interface has none.
struct InterfaceFacts {
  std::string name;     // "eth0"
  std::string address;  // "10.77.0.2"
  int32_t prefix = 0;   // bits of it that its network has
  bool up = false;
  bool loopback = false;
};

// A GPU or a network card.
struct CardFacts {
  std::string name;                    // "GPU0", "mlx5_0"
  int64_t ecc_errors = 0;              // of memory, since boot, that could not be corrected
  std::vector<std::string> slowed_by;  // as GpuHealth
  int32_t nvlinks_down = 0;
  int32_t pcie_width = 0;  // lanes, now and at most; 0: not told
  int32_t most_pcie_width = 0;
  double bytes_per_s = 0;  // of a network card; 0: not told
  bool rdma = false;       // it reads and writes memory by itself
};

// The way between two hosts, as messages go over MPI.
struct WayFacts {
  int32_t rank = 0;  // the other host's first one
  double latency_us = 0;
  double bytes_per_s = 0;
};

struct RankFacts {
  int32_t rank = 0;
  std::string host;
  std::string boot;     // of the kernel: two hosts of one name have unlike ones; empty: not told
  std::string version;  // of Skein
  std::string model;    // ComputeModelIdentity's; empty: no model was asked for
  std::string model_path;
  std::string no_model;      // why there is none
  double clock_s = 0;        // seconds since 1970, when all ranks had met; 0: they did not
  int64_t shm_bytes = -1;    // of /dev/shm, free; -1: not told
  int64_t free_bytes = 0;    // of the host's memory; 0: not told
  int64_t memory_bytes = 0;  // of it, what cgroups leave to its ranks
  // Limits of the process; -1: none.
  int64_t memlock_bytes = -1;
  int64_t open_files = -1;
  int32_t cores = 0;            // that it may use, as affinity and cgroups allow
  double operations_per_s = 0;  // of one of them, while all ranks compute
  std::vector<InterfaceFacts> interfaces;
  std::string own_address;  // that the host's name stands for there; empty: for none
  // Of the environment, what says which interfaces are used.
  std::map<std::string, std::string> settings;
  int32_t port = 0;              // that a coordinator is to listen on; 0: this rank was not asked
  std::string port_taken;        // why it cannot
  std::vector<CardFacts> cards;  // of the host's first rank
  std::string no_gpus;           // why they cannot be asked
  // As ranks tried it together; nothing where they did not.
  std::vector<WayFacts> ways;  // from a host's first rank to those of hosts behind it
  double nccl_bytes_per_s =
      0;                 // of a large sum over all ranks' GPUs, of its bytes; 0: none was made
  std::string no_nccl;   // why GPUs do not exchange over NCCL
  std::string no_peers;  // why GPUs of this host do not write into each other's memory
};

// In one line.
std::string FactsToJson(const std::vector<RankFacts>& ranks);
// InvalidArgument for what is none, or was written by another version in another way.
absl::StatusOr<std::vector<RankFacts>> FactsFromJson(const std::string& json);

}  // namespace skein::topology
