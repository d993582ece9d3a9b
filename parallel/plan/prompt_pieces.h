// How the prompts of a step are cut into micro-batches.
#pragma once

#include <cstdint>

namespace skein::plan {

// Cutting a prompt finer than this reads the weights once more without filling the pipeline.
constexpr int64_t kMinPromptRows = 16;

// Prompts wait for no token, so that their bubble is what one micro-batch takes: with two for every
// stage it is half as long as with one. More would gain half of that, and cost more messages.
constexpr int32_t PromptPieces(int32_t stages) { return stages == 1 ? 1 : 2 * stages; }

}  // namespace skein::plan
