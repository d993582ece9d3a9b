// Finds out what topology::RankFacts has of this process and its host. Changes nothing.
#pragma once

#include <string>
#include <vector>

#include "topology/doctor/facts.h"
#include "topology/host/detect.h"

namespace skein::worker {

struct GatherOptions {
  std::string model;  // a folder, or synthetic:NAME; empty: none is looked at
  int port = 0;       // that a coordinator is to listen on; 0: nobody asks
  bool cards = true;  // also the host's GPUs and network cards
  topology::DetectOptions detect;
};

// All but rank, clock and operations_per_s. What cannot be read is said in the facts, or not told.
// Reads the model's headers and some hundred small files.
topology::RankFacts GatherFacts(const GatherOptions& options);

}  // namespace skein::worker
