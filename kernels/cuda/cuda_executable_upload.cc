// How a batch of a CudaExecutable comes to the host's mirror of the slots, and in one upload to the
// device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_executable.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/prepare_batch.h"

namespace skein::kernels::cuda {

void CudaExecutable::SetTokens(absl::Span<const int32_t> slots, absl::Span<const int32_t> tokens) {
  const absl::Status valid = ValidateTokens(rules_, slots, tokens);
  if (!valid.ok()) return between_.Update(valid);
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto set = std::find_if(set_tokens_.begin(), set_tokens_.end(),
                                  [&](const SetPair& pair) { return pair.index == slots[i]; });
    if (set != set_tokens_.end()) {
      set->value = tokens[i];
    } else {
      set_tokens_.push_back({slots[i], tokens[i]});
    }
  }
}

absl::Status CudaExecutable::TakeIn(int i) {
  BatchRun& run = runs_[i];
  const Batch& batch = batches_[i];
  run.shortened.clear();
  for (const SlotStart& start : batch.starts) SKEIN_RETURN_IF_ERROR(StartDraws(start, i));
  SKEIN_RETURN_IF_ERROR(
      slots_->Update(batch, [&](const SlotUpdate& update) { run.shortened.push_back(&update); }));
  for (const SlotUpdate* update : run.shortened) {
    SKEIN_RETURN_IF_ERROR(TakeBackDraws(*update, i));
  }
  SKEIN_RETURN_IF_ERROR(slots_->Fill(batch, rows_));
  // Where no operation takes rows out, a batch's outputs are another stage's.
  if (!rules_.outputs) rows_.output_rows.clear();
  run.first_positions.clear();
  for (int64_t s = 0; s < rows_.sequences(); ++s) {
    run.first_positions.push_back(rows_.positions[rows_.row_begin[s]]);
  }
  ListDraws(i);
  bool guesses = false;
  for (const BatchSequence& sequence : batch.sequences) {
    if (!sequence.draws) continue;
    run.guesses.push_back(sequence.guesses);
    guesses |= sequence.guesses > 0;
  }
  if (!guesses) run.guesses.clear();
  return guesses ? PutDownGuesses(i) : absl::OkStatus();
}

absl::Status CudaExecutable::Upload(int i, int32_t padded) {
  const Batch& batch = batches_[i];
  BatchUpload& upload = upload_;
  upload = {.rows = static_cast<int32_t>(rows_.rows()),
            .sequences = static_cast<int32_t>(rows_.sequences()),
            .outputs = static_cast<int32_t>(rows_.outputs()),
            .tokens = static_cast<int32_t>(set_tokens_.size())};
  for (const BatchRun::Draw& draw : runs_[i].draws) {
    upload.greedy += draw.kind == Kind::kGreedy ? 1 : 0;
    upload.sampled += draw.kind == Kind::kSampled || draw.kind == Kind::kMasked ? 1 : 0;
  }
  for (const SlotUpdate& update : batch.updates) {
    upload.pages += static_cast<int64_t>(update.pages.size());
  }
  std::byte* const block = uploads_.data() + i * workspace_.places.upload_bytes;
  const auto put = [block](int64_t place, const auto& list) {
    if (!list.empty()) std::memcpy(block + place, list.data(), list.size() * sizeof(list[0]));
  };
  put(upload.kv_slots(), rows_.kv_slots);
  put(upload.set_tokens(), set_tokens_);
  // As the mirror has them: an entry that is set twice has one value.
  auto* page = reinterpret_cast<SetPair*>(block + upload.set_pages());
  for (const SlotUpdate& update : batch.updates) {
    const int64_t first = update.slot * limits_.slot_pages + update.first_page;
    for (size_t p = 0; p < update.pages.size(); ++p) {
      const int64_t index = first + static_cast<int64_t>(p);
      *page++ = {static_cast<int32_t>(index), rows_.page_tables[index]};
    }
  }
  auto* id = reinterpret_cast<int32_t*>(block + upload.token_ids());
  int64_t row = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    for (int32_t r = 0; r < sequence.rows; ++r, ++row) {
      const int32_t token = batch.token_ids[row];
      *id++ = token < 0 ? NewestOf(sequence.slot) : token;
    }
  }
  put(upload.positions(), rows_.positions);
  put(upload.row_begin(), rows_.row_begin);
  put(upload.slots(), rows_.slots);
  put(upload.lengths(), rows_.context_lengths);
  put(upload.output_rows(), rows_.output_rows);
  FillDraws(i, block);
  set_tokens_.clear();

  auto* const to = workspace_.At<std::byte>(workspace_.places.uploads[i]);
  SKEIN_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(to, block, static_cast<size_t>(upload.bytes()),
                                             cudaMemcpyHostToDevice, CudaStream(stream_.get())));
  return Prepare(upload, {.batch = i, .rows = padded, .sequences = padded, .outputs = padded});
}

absl::Status CudaExecutable::Prepare(const BatchUpload& upload, const BatchShape& padded) {
  const DevicePlaces& places = workspace_.places;
  return cuda::Enqueue(
      PrepareBatch{.upload = upload,
                   .block = workspace_.At<std::byte>(places.uploads[padded.batch]),
                   .drawn = last_drawn_,
                   .drawn_count = last_drawn_count_,
                   .padded_rows = std::max(padded.rows, upload.rows),
                   .padded_sequences = std::max(padded.sequences, upload.sequences),
                   .padded_outputs = std::max(padded.outputs, upload.outputs),
                   .newest_tokens = workspace_.At<int32_t>(places.newest_tokens),
                   .lengths = workspace_.At<int32_t>(places.lengths),
                   .page_tables = workspace_.At<int32_t>(places.page_tables),
                   .token_ids = workspace_.At<int32_t>(places.token_ids),
                   .positions = workspace_.At<int32_t>(places.positions),
                   .kv_slots = workspace_.At<int64_t>(places.kv_slots),
                   .row_begin = workspace_.At<int32_t>(places.row_begin),
                   .slots = workspace_.At<int32_t>(places.slots),
                   .output_rows = workspace_.At<int32_t>(places.output_rows)},
      stream_.get());
}

absl::Status CudaExecutable::CopyPages(const Batch& batch) {
  auto* const swap = static_cast<CudaKv*>(bindings_.swap);
  for (const PageCopy& copy : batch.copies) {
    const bool out = copy.kind == PageCopy::Kind::kSwapOut;
    const bool in = copy.kind == PageCopy::Kind::kSwapIn;
    SKEIN_RETURN_IF_ERROR(
        (out ? swap : kv_)->EnqueueCopy(in ? *swap : *kv_, copy.from, copy.to, stream_.get()));
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels::cuda
