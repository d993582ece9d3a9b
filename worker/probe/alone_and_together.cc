#include "worker/probe/alone_and_together.h"

#include "base/status_macros.h"
#include "parallel/comm/gather_strings.h"

namespace skein::worker {

absl::Status AloneThenTogether(comm::MpiRuntime& mpi, const BenchDevice& device, BenchRanks& ranks,
                               bool idle, absl::FunctionRef<absl::Status(BenchRanks&)> alone,
                               absl::FunctionRef<absl::Status(BenchRanks&)> together) {
  absl::Status status;
  if (!idle) {
    const auto nobody = BenchRanks::Start({});
    status = nobody.ok() ? alone(**nobody) : nobody.status();  // the others wait for what it was
  }
  SKEIN_RETURN_IF_ERROR(comm::FirstError(mpi.world(), status));
  status = idle ? ranks.Connect(device.device, /*deterministic=*/false) : together(ranks);
  return comm::FirstError(mpi.world(), status);
}

}  // namespace skein::worker
