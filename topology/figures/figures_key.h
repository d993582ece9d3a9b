// What the figures of a job's host depend on, as the key under which they are kept.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/topology.h"

namespace skein::topology {

struct FiguresOf {
  std::string_view version;    // of Skein
  int edition = 0;             // of what is measured, and how
  const Host* host = nullptr;  // this one, with the GPUs of its ranks
  std::string kernel;
  std::string driver;  // of GPUs
  int local_ranks = 0;
  int ranks = 0;
  std::string_view device_comm = "auto";  // as ranks are asked for it
  // The way to other hosts; not read where there are none.
  std::vector<std::string> hosts;  // of all ranks, this one among them
  std::vector<Nic> nics;
  std::string networks;  // that the user has chosen for MPI and NCCL
};

// What figures of this host depend on, by what this version measures of a job that is on it alone:
// `ranks`, on the GPUs of `host`, or on cores where it has none. `host` outlives it.
FiguresOf FiguresOfThisHost(const Host& host, int ranks);

// One line. Pure.
std::string FiguresKey(const FiguresOf& of);

}  // namespace skein::topology
