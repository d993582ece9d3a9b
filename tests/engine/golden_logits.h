// The logits of transformers in float32 that tests/golden/make_goldens.py made, and what Skein
// makes of the same tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops/backend.h"
#include "kernels/packing/layout.h"
#include "parallel/plan/plan.h"

namespace skein::worker {

using Rows = std::vector<std::vector<float>>;

struct GoldenCase {
  std::string model;           // folder
  int64_t context_length = 0;  // LocalReplicaOptions'
  std::vector<int32_t> prompt;
  std::vector<int32_t> decode;  // fed, one a step
  Rows logits;                  // of the prompt's end and of each decode step
};

// All of tests/golden/logits.json, of Llamas; fails the test where it cannot be read.
std::vector<GoldenCase> ReadGoldenCases();
// All of tests/golden/architectures.json, of the others.
std::vector<GoldenCase> ReadArchitectureCases();
// All of tests/golden/quantized.json, of quantised checkpoints.
std::vector<GoldenCase> ReadQuantizedCases();

// ||got - want|| / ||want||; infinite when a value is not finite.
double RelativeError(const std::vector<float>& got, const std::vector<float>& want);
// The largest of the rows'; infinite when their numbers differ.
double RelativeError(const Rows& got, const Rows& want);

struct GoldenRun {
  plan::Layout layout;  // one shard where the model's KV heads can be neither split nor repeated
  kernels::KvDType kv_dtype = kernels::KvDType::kF32;
  bool exact = false;                                               // kernels::Program's
  std::function<std::unique_ptr<kernels::Backend>()> make_backend;  // one a rank
};
// The rows that `golden` has logits of.
absl::StatusOr<Rows> RunGoldenCase(const GoldenCase& golden, const GoldenRun& run);

}  // namespace skein::worker
