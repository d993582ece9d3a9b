// What the leader tells its replica's ranks to do in one step, and what comes back: the messages
// on the control channel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops/sampling.h"
#include "worker/engine/request.h"

namespace skein::worker {

// A sequence's first step. Every rank keeps its pages; the sampling rank keeps the rest, too.
struct SequenceStart {
  RequestId id = 0;
  std::vector<int32_t> pages;
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
  kernels::SamplingParams sampling;
};

// tokens[i] stands at position begin + i. `sample`: the last row gives the next token.
struct ChunkOrder {
  RequestId id = 0;
  int64_t begin = 0;
  std::vector<int32_t> tokens;
  bool sample = false;
};

// `ended` sequences are forgotten before `started` ones are added.
struct StepOrder {
  int64_t step = 0;
  bool stop = false;  // the ranks leave their loops
  std::vector<RequestId> ended;
  std::vector<SequenceStart> started;
  std::vector<std::vector<ChunkOrder>> micro_batches;
};

struct SampledRow {
  RequestId id = 0;
  kernels::SampledToken token;
  std::string error;  // not empty: this sequence failed, `token` is void
};

// From the sampling rank after every step; from another rank only when it failed.
struct StepResult {
  int64_t step = 0;
  absl::Status status;
  std::vector<SampledRow> sampled;
};

std::string Encode(const StepOrder& order);
std::string Encode(const StepResult& result);
// Internal when the bytes are no such message.
absl::StatusOr<StepOrder> DecodeStepOrder(std::string_view bytes);
absl::StatusOr<StepResult> DecodeStepResult(std::string_view bytes);

}  // namespace skein::worker
