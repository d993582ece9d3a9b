// What the device keeps of a CudaExecutable's slots for their draws.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_executable.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/device_places.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/slot_parameters.h"

namespace skein::kernels::cuda {

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
  return program_.logits >= 0 && HopperForms() && program_.vocab_size <= kMaxSampledTokens;
}

absl::Status CudaExecutable::StartDraws(const SlotStart& start, int i) {
  const serving::SamplingParams& sampling = start.sampling;
  SlotDraws& draws = slot_draws_[start.slot];
  draws = {.sampling = sampling, .position = start.output.size()};
  draws.prompt = start.prompt_of >= 0 ? slot_draws_[start.prompt_of].prompt
                                      : std::make_shared<const std::vector<int32_t>>(start.prompt);
  if (program_.logits < 0) return absl::OkStatus();
  const SlotParameters parameters = SlotParametersOf(sampling, program_.vocab_size);
  draws.draw = parameters.draw;
  if (TakesMostLikely(sampling)) {
    draws.kind = Kind::kGreedy;
    return absl::OkStatus();
  }
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

absl::Status CudaExecutable::PutDownGuesses(int i) {
  const Batch& batch = batches_[i];
  absl::Span<const int32_t> tokens = batch.token_ids;
  for (const BatchSequence& sequence : batch.sequences) {
    const absl::Span<const int32_t> guesses = tokens.first(sequence.rows).last(sequence.guesses);
    tokens.remove_prefix(sequence.rows);
    const SlotDraws& draws = slot_draws_[sequence.slot];
    if (draws.kind != Kind::kSampled || !draws.draw.remembers()) continue;
    const auto end = static_cast<int64_t>(draws.prompt->size() + draws.position);
    SKEIN_RETURN_IF_ERROR(PutDownTokens(i, sequence.slot, end, guesses));
  }
  return absl::OkStatus();
}

absl::Status CudaExecutable::TakeBackGuesses(int i) {
  for (BatchRun& run : runs_) {
    if (run.guesses.empty()) continue;
    SKEIN_RETURN_IF_ERROR(Wait(run.ticket, kHostStream, absl::InfiniteFuture()).status());
    for (size_t g = 0; g < run.guesses.size(); ++g) {
      const SampledTokens& drawn = run.result.sampled[g];
      const auto right = std::max<int64_t>(static_cast<int64_t>(drawn.tokens.size()) - 1, 0);
      slots_->TakeBack(drawn.slot, run.guesses[g] - right);
      slot_draws_[drawn.slot].position += right;
      if (run.guesses[g] > 0) SKEIN_RETURN_IF_ERROR(PutDownDraws(i, drawn));
    }
    run.guesses.clear();
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels::cuda
