#include "worker/engine/stage.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "kernels/ops/batch.h"
#include "kernels/sampling/sampling.h"

namespace skein::worker {
namespace {

template <typename T>
absl::Span<const std::byte> AsBytes(absl::Span<T> data) {
  return {reinterpret_cast<const std::byte*>(data.data()), data.size() * sizeof(T)};
}

comm::ConstBytes BytesOf(const ConstView& view) {
  return {static_cast<const std::byte*>(view.data), static_cast<size_t>(view.bytes())};
}

comm::Bytes BytesOf(const View& view) {
  return {static_cast<std::byte*>(view.data), static_cast<size_t>(view.bytes())};
}

absl::Span<std::byte> AsWritableBytes(absl::Span<float> data) {
  return {reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(float)};
}

int64_t Rows(const StepOrder& order) {
  int64_t rows = 0;
  for (const auto& chunks : order.micro_batches) {
    for (const ChunkOrder& chunk : chunks) rows += chunk.rows();
  }
  return rows;
}

class GroupCollectives final : public kernels::Collectives {
 public:
  explicit GroupCollectives(const StageGroups& groups) : groups_(groups) {}
  absl::Status AllReduce(View data, Stream stream) override {
    return groups_.tensor->AllReduce(data, stream);
  }
  absl::Status AllGather(ConstView in, View out, Stream stream) override {
    return groups_.tensor->AllGather(BytesOf(in), BytesOf(out), stream);
  }
  absl::Status Progress() override {
    for (comm::Communicator* const group : {groups_.next, groups_.tokens}) {
      if (group != nullptr) SKEIN_RETURN_IF_ERROR(group->Progress());
    }
    return absl::OkStatus();
  }

 private:
  const StageGroups groups_;
};

}  // namespace

struct Stage::BatchBuffers {
  std::vector<int32_t> token_ids, positions, row_begin, context_lengths, page_table, output_rows;
  std::vector<int64_t> kv_slots;
  int64_t page_table_stride = 0;

  void Clear() {
    for (auto* list :
         {&token_ids, &positions, &row_begin, &context_lengths, &page_table, &output_rows}) {
      list->clear();
    }
    kv_slots.clear();
    page_table_stride = 0;
  }
};

Stage::Stage(const StageOptions& options, const kernels::Program& program,
             kernels::Executable* executable)
    : options_(options),
      program_(program),
      executable_(executable),
      batch_(std::make_unique<BatchBuffers>()) {
  if (!options_.groups.All().empty()) {
    collectives_ = std::make_unique<GroupCollectives>(options_.groups);
  }
}

Stage::~Stage() = default;

std::vector<comm::Communicator*> StageGroups::All() const {
  std::vector<comm::Communicator*> all;
  for (comm::Communicator* const group : {tensor, previous, next, tokens}) {
    if (group != nullptr) all.push_back(group);
  }
  return all;
}

absl::StatusOr<Stage::Sequence*> Stage::Find(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) {
    return absl::InternalError(
        absl::StrCat("a step works on sequence ", id, ", which was never started"));
  }
  return &found->second;
}

void Stage::Abort(const absl::Status& why) {
  for (comm::Communicator* const group : options_.groups.All()) group->Abort(why);
}

// ---- Before a step ----

absl::Status Stage::CopyPages(const std::vector<PageCopy>& copies) {
  for (const PageCopy& copy : copies) {
    const bool out = copy.kind == PageCopy::Kind::kSwapOut;
    const bool in = copy.kind == PageCopy::Kind::kSwapIn;
    kernels::KvCache* const from = in ? options_.swap : options_.kv;
    kernels::KvCache* const to = out ? options_.swap : options_.kv;
    if (from == nullptr || to == nullptr) {
      return absl::InternalError("a step copies pages that this rank does not have");
    }
    SKEIN_RETURN_IF_ERROR(to->CopyPage(*from, copy.from, copy.to));
  }
  return absl::OkStatus();
}

absl::Status Stage::UpdateSequences(const StepOrder& order) {
  for (SequenceId id : order.ended) sequences_.erase(id);
  for (const SequenceStart& start : order.started) {
    Sequence& sequence = sequences_[start.id];
    if (!samples()) continue;
    if (start.prompt_of == 0) {
      sequence.prompt = start.prompt;
    } else {
      SKEIN_ASSIGN_OR_RETURN(const Sequence* const parent, Find(start.prompt_of));
      sequence.prompt = parent->prompt;
    }
    sequence.output = start.output;
    sequence.mu = start.mu;
    sequence.sampling = start.sampling;
  }
  SKEIN_RETURN_IF_ERROR(CopyPages(order.copies));
  for (const PageTableUpdate& update : order.tables) {
    SKEIN_ASSIGN_OR_RETURN(Sequence* const sequence, Find(update.id));
    if (update.first < 0 || update.first > static_cast<int64_t>(sequence->pages.size())) {
      return absl::InternalError(absl::StrCat("a step leaves a hole before page ", update.first,
                                              " of sequence ", update.id));
    }
    sequence->pages.resize(update.first);
    sequence->pages.insert(sequence->pages.end(), update.pages.begin(), update.pages.end());
  }
  return absl::OkStatus();
}

// ---- A micro-batch ----

absl::Status Stage::AddRows(const ChunkOrder& chunk, Sequence& sequence) {
  BatchBuffers& batch = *batch_;
  const std::vector<int32_t>& pages = sequence.pages;
  const int64_t end = chunk.end();
  if (chunk.tokens.empty() || chunk.begin < 0 ||
      end > static_cast<int64_t>(pages.size()) * options_.page_size) {
    return absl::InternalError(absl::StrCat("a step works on positions ", chunk.begin, " to ", end,
                                            " of sequence ", chunk.id, ", which has ", pages.size(),
                                            " pages of ", options_.page_size));
  }
  batch.row_begin.push_back(static_cast<int32_t>(batch.positions.size()));
  for (int64_t position = chunk.begin; position < end; ++position) {
    batch.positions.push_back(static_cast<int32_t>(position));
    batch.kv_slots.push_back(pages[position / options_.page_size] * options_.page_size +
                             position % options_.page_size);
  }
  if (is_first()) {
    for (int32_t token : chunk.tokens) {
      if (token == kSampledToken) {
        SKEIN_RETURN_IF_ERROR(ReceiveTokens(sequence.awaited));  // in one stage; others have it
        token = sequence.sampled;
      }
      batch.token_ids.push_back(token);
    }
  }
  batch.context_lengths.push_back(static_cast<int32_t>(end));
  batch.page_table_stride =
      std::max(batch.page_table_stride, (end + options_.page_size - 1) / options_.page_size);
  if (is_last()) {
    const auto rows = static_cast<int64_t>(batch.positions.size());
    for (int64_t row = rows - chunk.outputs(); row < rows; ++row) {
      batch.output_rows.push_back(static_cast<int32_t>(row));
    }
  }
  return absl::OkStatus();
}

absl::Status Stage::FillBatch(const std::vector<ChunkOrder>& chunks) {
  BatchBuffers& batch = *batch_;
  batch.Clear();
  for (const ChunkOrder& chunk : chunks) {
    SKEIN_ASSIGN_OR_RETURN(Sequence* const sequence, Find(chunk.id));
    SKEIN_RETURN_IF_ERROR(AddRows(chunk, *sequence));
  }
  batch.row_begin.push_back(static_cast<int32_t>(batch.positions.size()));
  batch.page_table.resize(chunks.size() * batch.page_table_stride, 0);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const std::vector<int32_t>& pages = sequences_.at(chunks[i].id).pages;
    std::copy_n(pages.begin(),
                std::min<int64_t>(batch.page_table_stride, static_cast<int64_t>(pages.size())),
                batch.page_table.begin() + i * batch.page_table_stride);
  }
  return absl::OkStatus();
}

absl::Status Stage::Receive(int64_t rows) {
  if (is_first()) return absl::OkStatus();
  const absl::Span<float> data =
      executable_->buffer(program_.input).subspan(0, rows * options_.hidden_size);
  return options_.groups.previous->Receive(AsWritableBytes(data), 0, kHostStream);
}

absl::Status Stage::Send(int64_t rows) {
  if (is_last()) return absl::OkStatus();
  const absl::Span<float> data =
      executable_->buffer(program_.output).subspan(0, rows * options_.hidden_size);
  return options_.groups.next->Send(AsBytes(data), 1, kHostStream);
}

// ---- Sampling ----

absl::Span<const float> Stage::Logits(int64_t output_row) const {
  const int64_t stride = program_.buffers[program_.logits].cols;
  return executable_->buffer(program_.logits).subspan(output_row * stride, options_.vocab_size);
}

SampledRow Stage::SampleRow(const ChunkOrder& chunk, int64_t output_row) {
  Sequence& sequence = sequences_.at(chunk.id);
  const absl::Span<const float> logits = Logits(output_row);
  SampledRow row{.id = chunk.id};
  absl::StatusOr<kernels::SampledToken> token =
      kernels::Sample(logits, sequence.sampling, sequence.prompt, sequence.output,
                      sequence.output.size(), sequence.mu);
  if (token.ok()) {
    row.token = *std::move(token);
    sequence.mu = row.token.mu;
  } else {
    row.error = std::string(token.status().message());
  }
  // A sequence that failed may be in the next order already: any token serves there.
  sequence.output.push_back(row.token.id);
  sequence.sampled = row.token.id;
  return row;
}

PromptLogprobs Stage::LogprobsOfPrompt(const ChunkOrder& chunk, int64_t first_output) {
  const std::vector<int32_t>& prompt = sequences_.at(chunk.id).prompt;
  PromptLogprobs out{.id = chunk.id, .first = chunk.begin + 1};
  for (int64_t row = 0; row < chunk.rows(); ++row) {
    const int64_t next = chunk.begin + row + 1;
    if (next >= static_cast<int64_t>(prompt.size())) break;  // nothing follows the last token
    absl::StatusOr<kernels::SampledToken> token =
        kernels::LogprobsOf(Logits(first_output + row), prompt[next], chunk.prompt_logprobs);
    if (!token.ok()) {
      out.error = std::string(token.status().message());
      break;
    }
    out.tokens.push_back(*std::move(token));
  }
  return out;
}

void Stage::Sample(const std::vector<ChunkOrder>& chunks, StepResult* result) {
  struct Task {
    const ChunkOrder* chunk;
    int64_t output_row;
  };
  std::vector<Task> tasks;
  int64_t output = 0;
  for (const ChunkOrder& chunk : chunks) {
    if (chunk.prompt_logprobs >= 0) {
      result->prompt_logprobs.push_back(LogprobsOfPrompt(chunk, output));
    }
    output += chunk.outputs();
    if (!chunk.sample) continue;
    tasks.push_back({&chunk, output - 1});
    if (options_.observe_logits) {
      options_.observe_logits(chunk.id, chunk.end() - 1, Logits(output - 1));
    }
  }
  // Every row is another sequence's.
  const size_t first = result->sampled.size();
  result->sampled.resize(first + tasks.size());
  executable_->OnHost(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
    result->sampled[first + i] = SampleRow(*tasks[i].chunk, tasks[i].output_row);
  });
  sampled_tokens_.clear();
  for (size_t i = first; i < result->sampled.size(); ++i) {
    sampled_tokens_.push_back(result->sampled[i].token.id);
  }
}

// ---- Sampled tokens ----

absl::Status Stage::SendTokens() {
  if (sampled_tokens_.empty()) return absl::OkStatus();
  for (int32_t shard = 0; shard < options_.tensor; ++shard) {
    if (shard == sampling_rank()) continue;  // this one
    SKEIN_RETURN_IF_ERROR(
        options_.groups.tokens->Send(AsBytes(absl::MakeSpan(sampled_tokens_)), shard, kHostStream));
  }
  return absl::OkStatus();
}

void Stage::ExpectTokens(const schedule::MicroBatchId& id, const std::vector<ChunkOrder>& chunks) {
  TokensDue due{.from = id};
  for (const ChunkOrder& chunk : chunks) {
    if (!chunk.sample) continue;
    due.ids.push_back(chunk.id);
    sequences_.at(chunk.id).awaited = tokens_expected_ + 1;
  }
  if (due.ids.empty()) return;
  tokens_due_.push_back(std::move(due));
  ++tokens_expected_;
}

absl::Status Stage::ReceiveTokens(int64_t until) {
  while (tokens_expected_ - static_cast<int64_t>(tokens_due_.size()) < until) {
    const std::vector<SequenceId> ids = std::move(tokens_due_.front().ids);
    tokens_due_.pop_front();
    std::vector<int32_t> tokens(ids.size());
    SKEIN_RETURN_IF_ERROR(options_.groups.tokens->Receive(
        {reinterpret_cast<std::byte*>(tokens.data()), tokens.size() * sizeof(int32_t)},
        sampling_rank(), kHostStream));
    for (size_t i = 0; i < ids.size(); ++i) {
      // It may have ended meanwhile.
      if (const auto it = sequences_.find(ids[i]); it != sequences_.end()) {
        it->second.sampled = tokens[i];
      }
    }
  }
  return absl::OkStatus();
}

// ---- The step ----

std::vector<schedule::MicroBatch> Stage::PlanMicroBatches(const StepOrder& order) {
  const int64_t received = tokens_expected_ - static_cast<int64_t>(tokens_due_.size());
  // The leader has all results but those of the last step, so the tokens before have been sent:
  // they are taken, also where nobody goes on with them, so that they do not pile up.
  int64_t until = tokens_expected_ - last_step_messages_;
  int64_t taken = received;
  std::vector<schedule::MicroBatch> micro_batches;
  for (const std::vector<ChunkOrder>& chunks : order.micro_batches) {
    schedule::MicroBatch& micro_batch = micro_batches.emplace_back();
    for (const ChunkOrder& chunk : chunks) {
      micro_batch.samples |= chunk.sample || chunk.prompt_logprobs >= 0;
      const auto it = sequences_.find(chunk.id);
      if (it != sequences_.end() && !chunk.tokens.empty() && chunk.tokens.back() == kSampledToken) {
        until = std::max(until, it->second.awaited);
      }
    }
    for (; taken < until; ++taken) {
      micro_batch.feeds_on.push_back(tokens_due_[taken - received].from);
    }
  }
  return micro_batches;
}

absl::Status Stage::Compute(const schedule::MicroBatchId& id,
                            const std::vector<ChunkOrder>& chunks) {
  SKEIN_RETURN_IF_ERROR(FillBatch(chunks));
  const kernels::Batch batch = {.token_ids = batch_->token_ids,
                                .positions = batch_->positions,
                                .kv_slots = batch_->kv_slots,
                                .row_begin = batch_->row_begin,
                                .context_lengths = batch_->context_lengths,
                                .page_table = batch_->page_table,
                                .page_table_stride = batch_->page_table_stride,
                                .output_rows = batch_->output_rows};
  const absl::Time begin = absl::Now();
  SKEIN_RETURN_IF_ERROR(executable_->Run(batch, collectives_.get()));
  if (options_.trace) {
    options_.trace({id.step, options_.stage, id.micro_batch, begin, absl::Now()});
  }
  if (is_first() && !samples()) ExpectTokens(id, chunks);
  return absl::OkStatus();
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
      return ReceiveTokens(tokens_expected_ - static_cast<int64_t>(tokens_due_.size()) + 1);
    case Operation::kCompute:
      return Compute(instruction.what, chunks);
    case Operation::kSendActivations:
      return Send(rows);
    case Operation::kSample:
      if (!samples()) return absl::OkStatus();
      Sample(chunks, result);
      // One stage's list moves nothing, but its other shards need the tokens.
      return options_.pipeline == 1 ? SendTokens() : absl::OkStatus();
    case Operation::kSendTokens:
      return samples() ? SendTokens() : absl::OkStatus();
    case Operation::kFlush:
      return options_.groups.next->Flush(1);
  }
  return absl::OkStatus();
}

absl::Status Stage::RunOrder(const StepOrder& order, StepResult* result) {
  if (options_.watch != nullptr) options_.watch->Begin(order.step, Rows(order));
  SKEIN_RETURN_IF_ERROR(UpdateSequences(order));
  const std::vector<schedule::MicroBatch> micro_batches = PlanMicroBatches(order);
  if (options_.pipeline == 1) {
    SKEIN_RETURN_IF_ERROR(ReceiveTokens(tokens_expected_ - last_step_messages_));
  }
  const int64_t before = tokens_expected_;
  for (const schedule::Instruction& instruction :
       schedule::StageStep(options_.pipeline, options_.stage, order.step, micro_batches)) {
    // Tokens that are received are another step's.
    static const std::vector<ChunkOrder> kNone;
    const bool own = instruction.operation != schedule::Operation::kReceiveTokens;
    SKEIN_RETURN_IF_ERROR(CarryOut(
        instruction, own ? order.micro_batches[instruction.what.micro_batch] : kNone, result));
  }
  last_step_messages_ = tokens_expected_ - before;
  if (options_.watch != nullptr) options_.watch->End();
  return absl::OkStatus();
}

StepResult Stage::Run(const StepOrder& order) {
  StepResult result{.step = order.step};
  result.status = RunOrder(order, &result);
  return result;
}

}  // namespace skein::worker
