// How a text of any length is cut into windows that a model's context holds. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::worker {

struct WindowOptions {
  int64_t context = 512;   // tokens of a window, the one that begins texts included
  int64_t stride = 256;    // tokens from one window's begin to the next one's
  bool has_begin = false;  // each window begins with a token that is not the text's
};

// Tokens [begin, end) of the text, of which those from `first_scored` on have not been scored by
// the windows before.
struct TextWindow {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_scored = 0;

  friend bool operator==(const TextWindow&, const TextWindow&) = default;
};

// Every token is scored once, by the first window that has it; but the text's first one, where
// nothing stands before it, and, where windows do not overlap, each one's. InvalidArgument names
// the flag: windows that hold no two tokens, a stride beyond them, a text too short to score any.
absl::StatusOr<std::vector<TextWindow>> CutWindows(int64_t tokens, const WindowOptions& options);

}  // namespace skein::worker
