#include "worker/engine/stage.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "kernels/ops/batch.h"
#include "kernels/ops/sampling.h"

namespace skein::worker {
namespace {

template <typename T>
absl::Span<const std::byte> AsBytes(absl::Span<T> data) {
  return {reinterpret_cast<const std::byte*>(data.data()), data.size() * sizeof(T)};
}

absl::Span<std::byte> AsWritableBytes(absl::Span<float> data) {
  return {reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(float)};
}

class GroupCollectives final : public kernels::Collectives {
 public:
  explicit GroupCollectives(comm::Communicator* group) : group_(group) {}
  absl::Status AllReduce(absl::Span<float> data, Stream stream) override {
    return group_->AllReduce(data, stream);
  }
  absl::Status AllGather(absl::Span<const float> in, absl::Span<float> out,
                         Stream stream) override {
    return group_->AllGather(AsBytes(in), AsWritableBytes(out), stream);
  }

 private:
  comm::Communicator* group_;
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
  if (options_.tensor_group != nullptr) {
    collectives_ = std::make_unique<GroupCollectives>(options_.tensor_group);
  }
}

Stage::~Stage() = default;

absl::Status Stage::FillBatch(const std::vector<ChunkOrder>& chunks) {
  BatchBuffers& batch = *batch_;
  batch.Clear();
  for (const ChunkOrder& chunk : chunks) {
    const auto it = sequences_.find(chunk.id);
    if (it == sequences_.end()) {
      return absl::InternalError(
          absl::StrCat("a step works on request ", chunk.id, ", which was never started"));
    }
    const std::vector<int32_t>& pages = it->second.pages;
    const int64_t end = chunk.begin + static_cast<int64_t>(chunk.tokens.size());
    if (chunk.tokens.empty() || chunk.begin < 0 ||
        end > static_cast<int64_t>(pages.size()) * options_.page_size) {
      return absl::InternalError(absl::StrCat("a step works on positions ", chunk.begin, " to ",
                                              end, " of request ", chunk.id, ", which has ",
                                              pages.size(), " pages of ", options_.page_size));
    }
    batch.row_begin.push_back(static_cast<int32_t>(batch.positions.size()));
    for (int64_t position = chunk.begin; position < end; ++position) {
      batch.positions.push_back(static_cast<int32_t>(position));
      batch.kv_slots.push_back(pages[position / options_.page_size] * options_.page_size +
                               position % options_.page_size);
    }
    if (is_first()) {
      batch.token_ids.insert(batch.token_ids.end(), chunk.tokens.begin(), chunk.tokens.end());
    }
    batch.context_lengths.push_back(static_cast<int32_t>(end));
    batch.page_table_stride =
        std::max(batch.page_table_stride, (end + options_.page_size - 1) / options_.page_size);
    if (chunk.sample && is_last()) {
      batch.output_rows.push_back(static_cast<int32_t>(batch.positions.size()) - 1);
    }
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
  const int from = (options_.stage - 1) * options_.tensor + options_.shard;
  const absl::Span<float> data =
      executable_->buffer(program_.input).subspan(0, rows * options_.hidden_size);
  return options_.replica_group->Receive(AsWritableBytes(data), from);
}

absl::Status Stage::Send(int64_t rows) {
  if (is_last()) return absl::OkStatus();
  const int to = (options_.stage + 1) * options_.tensor + options_.shard;
  const absl::Span<float> data =
      executable_->buffer(program_.output).subspan(0, rows * options_.hidden_size);
  return options_.replica_group->Send(AsBytes(data), to);
}

SampledRow Stage::SampleRow(const ChunkOrder& chunk, int64_t output_row) {
  Sequence& sequence = sequences_.at(chunk.id);
  const int64_t stride = program_.buffers[program_.logits].cols;
  const absl::Span<const float> logits =
      executable_->buffer(program_.logits).subspan(output_row * stride, options_.vocab_size);
  if (options_.observe_logits) {
    options_.observe_logits(chunk.id, chunk.begin + static_cast<int64_t>(chunk.tokens.size()) - 1,
                            logits);
  }
  SampledRow row{.id = chunk.id};
  absl::StatusOr<kernels::SampledToken> token = kernels::Sample(
      logits, sequence.sampling, sequence.prompt, sequence.output, sequence.output.size());
  if (!token.ok()) {
    row.error = std::string(token.status().message());
    return row;
  }
  row.token = *std::move(token);
  sequence.output.push_back(row.token.id);
  return row;
}

absl::Status Stage::Run(const StepOrder& order, std::vector<SampledRow>* sampled) {
  for (RequestId id : order.ended) sequences_.erase(id);
  for (const SequenceStart& start : order.started) {
    Sequence sequence{.pages = start.pages};
    if (samples()) {
      sequence.prompt = start.prompt;
      sequence.output = start.output;
      sequence.sampling = start.sampling;
    }
    sequences_[start.id] = std::move(sequence);
  }
  for (size_t i = 0; i < order.micro_batches.size(); ++i) {
    const std::vector<ChunkOrder>& chunks = order.micro_batches[i];
    SKEIN_RETURN_IF_ERROR(FillBatch(chunks));
    const kernels::Batch batch = {.token_ids = batch_->token_ids,
                                  .positions = batch_->positions,
                                  .kv_slots = batch_->kv_slots,
                                  .row_begin = batch_->row_begin,
                                  .context_lengths = batch_->context_lengths,
                                  .page_table = batch_->page_table,
                                  .page_table_stride = batch_->page_table_stride,
                                  .output_rows = batch_->output_rows};
    SKEIN_RETURN_IF_ERROR(Receive(batch.rows()));
    const absl::Time begin = absl::Now();
    SKEIN_RETURN_IF_ERROR(executable_->Run(batch, collectives_.get()));
    if (options_.trace) {
      options_.trace({order.step, options_.stage, static_cast<int32_t>(i), begin, absl::Now()});
    }
    SKEIN_RETURN_IF_ERROR(Send(batch.rows()));
    if (!samples()) continue;
    int64_t output_row = 0;
    for (const ChunkOrder& chunk : chunks) {
      if (chunk.sample) sampled->push_back(SampleRow(chunk, output_row++));
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::worker
