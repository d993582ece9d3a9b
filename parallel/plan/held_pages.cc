#include "parallel/plan/held_pages.h"

#include <algorithm>

namespace skein::plan {

int64_t MostHeldPages(int64_t tokens, int64_t window, int64_t step_rows, int64_t page_size) {
  const int64_t all = (tokens + page_size - 1) / page_size;
  if (window <= 0) return all;
  // Positions that lie anywhere begin one page and end another.
  const int64_t seen = window - 1 + step_rows;
  return std::min(all, (seen + page_size - 2) / page_size + 1);
}

}  // namespace skein::plan
