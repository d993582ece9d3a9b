// Times launches, and holds them against what the device gives at best.
//
// A figure is a CUDA graph of many launches, each on another set of operands, so that none of them
// finds its bytes in the L2 cache (64 sets at most: what is tiny stays there); the time is the
// median over replays, divided by the launches. Launches overlap as they do in a step, where
// kernels allow it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/bench/report.h"
#include "base/stream.h"
#include "kernels/cuda/blas_linear.h"
#include "kernels/cuda/device_testing.h"

namespace skein::kernels::cuda {

// Memory of random bf16 numbers.
DeviceBytes RandomBytes(int64_t bytes, Stream stream);

class Bench {
 public:
  // Only rows whose name holds `only`.
  explicit Bench(std::string only);

  Stream stream() const { return stream_; }
  Blas& blas() { return *blas_; }
  int32_t multiprocessors() const { return multiprocessors_; }
  bool Wants(const std::string& name) const { return name.find(only_) != std::string::npos; }

  // Sets of operands of so many bytes each that together are larger than the cache.
  static int Sets(int64_t bytes);
  // Seconds of one launch.
  double Time(const std::function<absl::Status(int set)>& enqueue, int sets);
  // First.
  void MeasureCeilings();
  // A row, which is printed.
  void Add(const std::string& name, double bytes, double operations, double seconds);
  const BenchReport& report() const { return *report_; }

 private:
  std::string only_;
  OwnStream stream_;
  int32_t multiprocessors_ = Multiprocessors();
  DeviceBytes workspace_;
  std::unique_ptr<Blas> blas_;
  Ceilings ceilings_;
  std::optional<BenchReport> report_;
};

}  // namespace skein::kernels::cuda
