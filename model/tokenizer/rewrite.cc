#include "model/tokenizer/rewrite.h"

#include <algorithm>
#include <utility>

namespace skein::model {

void Rewrite::Keep(size_t end) {
  if (end == at_) return;
  const size_t offset = made_.text.size();
  for (; next_ < from_.marked.size(); ++next_) {
    const auto begins = static_cast<size_t>(from_.marked[next_].begin);
    const auto ends = static_cast<size_t>(from_.marked[next_].end);
    if (begins >= end) break;
    Mark(offset + std::max(begins, at_) - at_, offset + std::min(ends, end) - at_);
    if (ends > end) break;
  }
  made_.text.append(from_.text, at_, end - at_);
  at_ = end;
}

void Rewrite::Replace(size_t end, std::string_view by) {
  const size_t offset = made_.text.size();
  bool marked = false;
  for (; next_ < from_.marked.size(); ++next_) {
    const auto begins = static_cast<size_t>(from_.marked[next_].begin);
    const auto ends = static_cast<size_t>(from_.marked[next_].end);
    if (begins == at_ && ends == at_) {  // before what is replaced
      Mark(offset, offset);
      continue;
    }
    if (begins >= end) break;
    marked = true;
    if (ends > end) break;
  }
  made_.text += by;
  if (marked) Mark(offset, made_.text.size());
  at_ = end;
}

MarkedText Rewrite::Take() {
  Keep(from_.text.size());
  return std::move(made_);
}

void Rewrite::Mark(size_t begin, size_t end) {
  std::vector<Range>& marked = made_.marked;
  if (!marked.empty() && static_cast<size_t>(marked.back().end) >= begin) {
    marked.back().end = static_cast<int64_t>(end);
  } else {
    marked.push_back({static_cast<int64_t>(begin), static_cast<int64_t>(end)});
  }
}

}  // namespace skein::model
