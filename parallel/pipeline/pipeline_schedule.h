// Lists of what every stage of a pipeline does, one instruction after the other. The engine walks
// them, so that what is tested for deadlock, order and bubble is what runs. Pure; any thread.
//
// Prefill follows GPipe (Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks
// using Pipeline Parallelism"), forward only: chunks follow each other and wait for nothing but
// the stage before. Decode rotates: micro-batch m of a step needs the tokens that micro-batch m of
// the step before sampled, so that stage 0 begins a step while later stages still end the last.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace skein::schedule {

// A send leaves its data to be carried while the stage goes on; a receive blocks. A flush ends a
// step's list, since the next order may be long in coming and some transports carry large messages
// with the sender's help only: it waits until the next stage has taken the step's last activations,
// which it does when it begins with them. Activations go from each stage to the next, tokens from
// the last straight to the first. A pipeline of one stage moves nothing: its tokens are where they
// are needed.
enum class Operation {
  kReceiveActivations,
  kReceiveTokens,
  kCompute,
  kSendActivations,
  kSample,
  kSendTokens,
  kFlush,  // behind the last activations of a step
};

struct MicroBatchId {
  int64_t step = 0;
  int32_t micro_batch = 0;

  friend bool operator==(const MicroBatchId&, const MicroBatchId&) = default;
};

struct Instruction {
  Operation operation = Operation::kCompute;
  MicroBatchId what;  // is computed, sampled or moved; tokens are those that it sampled

  friend bool operator==(const Instruction&, const Instruction&) = default;
};

// "receive the tokens of step 3, micro-batch 1"
std::string ToString(const Instruction& instruction);

// A micro-batch of a step, as far as the lists depend on it.
struct MicroBatch {
  // Stage 0 takes in the tokens of these before it computes this micro-batch: those that its
  // sequences go on with, and those that nobody needs any more (their sequences ended), since what
  // was sent must be taken, in the order in which it was sampled.
  std::vector<MicroBatchId> feeds_on;
  bool draws = false;  // some row of it gives a token
};

// One stage's list for one step. A send stands right behind what makes its data, so that it
// overlaps the next micro-batch. 0 <= stage < stages.
std::vector<Instruction> StageStep(int32_t stages, int32_t stage, int64_t step,
                                   absl::Span<const MicroBatch> micro_batches);

using Order = std::vector<std::vector<Instruction>>;  // one step's lists, by stage
using Schedule = std::vector<Order>;                  // every stage carries out one after the other

Order MakeOrder(int32_t stages, int64_t step, absl::Span<const MicroBatch> micro_batches);

// Steps 0 to steps - 1. The first feeds on nothing, as behind a prefill whose tokens are there.
Schedule Decode(int32_t stages, int32_t micro_batches, int32_t steps);

}  // namespace skein::schedule
