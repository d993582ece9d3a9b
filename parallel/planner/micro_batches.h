// Counts the micro-batches that a plan's steps spread decodes over. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/config/model_config.h"
#include "parallel/pipeline/predict.h"
#include "parallel/plan/plan.h"
#include "topology/machine.h"

namespace skein::plan {

// Speeds of ranks and of the ways between stages, before anything is measured: the defaults are
// small servers'. Arithmetic is not weighed, since reading binds the few rows that decode.
struct PipelineRates {
  double read_bytes_per_s = 10e9;  // of one rank
  // The time of one message from a stage to the next. 0 stands for kHopInHost, or for
  // kHopBetweenHosts where a pipeline of the layout leaves a node.
  absl::Duration hop;
};

// Times of a message of some 100 KiB through shared memory, and through TCP over 10 Gb/s Ethernet.
inline constexpr absl::Duration kHopInHost = absl::Microseconds(20);
inline constexpr absl::Duration kHopBetweenHosts = absl::Microseconds(200);

// The rates that ChooseMicroBatches weighs by.
schedule::Rates RatesOf(const PipelineRates& rates, const topology::Machine& machine,
                        const Plan& plan);

// The work of the stages of `plan` for a token in the middle of its context.
std::vector<schedule::StageWork> DecodeWork(const Plan& plan, const model::ModelConfig& model);

struct MicroBatchCount {
  int32_t count = 1;
  std::string reason;  // a sentence; empty with one stage
};

// Counts for steady decode with all sequences of `plan`, whose micro_batches are not read. P stages
// get P or P + 1, one stage 1, and none more than max_num_seqs. InvalidArgument for rates that are
// none.
absl::StatusOr<MicroBatchCount> CountMicroBatches(const PipelineRates& rates,
                                                  const topology::Machine& machine,
                                                  const model::ModelConfig& model,
                                                  const Plan& plan);

}  // namespace skein::plan
