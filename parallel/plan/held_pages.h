// Counts the KV pages that a sequence holds at once.
#pragma once

#include <cstdint>

namespace skein::plan {

// The most pages of `page_size` tokens that a sequence of `tokens` tokens holds at once, where a
// row attends to `window` positions at most, its own included (0: to all before it), and a step
// gives a sequence `step_rows` rows at most. Pages that no later row sees are given back when a
// step has been planned. All arguments are positive, or 0 as said.
int64_t MostHeldPages(int64_t tokens, int64_t window, int64_t step_rows, int64_t page_size);

}  // namespace skein::plan
