// A string that knows which of its bytes users wrote.
//
// Every operation keeps the marks byte for byte: a byte of the result is marked where the bytes
// that it was made from were. Comparisons look at bytes only. Plain values: copies are independent.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace skein::model {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;  // behind the last byte
  bool operator==(const ByteRange&) const = default;
};

enum class Origin { kTemplate, kUser };

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, Origin origin = Origin::kTemplate);

  const std::string& bytes() const { return bytes_; }
  // Sorted, disjoint, none empty, none touches the next.
  const std::vector<ByteRange>& user() const { return user_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Roughly what it takes of memory.
  size_t footprint() const { return bytes_.size() + user_.size() * sizeof(ByteRange); }

  void Append(std::string_view bytes, Origin origin = Origin::kTemplate);
  void Append(const Text& other) { AppendPart(other, 0, other.size()); }
  // Bytes [begin, end) of `other`, which is not this text.
  void AppendPart(const Text& other, size_t begin, size_t end);
  Text Part(size_t begin, size_t end) const;
  // kUser where a user wrote any byte of [begin, end).
  Origin OriginOf(size_t begin, size_t end) const;
  Origin AnyOrigin() const { return user_.empty() ? Origin::kTemplate : Origin::kUser; }

 private:
  void Mark(size_t begin, size_t end);

  std::string bytes_;
  std::vector<ByteRange> user_;
};

}  // namespace skein::model
