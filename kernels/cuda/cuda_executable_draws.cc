// The draws of a CudaExecutable: which the device makes, and what the host does for the others.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

namespace skein::kernels::cuda {

void CudaExecutable::StartDraws(const SlotStart& start) {
  SlotDraws& draws = slot_draws_[start.slot];
  draws.prompt = static_cast<int64_t>(start.prompt.size());
  if (start.prompt_of >= 0) draws.prompt = slot_draws_[start.prompt_of].prompt;
  draws.position = start.output.size();
  draws.sampling = start.sampling;
  const bool greedy = start.sampling.temperature == 0.0f;
  // Of a shard's logits alone only the most likely token can be found, and of none nothing. By
  // chance the device and the host draw from sums of unlike last bits.
  const bool can = DrawsInOrder(start.sampling) && program_.vocab_tokens() > 0 &&
                   (greedy || (!sharded() && !program_.deterministic &&
                               program_.vocab_size <= kMaxRandomTokens));
  draws.kind = !can ? Kind::kByHost : (greedy ? Kind::kGreedy : Kind::kRandom);
}

void CudaExecutable::TakeBackDraws(const SlotUpdate& update) {
  SlotDraws& draws = slot_draws_[update.slot];
  const auto left = static_cast<uint64_t>(DrawsLeft(*update.length, draws.prompt));
  draws.position = std::min(draws.position, left);
}

void CudaExecutable::ListDraws(int i) {
  BatchRun& run = runs_[i];
  const Batch& batch = batches_[i];
  run.draws.clear();
  run.by_host = false;
  int64_t outputs = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    outputs += sequence.outputs;
    const bool plain = sequence.guesses == 0 && !sequence.masked && sequence.prompt_logprobs < 0;
    if (sequence.draws) {
      const Kind kind = plain ? slot_draws_[sequence.slot].kind : Kind::kByHost;
      run.draws.push_back({.output = outputs - 1, .slot = sequence.slot, .kind = kind});
      run.by_host |= kind == Kind::kByHost;
    } else {
      run.by_host |= sequence.prompt_logprobs >= 0;
    }
  }
}

// To the host: all that is not drawn from its first tokens. Rows that follow each other at once.
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
  const DevicePlaces& places = workspace_.places;
  const auto* const block = workspace_.At<std::byte>(places.uploads[i]);
  DrawRows rows = {
      .tokens = program_.vocab_tokens(),
      .logits = static_cast<const float*>(logits.data),
      .logits_stride = logits.cols,
      .first_id = static_cast<int32_t>(program_.vocab_part.first),
      // Of a shard's logits alone, the choice is still to be made.
      .newest_tokens = sharded() ? nullptr : workspace_.At<int32_t>(places.newest_tokens),
      .drawn = MadeBy(i)};
  if (upload_.greedy > 0) {
    SKEIN_RETURN_IF_ERROR(cuda::Enqueue(
        GreedyDraws{.draws = upload_.greedy,
                    .rows = reinterpret_cast<const SetPair*>(block + upload_.greedy_draws()),
                    .of = rows,
                    .best = workspace_.At<uint64_t>(places.best),
                    .arrived = workspace_.At<uint32_t>(places.arrived)},
        stream_.get()));
  }
  rows.drawn += upload_.greedy;
  if (upload_.random > 0) {
    SKEIN_RETURN_IF_ERROR(cuda::Enqueue(
        RandomDraws{.draws = upload_.random,
                    .rows = reinterpret_cast<const RandomDraw*>(block + upload_.random_draws()),
                    .of = rows},
        stream_.get()));
  }
  if (run.by_host) SKEIN_RETURN_IF_ERROR(CopyRows(run));
  if (sharded()) return DrawWithOthers(run);
  SKEIN_RETURN_IF_ERROR(finished_.Record(stream_.get()));
  SKEIN_RETURN_IF_ERROR(finished_.Delay(host_stream_.get()));
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaLaunchHostFunc(CudaStream(host_stream_.get()), &CudaExecutable::Draw, &run));
  SKEIN_RETURN_IF_ERROR(run.done.Record(host_stream_.get()));
  if (!run.by_host) return absl::OkStatus();
  TakeUpDraws(run);
  return run.done.Delay(stream_.get());
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
  SKEIN_RETURN_IF_ERROR(Draw(run));
  TakeUpDraws(run);
  return run.done.Record(stream_.get());
}

DeviceDraw* CudaExecutable::MadeBy(int i) const {
  return reinterpret_cast<DeviceDraw*>(made_.data()) + int64_t{i} * limits_.slots;
}

// Greedy draws come first, each kind in the batch's order.
void CudaExecutable::NumberMade(BatchRun& run) const {
  run.made.assign(batches_[run.batch].outputs(), -1);
  int32_t made = 0;
  for (const Kind kind : {Kind::kGreedy, Kind::kRandom}) {
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
