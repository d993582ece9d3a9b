// Small models with random weights, by whose steps probes tell what devices do.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "model/config/model_config.h"
#include "worker/bench/bench_device.h"
#include "worker/bench/bench_model.h"
#include "worker/bench/bench_ranks.h"
#include "worker/probe/probe_hooks.h"

namespace skein::worker {

struct ProbeShape {
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t layers = 0;
  int64_t queries_of_key = 4;
};

// Layers of an 8B, which keep a GPU busy.
inline constexpr ProbeShape kShapeOf8B = {
    .hidden = 4096, .intermediate = 14336, .heads = 32, .head_dim = 128, .layers = 2};

model::ModelConfig ConfigOf(const ProbeShape& shape, DType dtype);

// Points are measured in so many rounds: what else a host does delays steps by hundreds of
// microseconds, for tenths of seconds.
inline constexpr int kRounds = 3;

struct StepTime {
  double seconds = 0;  // the median
  double context = 0;  // positions that a row attended to, on average
  int samples = 0;
  double spread = 0;  // of the samples, as topology::DeviceRates has it
};

struct ProbeSizes {
  int32_t sequences = 1;  // at once
  int32_t rows = 1;       // of a step, at most
  int32_t context = 0;    // of a sequence, before the steps that are timed
};

// Times steps of models on one rank's device. `device` outlives it.
class StepTimer {
 public:
  static absl::StatusOr<StepTimer> Start(BenchDevice& device, ProbeHooks hooks);

  bool is_gpu() const { return device_.is_gpu(); }

  // What is measured next.
  void Say(std::string_view what) const;

  absl::StatusOr<std::unique_ptr<BenchModel>> Load(const ProbeShape& shape, DType dtype,
                                                   const ProbeSizes& sizes);

  // Decodes `sequences` that begin with so many positions of whatever their pages hold; 0 samples:
  // as many as are worth it.
  absl::StatusOr<StepTime> Decodes(BenchModel& model, int32_t sequences, int32_t positions = 0,
                                   int samples = 0);
  // A prompt at once.
  absl::StatusOr<StepTime> Prompt(BenchModel& model, int32_t tokens);

 private:
  StepTimer(BenchDevice& device, ProbeHooks hooks) : device_(device), hooks_(std::move(hooks)) {}
  int SamplesFor(absl::Duration one) const;

  BenchDevice& device_;
  const ProbeHooks hooks_;
  std::unique_ptr<BenchRanks> alone_;
};

}  // namespace skein::worker
