// Measures what the sums of shards take in the very steps that have them.
//
// A GPU's steps of few rows are one kernel, in which a sum takes less than between kernels of a
// Program of sums. So a model decodes in shards, and so does each shard alone, as a model of its
// size: what the first takes longer is its sums. Ranks that share a core compute in turn, from sum
// to sum, and each of them for longer than it does alone: that is of their sums, too.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/plan/plan.h"
#include "topology/rates.h"
#include "worker/bench/bench_device.h"
#include "worker/device_comm.h"

namespace skein::worker {

// Whether shards of so many ranks have a whole number of the model's heads.
bool CanProbeSums(int ranks);

// Of a shard on cores, of 1.7 MB each: three times what a core has of its own, which keeps none of
// them from step to step then; 3 MB at least, 27 at most.
int32_t CpuLayersOfShard(int64_t core_cache_bytes);

struct SumProbeOptions {
  plan::Plan plan;  // of groups of shards (group_plan.h)
  int ranks = 2;    // of each group
  // Of cores: whether this rank has one to itself while others of its host wait, and how many ranks
  // take turns on one while they compute. The first rank of a host has one.
  bool has_core = true;
  double ranks_of_a_core = 1;
  int64_t core_cache_bytes = 0;  // of a core's own cache; of all ranks the most counts
  DeviceComm device_comm = DeviceComm::kAuto;
};

// What a sum takes, by bytes: of some numbers of rows, ascending. A call of all ranks; of those
// that are in no group, and of those without a core, the result is empty. Takes 6 GiB of a GPU's
// memory and a second, of cores some tenths of one. Errors are those of the steps.
absl::StatusOr<topology::ExchangeCurve> ProbeSums(comm::MpiRuntime& mpi, BenchDevice& device,
                                                  const SumProbeOptions& options);

// Has the sums of such groups of one host take what they do in steps, up to as many bytes. Pure.
void SetSumsOfSteps(const topology::ExchangeCurve& of_steps,
                    std::vector<topology::ExchangeCurve>& curves);

}  // namespace skein::worker
