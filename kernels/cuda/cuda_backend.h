// The back end of NVIDIA GPUs: weights and activations of BF16 or F16.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops/backend.h"

namespace skein::kernels {

// What CUDA says of a GPU.
struct CudaDevice {
  std::string name;         // "NVIDIA H200"
  std::string pci_address;  // "0000:9A:00.0"
  int64_t memory_bytes = 0;
  // To this process: what nobody has, and what it has for its own context by now (kContextBytes).
  int64_t free_bytes = 0;
};

// All of these open libskein_cuda.so when they are first called (open_library.h), and fail with
// Unimplemented where there is none, with FailedPrecondition where it cannot be used.

// The GPUs that this process sees, by CUDA's numbers: the UUID of each, by which processes that
// number them otherwise know it again; none where it sees none. FailedPrecondition for a driver
// that is older than what the library was built for.
absl::StatusOr<std::vector<std::string>> ListCudaDevices();
// `device` is such a number. FailedPrecondition for one that there are no kernels for, with what
// was found and what is needed.
absl::StatusOr<CudaDevice> DescribeCudaDevice(int device);

// How batches of up to 16 rows are computed: by the graphs of larger ones, or by one kernel that
// runs a whole step, where it can; whichever was faster in WarmUp, by counts of rows.
enum class DecodeForm : uint8_t { kAuto, kGraph, kPersistent };

// What steps of a stage leave to the kernels of its two hops, which wait on the device for another
// stage. Blocks of a step wait for one another: were hops to keep more from it, the step might wait
// for them while they wait for what depends on it.
inline constexpr int32_t kHopMultiprocessors = 4;

struct CudaOptions {
  int device = 0;
  int threads = 1;  // that draw tokens
  // The first batches of each executable: launched kernel by kernel, with ranges of NVTX by layer
  // and operation, which the replay of a captured graph has none of.
  int profile_steps = 0;
  std::function<void()> profile_ended;  // when the last of them was enqueued; may be null
  DecodeForm decode = DecodeForm::kAuto;
  // Told once in WarmUp how small batches will be computed, and why, as a sentence without its end.
  // May be null.
  std::function<void(std::string_view)> remark;
  // Told what WarmUp does from now on: "capturing the graph of 64 rows". May be null.
  std::function<void(std::string_view)> warming_up;
};

// Errors as DescribeCudaDevice's.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaOptions& options);

}  // namespace skein::kernels
