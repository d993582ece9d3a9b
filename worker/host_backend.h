// The back end of cores, as ranks, probes and benches make it.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops/backend.h"

namespace skein::worker {

// Its threads keep to a core each where the calling one may use just as many
// (topology::CoresOfThreads). Errors: kernels::MakeCpuBackend's.
absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeHostBackend(int32_t threads);

}  // namespace skein::worker
