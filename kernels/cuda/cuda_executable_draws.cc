// The draws of a CudaExecutable's batches: which the device makes, and what the host does for the
// others.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "kernels/cuda/cuda_executable.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/device_places.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/slot_parameters.h"

namespace skein::kernels::cuda {

CudaExecutable::Kind CudaExecutable::KindOf(const BatchSequence& sequence) const {
  const Kind kind = slot_draws_[sequence.slot].kind;
  if (!sequence.masked || kind == Kind::kByHost) return kind;
  return CanSample() ? Kind::kMasked : Kind::kByHost;
}

void CudaExecutable::ListPromptTokens(const BatchSequence& sequence, int64_t first_position,
                                      int64_t first_output, BatchRun& run) const {
  const bool here = CanSample() && sequence.prompt_logprobs <= DeviceDraw::kMostTold;
  const std::vector<int32_t>& prompt = *slot_draws_[sequence.slot].prompt;
  for (int64_t row = 0; row < sequence.rows; ++row) {
    const int64_t next = first_position + row + 1;
    if (next >= static_cast<int64_t>(prompt.size())) break;  // nothing follows the last token
    run.draws.push_back({.output = first_output + row,
                         .slot = sequence.slot,
                         .kind = here ? Kind::kSampled : Kind::kByHost,
                         .leaves = false,
                         .token = std::max(prompt[next], 0),  // the sampler refuses others
                         .logprobs = sequence.prompt_logprobs});
  }
}

void CudaExecutable::ListDraws(int i) {
  BatchRun& run = runs_[i];
  const Batch& batch = batches_[i];
  run.draws.clear();
  int64_t outputs = 0;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const BatchSequence& sequence = batch.sequences[s];
    if (sequence.prompt_logprobs >= 0) {
      ListPromptTokens(sequence, run.first_positions[s], outputs, run);
    }
    outputs += sequence.outputs;
    if (!sequence.draws) continue;
    const Kind kind = KindOf(sequence);
    const bool may_guess = slot_draws_[sequence.slot].sampling.mirostat_tau == 0.0f;
    for (int32_t g = 0; g <= (may_guess ? sequence.guesses : 0); ++g) {
      run.draws.push_back({.output = outputs - 1 - sequence.guesses + g,
                           .slot = sequence.slot,
                           .kind = kind,
                           .guesses = g,
                           .leaves = sequence.guesses == 0});
    }
  }
  run.by_host = false;
  run.masks = 0;
  for (const BatchRun::Draw& draw : run.draws) {
    run.by_host |= draw.kind == Kind::kByHost;
    run.masks += draw.kind == Kind::kMasked ? 1 : 0;
  }
}

SampledDraw CudaExecutable::SampledDrawOf(const BatchRun::Draw& draw) const {
  const SlotDraws& slot = slot_draws_[draw.slot];
  SampledDraw sampled;
  if (draw.token >= 0) {
    sampled.token = draw.token;
    sampled.logprobs = draw.logprobs;
  } else {
    sampled = DrawBehind(slot.draw, slot.sampling, static_cast<int64_t>(slot.prompt->size()),
                         slot.position + draw.guesses);
  }
  sampled.row = static_cast<int32_t>(draw.output);
  sampled.slot = draw.slot;
  sampled.leaves = draw.leaves;
  return sampled;
}

void CudaExecutable::FillDraws(int i, std::byte* block) {
  auto* greedy = reinterpret_cast<SetPair*>(block + upload_.greedy_draws());
  auto* sampled = reinterpret_cast<SampledDraw*>(block + upload_.sampled_draws());
  SampledDraw* masked = sampled + upload_.sampled - runs_[i].masks;
  for (const BatchRun::Draw& draw : runs_[i].draws) {
    if (draw.kind == Kind::kGreedy) {
      *greedy++ = {static_cast<int32_t>(draw.output), draw.leaves ? draw.slot : -1};
    }
    if (draw.kind == Kind::kSampled) *sampled++ = SampledDrawOf(draw);
    if (draw.kind == Kind::kMasked) *masked++ = SampledDrawOf(draw);
  }
  for (const BatchRun::Draw& draw : runs_[i].draws) {
    if (draw.begins()) ++slot_draws_[draw.slot].position;
  }
}

// To the host: what it draws from. Rows that follow each other at once.
absl::Status CudaExecutable::CopyRows(const BatchRun& run) {
  const View logits = port(program_.logits, run.batch);
  const int64_t row_bytes = DTypeBytes(logits.dtype, logits.cols);
  std::vector<bool> wanted(rows_.outputs(), false);
  for (const BatchRun::Draw& draw : run.draws) wanted[draw.output] = draw.kind == Kind::kByHost;
  for (int64_t begin = 0, end = 0; begin < rows_.outputs(); begin = end + 1) {
    end = begin;
    while (end < rows_.outputs() && wanted[end]) ++end;
    if (end == begin) continue;
    SKEIN_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(logits_.data() + begin * row_bytes,
                        static_cast<const std::byte*>(logits.data) + begin * row_bytes,
                        static_cast<size_t>((end - begin) * row_bytes), cudaMemcpyDeviceToHost,
                        CudaStream(stream_.get())));
  }
  return absl::OkStatus();
}

std::byte* CudaExecutable::PooledRowsOf(int i) const {
  return pooled_.data() + i * (pooled_.bytes() / kBatches);
}

absl::Status CudaExecutable::CopyPooledRows(const BatchRun& run) {
  const BufferSpec& buffer = program_.buffers[program_.pooled.in];
  const int64_t row_bytes = DTypeBytes(buffer.dtype, buffer.cols);
  const auto* const from =
      static_cast<const std::byte*>(workspace_.Buffer(program_.pooled.in, run.batch));
  int64_t end = 0;
  for (const BatchSequence& sequence : batches_[run.batch].sequences) {
    end += sequence.rows;
    if (sequence.pooled == 0) continue;
    const int64_t begin = (end - sequence.pooled) * row_bytes;
    SKEIN_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(PooledRowsOf(run.batch) + begin, from + begin,
                                               static_cast<size_t>(sequence.pooled * row_bytes),
                                               cudaMemcpyDeviceToHost, CudaStream(stream_.get())));
  }
  return absl::OkStatus();
}

absl::Status CudaExecutable::EnqueueDraws(int i) {
  last_drawn_count_ = 0;
  BatchRun& run = runs_[i];
  if (!sampler_.has_value()) return run.done.Record(stream_.get());
  const View logits = port(program_.logits, i);
  DrawRows rows = {.tokens = program_.vocab_tokens(),
                   .logits = static_cast<const float*>(logits.data),
                   .logits_stride = logits.cols,
                   .first_id = static_cast<int32_t>(program_.vocab_part.first),
                   .newest_tokens = workspace_.At<int32_t>(workspace_.places.newest_tokens),
                   .drawn = MadeBy(i)};
  SKEIN_RETURN_IF_ERROR(EnqueueGreedy(run, rows));
  rows.drawn += upload_.greedy;
  SKEIN_RETURN_IF_ERROR(EnqueueSampled(run, rows));
  if (run.by_host) SKEIN_RETURN_IF_ERROR(CopyRows(run));
  if (run.pools) SKEIN_RETURN_IF_ERROR(CopyPooledRows(run));
  if (run.by_host && sharded()) return DrawWithOthers(run);
  SKEIN_RETURN_IF_ERROR(finished_.Record(stream_.get()));
  SKEIN_RETURN_IF_ERROR(finished_.Delay(host_stream_.get()));
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaLaunchHostFunc(CudaStream(host_stream_.get()), &CudaExecutable::Draw, &run));
  SKEIN_RETURN_IF_ERROR(run.done.Record(host_stream_.get()));
  if (!run.by_host && run.guesses.empty()) return absl::OkStatus();
  TakeUpDraws(run);
  return run.done.Delay(stream_.get());
}

absl::Status CudaExecutable::SumOverShards(int64_t place, int64_t floats) {
  return bindings_.collectives->AllReduce({workspace_.At<float>(place), DType::kF32, 1, floats},
                                          stream_.get());
}

absl::Status CudaExecutable::EnqueueGreedy(const BatchRun& run, const DrawRows& rows) {
  if (upload_.greedy == 0) return absl::OkStatus();
  const DevicePlaces& places = workspace_.places;
  const auto* const block = workspace_.At<std::byte>(places.uploads[run.batch]);
  GreedyDraws greedy = {.draws = upload_.greedy,
                        .rows = reinterpret_cast<const SetPair*>(block + upload_.greedy_draws()),
                        .of = rows,
                        .best = workspace_.At<uint64_t>(places.best),
                        .arrived = workspace_.At<uint32_t>(places.arrived)};
  if (!sharded()) return cuda::Enqueue(greedy, stream_.get());
  auto* const candidates = workspace_.At<DrawCandidate>(places.candidates);
  const int64_t all = int64_t{program_.vocab_shards} * greedy.draws;
  SKEIN_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(
      candidates, 0, static_cast<size_t>(all) * sizeof(DrawCandidate), CudaStream(stream_.get())));
  const int64_t part = program_.vocab_part.block * program_.vocab_part.blocks;
  greedy.candidates = candidates + program_.vocab_part.first / part * greedy.draws;
  if (greedy.of.tokens > 0) SKEIN_RETURN_IF_ERROR(cuda::Enqueue(greedy, stream_.get()));
  SKEIN_RETURN_IF_ERROR(SumOverShards(places.candidates, 2 * all));
  return cuda::Enqueue(
      JoinGreedyDraws{.draws = greedy.draws,
                      .rows = greedy.rows,
                      .shards = static_cast<int32_t>((program_.vocab_size + part - 1) / part),
                      .candidates = candidates,
                      .newest_tokens = rows.newest_tokens,
                      .drawn = rows.drawn},
      stream_.get());
}

absl::Status CudaExecutable::EnqueueSampled(const SampledDraws& draws) {
  if (!sharded()) return cuda::Enqueue(draws, stream_.get());
  const DevicePlaces& places = workspace_.places;
  auto* const gathered = workspace_.At<float>(places.gathered);
  for (int32_t begin = 0; begin < draws.draws; begin += kSampledAtOnce) {
    SampledDraws some = draws;
    some.draws = std::min(draws.draws - begin, static_cast<int32_t>(kSampledAtOnce));
    some.rows += begin;
    SKEIN_RETURN_IF_ERROR(cuda::Enqueue(SpreadRows{.draws = some.draws,
                                                   .rows = some.rows,
                                                   .of = draws.of,
                                                   .out = gathered,
                                                   .out_stride = places.gathered_stride},
                                        stream_.get()));
    SKEIN_RETURN_IF_ERROR(SumOverShards(places.gathered, some.draws * places.gathered_stride));
    some.of.tokens = program_.vocab_size;
    some.of.logits = gathered;
    some.of.logits_stride = places.gathered_stride;
    some.of.first_id = 0;
    some.of.drawn += begin;
    some.in_order = true;
    if (some.masks != nullptr) some.masks += begin * some.mask_words;
    SKEIN_RETURN_IF_ERROR(cuda::Enqueue(some, stream_.get()));
  }
  return absl::OkStatus();
}

absl::Status CudaExecutable::EnqueueSampled(BatchRun& run, const DrawRows& rows) {
  const auto* const block = workspace_.At<std::byte>(workspace_.places.uploads[run.batch]);
  SampledDraws draws = {
      .draws = upload_.sampled - run.masks,
      .rows = reinterpret_cast<const SampledDraw*>(block + upload_.sampled_draws()),
      .of = rows,
      .slots = MemoryOfSlots()};
  SKEIN_RETURN_IF_ERROR(EnqueueSampled(draws));
  if (run.masks == 0) return absl::OkStatus();
  // The host waits for them while the batch runs.
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaLaunchHostFunc(CudaStream(host_stream_.get()), &CudaExecutable::AwaitMasks, &run));
  SKEIN_RETURN_IF_ERROR(run.masked.Record(host_stream_.get()));
  SKEIN_RETURN_IF_ERROR(run.masked.Delay(stream_.get()));
  draws.rows += draws.draws;
  draws.of.drawn += draws.draws;
  draws.draws = run.masks;
  draws.masks = BitsOf(run.batch);
  draws.mask_words = MaskWords(program_.vocab_size);
  return EnqueueSampled(draws);
}

void CudaExecutable::AwaitMasks(void* run) {
  auto& self = *static_cast<BatchRun*>(run);
  const absl::Status status = self.self->AwaitMasks(self);
  if (!status.ok()) self.self->Abort(status);
}

absl::Status CudaExecutable::AwaitMasks(const BatchRun& run) {
  const int64_t words = MaskWords(program_.vocab_size);
  uint32_t* bits = BitsOf(run.batch);
  for (const BatchRun::Draw& draw : run.draws) {
    if (draw.kind != Kind::kMasked) continue;
    SKEIN_ASSIGN_OR_RETURN(const absl::Span<const uint32_t> mask,
                           masks_.Await(run.batch, draw.slot, [this] { return CheckAborted(); }));
    // The sampler refuses one of another size.
    const int64_t end = std::min((draw.guesses + 1) * words, static_cast<int64_t>(mask.size()));
    const int64_t begin = std::min(draw.guesses * words, end);
    std::copy(mask.begin() + begin, mask.begin() + end, bits);
    bits += words;
  }
  return absl::OkStatus();
}

uint32_t* CudaExecutable::BitsOf(int i) const {
  return reinterpret_cast<uint32_t*>(bits_.data()) +
         int64_t{i} * limits_.outputs * MaskWords(program_.vocab_size);
}

// The next batch finds them in the host's memory.
void CudaExecutable::TakeUpDraws(const BatchRun& run) {
  last_drawn_ =
      reinterpret_cast<const SetPair*>(drawn_.data()) + int64_t{run.batch} * limits_.slots;
  last_drawn_count_ =
      static_cast<int32_t>(std::count_if(run.draws.begin(), run.draws.end(),
                                         [](const BatchRun::Draw& draw) { return draw.begins(); }));
}

// Collectives are for the thread that makes a batch's calls.
absl::Status CudaExecutable::DrawWithOthers(BatchRun& run) {
  SKEIN_RETURN_IF_ERROR(Annotate(AwaitStream(), run.what));
  // The sampler has one batch after the other.
  SKEIN_RETURN_IF_ERROR(runs_[kBatches - 1 - run.batch]
                            .done.Await(absl::InfiniteFuture(), [this] { return Idle(); })
                            .status());
  SKEIN_RETURN_IF_ERROR(Draw(run));
  TakeUpDraws(run);
  return run.done.Record(stream_.get());
}

DeviceDraw* CudaExecutable::MadeBy(int i) const {
  return reinterpret_cast<DeviceDraw*>(made_.data()) + int64_t{i} * limits_.outputs;
}

// By kind, and each kind in the batch's order.
void CudaExecutable::NumberMade(BatchRun& run) const {
  run.made.assign(batches_[run.batch].outputs(), -1);
  int32_t made = 0;
  for (const Kind kind : {Kind::kGreedy, Kind::kSampled, Kind::kMasked}) {
    for (const BatchRun::Draw& draw : run.draws) {
      if (draw.kind == kind) run.made[draw.output] = made++;
    }
  }
}

void CudaExecutable::ForEach(int64_t tasks, absl::FunctionRef<void(int64_t)> task) const {
  pool_->ForEach(tasks, [&task](int64_t i, int) { task(i); });
}

void CudaExecutable::Draw(void* run) {
  auto& self = *static_cast<BatchRun*>(run);
  self.status = self.self->Draw(self);
  // What comes behind it in the stream is void.
  if (!self.status.ok()) self.self->Abort(self.status);
}

absl::Status CudaExecutable::Draw(BatchRun& run) {
  SKEIN_RETURN_IF_ERROR(CheckAborted());
  const Batch& batch = batches_[run.batch];
  SKEIN_RETURN_IF_ERROR(sampler_->Update(batch));
  for (const SlotUpdate* update : run.shortened) sampler_->TakeBack(*update);
  const int64_t cols = program_.buffers[program_.logits].cols;
  const auto logits = [&](int64_t output) {
    return absl::MakeConstSpan(reinterpret_cast<const float*>(logits_.data()) + output * cols,
                               program_.vocab_tokens());
  };
  NumberMade(run);
  const auto made = [&](int64_t output) -> const DeviceDraw* {
    return run.made[output] < 0 ? nullptr : MadeBy(run.batch) + run.made[output];
  };
  const auto first_position = [&run](int64_t sequence) { return run.first_positions[sequence]; };
  const auto for_each = [this](int64_t tasks, absl::FunctionRef<void(int64_t)> task) {
    ForEach(tasks, task);
  };
  const auto mask = [&](int32_t slot) {
    return masks_.Await(run.batch, slot, [this] {
      return sharded() ? bindings_.collectives->Progress() : absl::OkStatus();
    });
  };
  SKEIN_RETURN_IF_ERROR(sampler_->Sample(batch,
                                         {.logits = logits,
                                          .made = made,
                                          .first_position = first_position,
                                          .for_each = for_each,
                                          .mask = mask},
                                         run.result));
  masks_.Clear(run.batch);
  run.result.pooled.clear();
  if (run.pools) {
    pooler_->Pool(batch, program_.buffers[program_.pooled.in].dtype, PooledRowsOf(run.batch),
                  for_each, run.result.pooled);
  }
  auto* pair = reinterpret_cast<SetPair*>(drawn_.data()) + int64_t{run.batch} * limits_.slots;
  for (const SampledTokens& drawn : run.result.sampled) {
    *pair++ = {drawn.slot, drawn.tokens.empty() ? 0 : drawn.tokens.back().id};
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels::cuda
