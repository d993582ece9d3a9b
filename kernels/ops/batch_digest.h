// A word that tells batches apart, for ranks that compute parts of one.
#pragma once

#include <cstdint>

#include "kernels/ops/batch.h"

namespace skein::kernels {

// Of all that ranks of a stage have to have alike: sequences, tokens, pages, copies; of starts the
// slots and the lengths of prompts. Pure; costs some ns a row and page.
uint32_t DigestOf(const Batch& batch);

}  // namespace skein::kernels
