#include "worker/engine/stage.h"

#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "kernels/ops/batch.h"

namespace skein::worker {
namespace {

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
      tokens_({.tp_size = options.tp_size,
               .slots = options.slots,
               .group = options.groups.tokens,
               .executable = executable}) {}

void Stage::Abort(const absl::Status& why) {
  executable_->Abort(why);
  for (comm::Communicator* const group : options_.groups.All()) group->Abort(why);
}

absl::Status Stage::WarmUp() {
  SKEIN_RETURN_IF_ERROR(executable_->WarmUp());
  const auto over_devices = [](comm::Communicator* hop) {
    return hop != nullptr && hop->uses_device();
  };
  if (over_devices(options_.groups.previous)) SKEIN_RETURN_IF_ERROR(Receive(1));
  return over_devices(options_.groups.next) ? Send(1) : absl::OkStatus();
}

// ---- Batches ----

// Batches take turns, so that what one sends is on its way while the other is filled.
absl::Status Stage::TakeBatch(const schedule::MicroBatchId& what) {
  if (in_hand_ == what) return absl::OkStatus();
  in_hand_ = what;
  batch_ = (batch_ + 1) % kernels::Executable::kBatches;
  while (absl::c_any_of(running_, [this](const Running& r) { return r.batch == batch_; })) {
    SKEIN_RETURN_IF_ERROR(Collect(absl::InfiniteFuture()).status());
  }
  return absl::OkStatus();
}

// The order's changes go with its first batch.
void Stage::Fill(StepOrder& order, const std::vector<ChunkOrder>& chunks) {
  kernels::Batch& batch = executable_->batch(batch_);
  batch.Clear();
  batch.step = order.step;
  batch.starts = std::exchange(order.starts, {});
  batch.copies = std::exchange(order.copies, {});
  batch.updates = std::exchange(order.updates, {});
  for (const ChunkOrder& chunk : chunks) {
    batch.sequences.push_back({.slot = chunk.slot,
                               .rows = static_cast<int32_t>(chunk.rows()),
                               .outputs = static_cast<int32_t>(chunk.outputs()),
                               .draws = chunk.draws,
                               .prompt_logprobs = chunk.prompt_logprobs,
                               .pooled = chunk.pooled});
    batch.token_ids.insert(batch.token_ids.end(), chunk.tokens.begin(), chunk.tokens.end());
  }
}

absl::Status Stage::Compute(const schedule::MicroBatchId& what, StepOrder& order,
                            const std::vector<ChunkOrder>& chunks, Step& step) {
  SKEIN_RETURN_IF_ERROR(TakeBatch(what));
  if (options_.pp_size > 1 && is_first()) SKEIN_RETURN_IF_ERROR(tokens_.Await(chunks));
  Fill(order, chunks);
  const absl::Time begin = absl::Now();
  SKEIN_ASSIGN_OR_RETURN(const kernels::Ticket ticket, executable_->Enqueue(batch_));
  running_.push_back({ticket, batch_, what, begin, &step});
  ++step.batches;
  if (options_.pp_size > 1 && is_first()) tokens_.Expect(what, chunks);
  // Results that are there free their batch. Nothing waits for one, since the next instruction may
  // be what a peer needs to go on.
  if (!is_last() || !options_.observe_logits) return Collect(absl::InfinitePast()).status();
  SKEIN_RETURN_IF_ERROR(CollectAll());
  ShowLogits(chunks);
  return absl::OkStatus();
}

void Stage::ShowLogits(const std::vector<ChunkOrder>& chunks) {
  const View logits = executable_->port(program_.logits, batch_);
  int64_t output = 0;
  for (const ChunkOrder& chunk : chunks) {
    output += chunk.outputs();
    if (!chunk.draws) continue;
    const float* const row = static_cast<const float*>(logits.data) + (output - 1) * logits.cols;
    options_.observe_logits(chunk.slot, absl::MakeConstSpan(row, program_.vocab_tokens()));
  }
}

absl::StatusOr<bool> Stage::Collect(absl::Time deadline) {
  const Running& running = running_.front();
  SKEIN_ASSIGN_OR_RETURN(const bool over, executable_->Wait(running.ticket, kHostStream, deadline));
  if (!over) return false;
  if (options_.trace) {
    const auto& [step, micro_batch] = running.what;
    options_.trace({step, options_.pp_rank, micro_batch, running.begin, absl::Now()});
  }
  if (reports()) {
    const kernels::BatchResult& from = executable_->result(running.batch);
    StepResult& to = running.step->result;
    absl::c_copy(from.sampled, std::back_inserter(to.sampled));
    absl::c_copy(from.prompt_logprobs, std::back_inserter(to.prompt_logprobs));
    absl::c_copy(from.pooled, std::back_inserter(to.pooled));
  }
  --running.step->batches;
  running_.pop_front();
  return true;
}

absl::Status Stage::CollectAll() {
  while (!running_.empty()) SKEIN_RETURN_IF_ERROR(Collect(absl::InfiniteFuture()).status());
  return absl::OkStatus();
}

// ---- Between stages ----

absl::Status Stage::Receive(int64_t rows) {
  const View activations = executable_->port(program_.input, batch_).First(rows);
  const Stream stream = executable_->port_stream(program_.input);
  SKEIN_RETURN_IF_ERROR(options_.groups.previous->Receive(activations, 0, stream));
  executable_->After(batch_, stream);
  return absl::OkStatus();
}

absl::Status Stage::Send(int64_t rows) {
  const ConstView activations = executable_->port(program_.output, batch_).First(rows);
  const Stream stream = executable_->port_stream(program_.output);
  if (options_.groups.next->uses_device()) {
    // The stream waits for the batch, which was enqueued last.
    if (!running_.empty()) {
      SKEIN_RETURN_IF_ERROR(
          executable_->Wait(running_.back().ticket, stream, absl::InfiniteFuture()).status());
    }
  } else {
    SKEIN_RETURN_IF_ERROR(CollectAll());
  }
  SKEIN_RETURN_IF_ERROR(options_.groups.next->Send(activations, 1, stream));
  // The batch must not write the memory before it was sent.
  executable_->After(batch_, stream);
  return absl::OkStatus();
}

// Sends the newest token of each row to the first stage, which may need it before the leader has
// heard.
absl::Status Stage::SendTokens() {
  if (!reports()) return absl::OkStatus();
  SKEIN_RETURN_IF_ERROR(CollectAll());
  std::vector<int32_t> tokens;
  for (const kernels::SampledTokens& row : executable_->result(batch_).sampled) {
    // A sequence that failed may be in the next order already: any token serves there.
    tokens.push_back(row.tokens.empty() ? 0 : row.tokens.back().id);
  }
  return tokens_.Send(tokens);
}

// ---- The step ----

absl::Status Stage::CarryOut(const schedule::Instruction& instruction, StepOrder& order,
                             Step& step) {
  using schedule::Operation;
  const schedule::MicroBatchId& what = instruction.what;
  // Received tokens belong to another step.
  if (instruction.operation == Operation::kReceiveTokens) return tokens_.Receive();
  const std::vector<ChunkOrder>& chunks = order.micro_batches[what.micro_batch];
  int64_t rows = 0;
  for (const ChunkOrder& chunk : chunks) rows += chunk.rows();
  switch (instruction.operation) {
    case Operation::kReceiveActivations:
      SKEIN_RETURN_IF_ERROR(TakeBatch(what));
      return Receive(rows);
    case Operation::kCompute:
      return Compute(what, order, chunks, step);
    case Operation::kSendActivations:
      return Send(rows);
    case Operation::kSendTokens:
      return SendTokens();
    case Operation::kFlush:
      return options_.groups.next->Flush(1);
    case Operation::kSample:  // the executable has drawn
    case Operation::kReceiveTokens:
      break;
  }
  return absl::OkStatus();
}

std::vector<schedule::MicroBatch> Stage::MicroBatchDependencies(const StepOrder& order) const {
  std::vector<std::vector<schedule::MicroBatchId>> feeds_on = tokens_.FeedsOn(order);
  std::vector<schedule::MicroBatch> micro_batches;
  for (size_t i = 0; i < order.micro_batches.size(); ++i) {
    const bool draws = absl::c_any_of(order.micro_batches[i],
                                      [](const ChunkOrder& chunk) { return chunk.outputs() > 0; });
    micro_batches.push_back({.feeds_on = std::move(feeds_on[i]), .draws = draws});
  }
  return micro_batches;
}

// The executable finds whatever else is wrong with an order.
absl::Status Stage::CheckSlots(const StepOrder& order) const {
  const auto check = [this](int32_t slot) {
    if (slot >= 0 && slot < options_.slots) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("a step works on slot ", slot, ", and there are ", options_.slots));
  };
  for (const kernels::SlotStart& start : order.starts) SKEIN_RETURN_IF_ERROR(check(start.slot));
  for (const auto& chunks : order.micro_batches) {
    for (const ChunkOrder& chunk : chunks) SKEIN_RETURN_IF_ERROR(check(chunk.slot));
  }
  return absl::OkStatus();
}

// Walks this stage's list of instructions. Every rank derives its list from the order alone, by the
// same schedule: sends and receives pair up although no rank asks another, and the walk decides
// nothing. A rank that left the list out of turn would leave its peers waiting for ever.
absl::Status Stage::CarryOut(StepOrder& order, Step& step) {
  SKEIN_RETURN_IF_ERROR(CheckSlots(order));
  for (comm::Communicator* const hop : {options_.groups.previous, options_.groups.next}) {
    if (hop != nullptr) hop->set_step(order.step);
  }
  tokens_.BeginStep();
  in_hand_.reset();
  for (const schedule::Instruction& instruction : schedule::StageStep(
           options_.pp_size, options_.pp_rank, order.step, MicroBatchDependencies(order))) {
    SKEIN_RETURN_IF_ERROR(CarryOut(instruction, order, step));
  }
  tokens_.EndStep();
  // An order may change pages alone.
  if (order.micro_batches.empty()) return Compute({order.step, 0}, order, {}, step);
  return absl::OkStatus();
}

void Stage::Begin(StepOrder order) {
  if (options_.watch != nullptr) options_.watch->Begin(order.step, Rows(order));
  Step& step = steps_.emplace_back();
  step.result.step = order.step;
  if (failed_.ok()) Fail(CarryOut(order, step));
}

// Aborts all exchanges, so that peers need not wait for a rank that will not come.
void Stage::Fail(const absl::Status& why) {
  if (why.ok()) return;
  failed_ = why;
  if (options_.on_failure) options_.on_failure(why);
  Abort(why);
}

std::optional<StepResult> Stage::Finish(absl::Time deadline) {
  Step& step = steps_.front();
  while (failed_.ok() && step.batches > 0) {
    const absl::StatusOr<bool> over = Collect(deadline);
    if (over.ok() && !*over) return std::nullopt;
    Fail(over.status());
  }
  StepResult result = std::move(step.result);
  result.status = failed_;
  steps_.pop_front();
  if (failed_.ok() && options_.watch != nullptr) options_.watch->End();
  return result;
}

StepResult Stage::Run(StepOrder order) {
  Begin(std::move(order));
  return *Finish(absl::InfiniteFuture());
}

}  // namespace skein::worker
