// Sets of code points, and the classes of Unicode 16.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace skein::model {

inline constexpr uint32_t kCodePoints = 0x110000;

class CodePointSet {
 public:
  CodePointSet() = default;                     // none
  CodePointSet(uint32_t first, uint32_t last);  // first <= last < kCodePoints, both in it
  explicit CodePointSet(uint32_t one) : CodePointSet(one, one) {}
  explicit CodePointSet(std::vector<uint32_t> edges) : edges_(std::move(edges)) {}  // see edges()

  void Add(const CodePointSet& other);
  CodePointSet Complement() const;
  bool Contains(uint32_t code_point) const;

  // Ascending: where members begin, where they end (exclusive), where they begin again.
  const std::vector<uint32_t>& edges() const { return edges_; }

 private:
  std::vector<uint32_t> edges_;
};

// The code points of a general category ("Lu"), or of all whose name begins with a letter ("L").
// Empty when Unicode has none of that name.
std::optional<CodePointSet> GeneralCategory(std::string_view name);

// The property White_Space.
CodePointSet WhiteSpace();

}  // namespace skein::model
