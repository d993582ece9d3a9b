// Measures how long drawn tokens take from a pipeline's last stage to its first one.
//
// A model in two stages decodes. What a step takes beyond both stages, each alone, and beyond a
// message between them, is the way of its tokens: the last stage hears that a batch is over, its
// host tells the first stage's host, and that begins the next batch.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/plan/plan.h"
#include "topology/rates.h"
#include "worker/bench/bench_device.h"
#include "worker/device_comm.h"

namespace skein::worker {

struct TokenProbeOptions {
  plan::Plan plan;  // of pairs of stages (group_plan.h)
  DeviceComm device_comm = DeviceComm::kAuto;
  topology::LinkRate hop;  // between two stages
};

// A call of all ranks. Each rank of a pair gets its curve, as it saw it, others an empty one. Takes
// 1 GiB of a GPU's memory and a second. Errors are those of the model's steps.
absl::StatusOr<topology::ExchangeCurve> ProbeTokenReturn(comm::MpiRuntime& mpi, BenchDevice& device,
                                                         const TokenProbeOptions& options);

}  // namespace skein::worker
