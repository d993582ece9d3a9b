#include "parallel/pipeline/pipeline_schedule.h"

#include "absl/strings/str_cat.h"

namespace skein::schedule {
namespace {

const char* Verb(Operation operation) {
  switch (operation) {
    case Operation::kReceiveActivations:
      return "receive the activations of";
    case Operation::kReceiveTokens:
      return "receive the tokens of";
    case Operation::kCompute:
      return "compute";
    case Operation::kSendActivations:
      return "send the activations of";
    case Operation::kSample:
      return "sample";
    case Operation::kSendTokens:
      return "send the tokens of";
    case Operation::kFlush:
      return "flush the activations of";
  }
  return "?";
}

}  // namespace

std::string ToString(const Instruction& instruction) {
  return absl::StrCat(Verb(instruction.operation), " step ", instruction.what.step,
                      ", micro-batch ", instruction.what.micro_batch);
}

std::vector<Instruction> StageStep(int32_t stages, int32_t stage, int64_t step,
                                   absl::Span<const MicroBatch> micro_batches) {
  const bool first = stage == 0;
  const bool last = stage == stages - 1;
  std::vector<Instruction> list;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const MicroBatchId self = {step, static_cast<int32_t>(i)};
    if (!first) list.push_back({Operation::kReceiveActivations, self});
    if (first && !last) {
      for (const MicroBatchId& source : micro_batches[i].feeds_on) {
        list.push_back({Operation::kReceiveTokens, source});
      }
    }
    list.push_back({Operation::kCompute, self});
    if (!last) list.push_back({Operation::kSendActivations, self});
    if (last && micro_batches[i].draws) {
      list.push_back({Operation::kSample, self});
      if (!first) list.push_back({Operation::kSendTokens, self});
    }
  }
  if (!last && !list.empty()) list.push_back({Operation::kFlush, list.back().what});
  return list;
}

Order MakeOrder(int32_t stages, int64_t step, absl::Span<const MicroBatch> micro_batches) {
  Order order;
  for (int32_t stage = 0; stage < stages; ++stage) {
    order.push_back(StageStep(stages, stage, step, micro_batches));
  }
  return order;
}

Schedule Decode(int32_t stages, int32_t micro_batches, int32_t steps) {
  Schedule schedule;
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<MicroBatch> rotation(micro_batches, MicroBatch{.feeds_on = {}, .draws = true});
    for (int32_t i = 0; step > 0 && i < micro_batches; ++i) rotation[i].feeds_on = {{step - 1, i}};
    schedule.push_back(MakeOrder(stages, step, rotation));
  }
  return schedule;
}

}  // namespace skein::schedule
