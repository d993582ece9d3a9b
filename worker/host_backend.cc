#include "worker/host_backend.h"

#include "kernels/cpu/cpu_backend.h"
#include "topology/host/cores.h"

namespace skein::worker {

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeHostBackend(int32_t threads) {
  return kernels::MakeCpuBackend({.threads = threads, .cores = topology::CoresOfThreads(threads)});
}

}  // namespace skein::worker
