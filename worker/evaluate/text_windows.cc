#include "worker/evaluate/text_windows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::worker {

absl::StatusOr<std::vector<TextWindow>> CutWindows(int64_t tokens, const WindowOptions& options) {
  const int64_t begins = options.has_begin ? 1 : 0;
  const int64_t most = options.context - begins;  // of the text
  if (options.context < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--context: a window of ", options.context, " is too short; 2 are the least"));
  }
  if (options.stride < 1 || options.stride > most) {
    return absl::InvalidArgumentError(absl::StrCat("--stride: must be from 1 to ", most,
                                                   ", the text's tokens in a window, not ",
                                                   options.stride));
  }
  if (tokens + begins < 2) {
    return absl::InvalidArgumentError(absl::StrCat("TEXT: its ", tokens, " tokens are too few"));
  }
  std::vector<TextWindow> windows;
  int64_t scored = 0;
  for (int64_t begin = 0; scored < tokens; begin += options.stride) {
    const int64_t end = std::min(begin + most, tokens);
    const int64_t first = std::max(scored, begin + 1 - begins);
    if (first < end) windows.push_back({begin, end, first});
    scored = end;
  }
  return windows;
}

}  // namespace skein::worker
