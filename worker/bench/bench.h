// What this machine reaches on one model, held against its memory's read bandwidth.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/device_kind.h"

namespace skein::worker {

struct BenchOptions {
  std::optional<DeviceKind> device;           // none: a GPU where there is one
  std::string model = "synthetic:llama3-1b";  // or a folder
  int threads = 0;                            // 0: the cores that this process may use
  int batch = 1;
  int prompt_tokens = 128;
  int decode_tokens = 16;
  double min_read_fraction = 0.0;
};

// Prints a report to standard output, progress to standard error where that is a terminal.
// FailedPrecondition when decoding stays below min_read_fraction.
absl::Status RunBench(const BenchOptions& options);

}  // namespace skein::worker
