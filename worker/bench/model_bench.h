// What one device reaches on a whole model, without a scheduler: the steps alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/ops/backend.h"
#include "worker/bench/bench_device.h"

namespace skein::worker {

struct ModelBenchOptions {
  BenchDeviceOptions device;
  BenchRankOptions ranks;
  std::string model = "synthetic:llama3-1b";  // or a folder
  std::string json_file;                      // "": none
  double min_fraction = 0;                    // of its ceiling that each row reaches
  bool deterministic = false;                 // kernels::Program's
};

struct DecodeBenchOptions {
  ModelBenchOptions of;
  std::vector<int32_t> batches = {1};  // sequences that decode together: a row each
  int32_t prompt_tokens = 512;         // of each sequence, before the steps that are timed
  int32_t steps = 0;                   // 0: 512, on CPUs 16
  // Of keys and values; none: as they are computed.
  std::optional<kernels::KvDType> kv_dtype;
};

// Times steps of decoding: all layers, the output head and greedy draws, while contexts grow. A row
// is held against reading the weights, but the embedding table, and the keys and values of the mean
// context. On a GPU the next step is queued while one runs, as in serving. On a CPU plain reads of
// memory stand between the steps, and a row's share is the median over steps of their share of the
// reads around.
//
// Started by mpirun, its ranks are shards, stages and replicas. Replicas share a batch, and decode
// at once; a row's time is the longest of a rank that draws. The ceiling of a step is that of the
// stage that takes longest at the rates of its devices, all of its micro-batches taken together: it
// reads its weights for each of them.
//
// Rank 0 prints a report to standard output, progress to standard error where that is a terminal.
// FailedPrecondition when a row stays below min_fraction.
absl::Status RunDecodeBench(const DecodeBenchOptions& options);

struct PrefillBenchOptions {
  ModelBenchOptions of;
  std::vector<int32_t> prompt_tokens = {512};  // a row each
};

// Times prompts, from the order to the first token; of attention's operations the causal half
// counts. Stages compute a prompt one after the other, so that their operations are added up.
// Ranks are of one replica: InvalidArgument for more.
// Otherwise as RunDecodeBench.
absl::Status RunPrefillBench(const PrefillBenchOptions& options);

}  // namespace skein::worker
