// The draws of a CudaExecutable: which the device makes, and what the host does for the others.
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

// ---- Slots ----

absl::Status CudaExecutable::PutDown(int i, void* to, const void* from, int64_t bytes) {
  std::byte* const staging = put_down_.data() + i * kPutDownBytes;
  while (bytes > 0) {
    if (put_down_bytes_ == kPutDownBytes) {
      SKEIN_RETURN_IF_ERROR(AwaitStream());
      put_down_bytes_ = 0;
    }
    const int64_t some = std::min(bytes, kPutDownBytes - put_down_bytes_);
    std::memcpy(staging + put_down_bytes_, from, static_cast<size_t>(some));
    SKEIN_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(to, staging + put_down_bytes_,
                                               static_cast<size_t>(some), cudaMemcpyHostToDevice,
                                               CudaStream(stream_.get())));
    put_down_bytes_ += some;
    bytes -= some;
    to = static_cast<std::byte*>(to) + some;
    from = static_cast<const std::byte*>(from) + some;
  }
  return absl::OkStatus();
}

SlotMemory CudaExecutable::MemoryOfSlots() const {
  const DevicePlaces& places = workspace_.places;
  return {.histories = workspace_.At<int32_t>(places.histories),
          .history_stride = places.history_stride,
          .lists = workspace_.At<SetPair>(places.lists),
          .mus = workspace_.At<float>(places.mus),
          .breakers = workspace_.At<uint32_t>(places.breakers),
          .breaker_words = MaskWords(program_.vocab_size)};
}

absl::Status CudaExecutable::PutDownTokens(int i, int32_t slot, int64_t position,
                                           absl::Span<const int32_t> tokens) {
  const SlotMemory memory = MemoryOfSlots();
  return PutDown(i, memory.histories + slot * memory.history_stride + position, tokens.data(),
                 static_cast<int64_t>(tokens.size() * sizeof(int32_t)));
}

absl::Status CudaExecutable::PutDownMu(int i, int32_t slot, float mu) {
  return PutDown(i, MemoryOfSlots().mus + slot, &mu, sizeof(mu));
}

bool CudaExecutable::CanSample() const {
  return HopperForms() && program_.vocab_size <= kMaxSampledTokens;
}

absl::Status CudaExecutable::StartDraws(const SlotStart& start, int i) {
  const serving::SamplingParams& sampling = start.sampling;
  SlotDraws& draws = slot_draws_[start.slot];
  draws = {.sampling = sampling, .position = start.output.size()};
  draws.prompt = start.prompt_of >= 0 ? slot_draws_[start.prompt_of].prompt
                                      : std::make_shared<const std::vector<int32_t>>(start.prompt);
  if (program_.logits < 0) return absl::OkStatus();
  if (TakesMostLikely(sampling)) {
    draws.kind = Kind::kGreedy;
    return absl::OkStatus();
  }
  const SlotParameters parameters = SlotParametersOf(sampling, program_.vocab_size);
  draws.draw = parameters.draw;
  const SlotMemory memory = MemoryOfSlots();
  const auto prompt = static_cast<int64_t>(draws.prompt->size());
  const auto history = prompt + static_cast<int64_t>(start.output.size());
  if (!CanSample() || parameters.list.size() > size_t{kSlotEntries} ||
      sampling.logprobs > DeviceDraw::kMostTold ||
      (draws.draw.remembers() && history >= memory.history_stride)) {
    return absl::OkStatus();
  }
  draws.kind = Kind::kSampled;
  if (draws.draw.remembers()) {
    SKEIN_RETURN_IF_ERROR(PutDownTokens(i, start.slot, 0, *draws.prompt));
    SKEIN_RETURN_IF_ERROR(PutDownTokens(i, start.slot, prompt, start.output));
  }
  const auto put_down = [&](auto* to, const auto& list) {
    return PutDown(i, to, list.data(), static_cast<int64_t>(list.size() * sizeof(list[0])));
  };
  SKEIN_RETURN_IF_ERROR(
      put_down(memory.lists + int64_t{start.slot} * kSlotEntries, parameters.list));
  SKEIN_RETURN_IF_ERROR(
      put_down(memory.breakers + start.slot * memory.breaker_words, parameters.breakers));
  if (sampling.mirostat_tau == 0.0f) return absl::OkStatus();
  return PutDownMu(i, start.slot, start.mu.value_or(2 * sampling.mirostat_tau));
}

absl::Status CudaExecutable::TakeBackDraws(const SlotUpdate& update, int i) {
  SlotDraws& draws = slot_draws_[update.slot];
  const auto left =
      static_cast<uint64_t>(DrawsLeft(*update.length, static_cast<int64_t>(draws.prompt->size())));
  draws.position = std::min(draws.position, left);
  if (!update.mu.has_value() || draws.kind != Kind::kSampled) return absl::OkStatus();
  return PutDownMu(i, update.slot, *update.mu);
}

absl::Status CudaExecutable::PutDownDraws(int i, const SampledTokens& drawn) {
  const SlotDraws& draws = slot_draws_[drawn.slot];
  if (draws.kind != Kind::kSampled || drawn.tokens.empty()) return absl::OkStatus();
  if (draws.draw.remembers()) {
    std::vector<int32_t> ids;
    for (const serving::SampledToken& token : drawn.tokens) ids.push_back(token.id);
    const int64_t end = static_cast<int64_t>(draws.prompt->size() + draws.position);
    SKEIN_RETURN_IF_ERROR(
        PutDownTokens(i, drawn.slot, end - static_cast<int64_t>(ids.size()), ids));
  }
  if (draws.sampling.mirostat_tau == 0.0f) return absl::OkStatus();
  return PutDownMu(i, drawn.slot, drawn.tokens.back().mu);
}

// ---- Batches ----

CudaExecutable::Kind CudaExecutable::KindOf(const BatchSequence& sequence) const {
  if (sequence.guesses > 0) return Kind::kByHost;
  const SlotDraws& draws = slot_draws_[sequence.slot];
  if (!sequence.masked || draws.kind == Kind::kByHost) return draws.kind;
  return CanSample() ? Kind::kMasked : Kind::kByHost;
}

void CudaExecutable::ListDraws(int i) {
  BatchRun& run = runs_[i];
  const Batch& batch = batches_[i];
  run.draws.clear();
  run.by_host = false;
  run.masks = 0;
  int64_t outputs = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    outputs += sequence.outputs;
    run.by_host |= sequence.prompt_logprobs >= 0;
    if (!sequence.draws) continue;
    const Kind kind = KindOf(sequence);
    run.draws.push_back({.output = outputs - 1, .slot = sequence.slot, .kind = kind});
    run.by_host |= kind == Kind::kByHost;
    run.masks += kind == Kind::kMasked ? 1 : 0;
  }
}

SampledDraw CudaExecutable::SampledDrawOf(const BatchRun::Draw& draw) const {
  const SlotDraws& slot = slot_draws_[draw.slot];
  SampledDraw sampled = DrawBehind(slot.draw, slot.sampling,
                                   static_cast<int64_t>(slot.prompt->size()), slot.position);
  sampled.row = static_cast<int32_t>(draw.output);
  sampled.slot = draw.slot;
  return sampled;
}

// To the host: all that the device does not draw from. Rows that follow each other at once.
absl::Status CudaExecutable::CopyRows(const BatchRun& run) {
  const View logits = port(program_.logits, run.batch);
  const int64_t row_bytes = DTypeBytes(logits.dtype, logits.cols);
  std::vector<bool> wanted(rows_.outputs(), true);
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
  if (run.by_host && sharded()) return DrawWithOthers(run);
  SKEIN_RETURN_IF_ERROR(finished_.Record(stream_.get()));
  SKEIN_RETURN_IF_ERROR(finished_.Delay(host_stream_.get()));
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaLaunchHostFunc(CudaStream(host_stream_.get()), &CudaExecutable::Draw, &run));
  SKEIN_RETURN_IF_ERROR(run.done.Record(host_stream_.get()));
  if (!run.by_host) return absl::OkStatus();
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
    std::copy_n(mask.begin(), std::min<int64_t>(words, static_cast<int64_t>(mask.size())), bits);
    bits += words;
  }
  return absl::OkStatus();
}

uint32_t* CudaExecutable::BitsOf(int i) const {
  return reinterpret_cast<uint32_t*>(bits_.data()) +
         int64_t{i} * limits_.slots * MaskWords(program_.vocab_size);
}

// The next batch finds them in the host's memory.
void CudaExecutable::TakeUpDraws(const BatchRun& run) {
  last_drawn_ =
      reinterpret_cast<const SetPair*>(drawn_.data()) + int64_t{run.batch} * limits_.slots;
  last_drawn_count_ = static_cast<int32_t>(run.draws.size());
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
  return reinterpret_cast<DeviceDraw*>(made_.data()) + int64_t{i} * limits_.slots;
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
    pool_->ForEach(tasks, [&task](int64_t i, int) { task(i); });
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
  auto* pair = reinterpret_cast<SetPair*>(drawn_.data()) + int64_t{run.batch} * limits_.slots;
  for (const SampledTokens& drawn : run.result.sampled) {
    *pair++ = {drawn.slot, drawn.tokens.empty() ? 0 : drawn.tokens.back().id};
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels::cuda
