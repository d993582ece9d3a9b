#include "model/template/text.h"

#include <algorithm>
#include <utility>

namespace skein::model {
namespace {

// The first range that ends behind `at`.
std::vector<ByteRange>::const_iterator FirstBehind(const std::vector<ByteRange>& ranges,
                                                   size_t at) {
  return std::upper_bound(ranges.begin(), ranges.end(), at,
                          [](size_t value, const ByteRange& range) { return value < range.end; });
}

}  // namespace

Text::Text(std::string bytes, Origin origin) : bytes_(std::move(bytes)) {
  if (origin == Origin::kUser) Mark(0, bytes_.size());
}

void Text::Append(std::string_view bytes, Origin origin) {
  const size_t begin = bytes_.size();
  bytes_.append(bytes);
  if (origin == Origin::kUser) Mark(begin, bytes_.size());
}

void Text::AppendPart(const Text& other, size_t begin, size_t end) {
  const size_t base = bytes_.size();
  bytes_.append(other.bytes_, begin, end - begin);
  for (auto range = FirstBehind(other.user_, begin);
       range != other.user_.end() && range->begin < end; ++range) {
    Mark(base + std::max(range->begin, begin) - begin, base + std::min(range->end, end) - begin);
  }
}

Text Text::Part(size_t begin, size_t end) const {
  Text part;
  part.AppendPart(*this, begin, end);
  return part;
}

Origin Text::OriginOf(size_t begin, size_t end) const {
  const auto range = FirstBehind(user_, begin);
  return range != user_.end() && range->begin < end ? Origin::kUser : Origin::kTemplate;
}

void Text::Mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!user_.empty() && user_.back().end == begin) {
    user_.back().end = end;
  } else {
    user_.push_back({begin, end});
  }
}

}  // namespace skein::model
