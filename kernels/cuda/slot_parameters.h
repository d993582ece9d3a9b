// What a slot's draws depend on, as the device has it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/batch_upload.h"
#include "serving/sampling_params.h"

namespace skein::kernels::cuda {

struct SlotParameters {
  // With all that is the same for each draw, `stops` for an output that is too short.
  SampledDraw draw;
  std::vector<SetPair> list;       // as SlotMemory has it; may be too long for a slot
  std::vector<uint32_t> breakers;  // [MaskWords]; empty where no token breaks repeats by itself
};

// Tokens outside of the vocabulary break nothing.
SlotParameters SlotParametersOf(const serving::SamplingParams& params, int64_t vocabulary);

// A slot's draw behind a history of `prompt` and `output` tokens.
SampledDraw DrawBehind(const SampledDraw& of, const serving::SamplingParams& params, int64_t prompt,
                       uint64_t output);

}  // namespace skein::kernels::cuda
