#include "worker/engine/stage.h"

#include <cstddef>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "kernels/ops/batch.h"

namespace skein::worker {
namespace {

comm::ConstBytes BytesOf(const ConstView& view) {
  return {static_cast<const std::byte*>(view.data), static_cast<size_t>(view.bytes())};
}

comm::Bytes BytesOf(const View& view) {
  return {static_cast<std::byte*>(view.data), static_cast<size_t>(view.bytes())};
}

int64_t Rows(const StepOrder& order) {
  int64_t rows = 0;
  for (const auto& chunks : order.micro_batches) {
    for (const ChunkOrder& chunk : chunks) rows += chunk.rows();
  }
  return rows;
}

}  // namespace

Stage::Stage(const StageOptions& options, const kernels::Program& program,
             kernels::Executable* executable)
    : options_(options),
      program_(program),
      executable_(executable),
      batches_({.page_size = options.page_size,
                .embeds = is_first(),
                .has_logits = is_last(),
                .kv = options.kv,
                .swap = options.swap}),
      tokens_(
          {.tensor = options.tensor, .pipeline = options.pipeline, .group = options.groups.tokens}),
      sampler_(options.observe_logits) {}

void Stage::Abort(const absl::Status& why) {
  for (comm::Communicator* const group : options_.groups.All()) group->Abort(why);
}

// ---- A micro-batch ----

absl::Status Stage::Receive(int64_t rows) {
  if (is_first()) return absl::OkStatus();
  const View activations = executable_->port(program_.input).First(rows);
  return options_.groups.previous->Receive(BytesOf(activations), 0, kHostStream);
}

absl::Status Stage::Send(int64_t rows) {
  if (is_last()) return absl::OkStatus();
  const ConstView activations = executable_->port(program_.output).First(rows);
  return options_.groups.next->Send(BytesOf(activations), 1, kHostStream);
}

absl::Status Stage::Compute(const schedule::MicroBatchId& id,
                            const std::vector<ChunkOrder>& chunks) {
  SKEIN_ASSIGN_OR_RETURN(
      const kernels::Batch batch,
      batches_.Fill(chunks, [this](SequenceId sequence) { return tokens_.Newest(sequence); }));
  const absl::Time begin = absl::Now();
  SKEIN_RETURN_IF_ERROR(executable_->Run(batch));
  if (options_.trace) {
    options_.trace({id.step, options_.stage, id.micro_batch, begin, absl::Now()});
  }
  if (is_first() && !samples()) tokens_.Expect(id, chunks);
  return absl::OkStatus();
}

void Stage::Sample(const std::vector<ChunkOrder>& chunks, StepResult* result) {
  const View logits = executable_->port(program_.logits);
  const auto row_of = [&](int64_t row) {
    return absl::MakeConstSpan(static_cast<const float*>(logits.data) + row * logits.cols,
                               options_.vocab_size);
  };
  tokens_.Take(chunks, sampler_.Sample(chunks, row_of, *executable_, *result));
}

absl::Status Stage::CarryOut(const schedule::Instruction& instruction,
                             const std::vector<ChunkOrder>& chunks, StepResult* result) {
  using schedule::Operation;
  int64_t rows = 0;
  for (const ChunkOrder& chunk : chunks) rows += chunk.rows();
  switch (instruction.operation) {
    case Operation::kReceiveActivations:
      return Receive(rows);
    case Operation::kReceiveTokens:
      return tokens_.Receive();
    case Operation::kCompute:
      return Compute(instruction.what, chunks);
    case Operation::kSendActivations:
      return Send(rows);
    case Operation::kSample:
      if (!samples()) return absl::OkStatus();
      Sample(chunks, result);
      // One stage's list moves nothing, but its other shards need the tokens.
      return options_.pipeline == 1 ? tokens_.Send() : absl::OkStatus();
    case Operation::kSendTokens:
      return samples() ? tokens_.Send() : absl::OkStatus();
    case Operation::kFlush:
      return options_.groups.next->Flush(1);
  }
  return absl::OkStatus();
}

// ---- The step ----

std::vector<schedule::MicroBatch> Stage::PlanMicroBatches(const StepOrder& order) const {
  std::vector<std::vector<schedule::MicroBatchId>> feeds_on = tokens_.FeedsOn(order);
  std::vector<schedule::MicroBatch> micro_batches;
  for (size_t i = 0; i < order.micro_batches.size(); ++i) {
    const bool samples = absl::c_any_of(
        order.micro_batches[i], [](const ChunkOrder& chunk) { return chunk.outputs() > 0; });
    micro_batches.push_back({.feeds_on = std::move(feeds_on[i]), .samples = samples});
  }
  return micro_batches;
}

absl::Status Stage::RunOrder(const StepOrder& order, StepResult* result) {
  if (options_.watch != nullptr) options_.watch->Begin(order.step, Rows(order));
  if (samples()) SKEIN_RETURN_IF_ERROR(sampler_.Update(order));
  SKEIN_RETURN_IF_ERROR(batches_.Update(order));
  SKEIN_RETURN_IF_ERROR(tokens_.BeginStep(order));
  for (const schedule::Instruction& instruction : schedule::StageStep(
           options_.pipeline, options_.stage, order.step, PlanMicroBatches(order))) {
    // Tokens that are received are another step's.
    static const std::vector<ChunkOrder> kNone;
    const bool own = instruction.operation != schedule::Operation::kReceiveTokens;
    SKEIN_RETURN_IF_ERROR(CarryOut(
        instruction, own ? order.micro_batches[instruction.what.micro_batch] : kNone, result));
  }
  tokens_.EndStep();
  if (options_.watch != nullptr) options_.watch->End();
  return absl::OkStatus();
}

StepResult Stage::Run(const StepOrder& order) {
  StepResult result{.step = order.step};
  result.status = RunOrder(order, &result);
  return result;
}

}  // namespace skein::worker
