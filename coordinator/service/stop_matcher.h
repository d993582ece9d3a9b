// Finds the first of several byte strings in a stream of bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::coordinator {

// Hands out the stream up to the first stop string and holds back what may be the beginning of one,
// so that the result does not depend on how the stream is cut. First is the one that is complete at
// the earliest byte; of several that are complete there, the longest. Not thread-safe. Push costs
// O(bytes * stop strings), by one Knuth-Morris-Pratt automaton for each.
class StopMatcher {
 public:
  // No stop string is empty.
  explicit StopMatcher(const std::vector<std::string>& stops);

  // The bytes that can be given out now. After a match it returns nothing more.
  std::string Push(std::string_view bytes);
  // The bytes that were held back, when the stream ends without a match.
  std::string Finish();

  // The stop string that was found; null before.
  const std::string* matched() const {
    return matched_.has_value() ? &automata_[*matched_].stop : nullptr;
  }

 private:
  struct Automaton {
    std::string stop;
    std::vector<size_t> fallback;  // [i]: longest proper border of stop's first i + 1 bytes
    size_t length = 0;             // of stop's longest beginning that the stream ends with

    void Advance(char byte);
  };

  std::vector<Automaton> automata_;
  std::string held_;
  std::optional<size_t> matched_;
};

}  // namespace skein::coordinator
