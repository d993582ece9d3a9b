// Runs what ranks of a group take alone, then what they take together: by the difference probes
// tell what they exchange.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "worker/bench/bench_device.h"
#include "worker/bench/bench_ranks.h"

namespace skein::worker {

// `alone` gets ranks that are nobody's, `together` those of `ranks`; a rank that is `idle` in these
// has no part in either, and connects as the others do. A call of all ranks; its error is the same
// on all.
absl::Status AloneThenTogether(comm::MpiRuntime& mpi, const BenchDevice& device, BenchRanks& ranks,
                               bool idle, absl::FunctionRef<absl::Status(BenchRanks&)> alone,
                               absl::FunctionRef<absl::Status(BenchRanks&)> together);

}  // namespace skein::worker
