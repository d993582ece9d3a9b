#include "coordinator/service/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace skein::coordinator {

void StopMatcher::Automaton::Advance(char byte) {
  while (length > 0 && stop[length] != byte) length = fallback[length - 1];
  if (stop[length] == byte) ++length;
}

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    Automaton automaton{stop, std::vector<size_t>(stop.size(), 0)};
    for (size_t i = 1; i < stop.size(); ++i) {
      automaton.Advance(stop[i]);
      automaton.fallback[i] = automaton.length;
    }
    automaton.length = 0;
    automata_.push_back(std::move(automaton));
  }
}

std::string StopMatcher::Push(std::string_view bytes) {
  if (matched_.has_value()) return "";
  size_t open = 0;  // bytes at the end of held_ that may begin a stop string
  for (const char byte : bytes) {
    held_.push_back(byte);
    open = 0;
    for (size_t i = 0; i < automata_.size(); ++i) {
      Automaton& automaton = automata_[i];
      automaton.Advance(byte);
      open = std::max(open, automaton.length);
      if (automaton.length < automaton.stop.size()) continue;
      if (!matched_.has_value() || automaton.stop.size() > matched()->size()) matched_ = i;
    }
    if (!matched_.has_value()) continue;
    held_.resize(held_.size() - matched()->size());
    return std::exchange(held_, "");
  }
  if (bytes.empty()) return "";
  std::string out = held_.substr(0, held_.size() - open);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::Finish() { return std::exchange(held_, ""); }

}  // namespace skein::coordinator
