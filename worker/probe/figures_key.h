// What the figures of a job's host depend on, as the key under which they are kept.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/topology.h"
#include "worker/device_comm.h"

namespace skein::worker {

struct FiguresOf {
  std::string_view version;              // of Skein
  int edition = 0;                       // of what is measured, and how
  const topology::Host* host = nullptr;  // this one, with the GPUs of its ranks
  std::string kernel;
  std::string driver;  // of GPUs
  int local_ranks = 0;
  int ranks = 0;
  DeviceComm device_comm = DeviceComm::kAuto;
  // The way to other hosts; not read where there are none.
  std::vector<std::string> hosts;  // of all ranks, this one among them
  std::vector<topology::Nic> nics;
  std::string networks;  // that the user has chosen for MPI and NCCL
};

// One line. Pure.
std::string FiguresKey(const FiguresOf& of);

}  // namespace skein::worker
