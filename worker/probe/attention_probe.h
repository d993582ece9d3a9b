// Measures what contexts cost a device: attention of decodes, each of which reads its own keys and
// values.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "topology/rates.h"
#include "worker/bench/bench_device.h"
#include "worker/probe/probe_hooks.h"

namespace skein::worker {

struct AttentionProbeOptions {
  // Of keys and values, on CPUs: they take up to as many, 256 MiB at most, or 0.5 MiB a sequence,
  // of which there are up to as many as threads.
  int64_t most_bytes = 0;
  ProbeHooks hooks;
};

struct ProbedAttention {
  // As topology::DeviceRates has them: of a GPU by rows; of one core, of which `device.threads`
  // work together, by working set.
  std::vector<topology::AttentionRate> rates;
  double spread = 0;
};

// Takes as much memory and a second, or 3 GiB of a GPU's. Errors are those of the back end.
absl::StatusOr<ProbedAttention> ProbeAttention(BenchDevice& device,
                                               const AttentionProbeOptions& options);

}  // namespace skein::worker
