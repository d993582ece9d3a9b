#include "model/tokenizer/code_point_set.h"

#include <algorithm>
#include <iterator>

namespace skein::model {
namespace {

struct Run {
  uint32_t first;
  char major;
  char minor;
};

constexpr Run kRuns[] = {
#include "model/tokenizer/unicode_categories.inc"
};

}  // namespace

CodePointSet::CodePointSet(uint32_t first, uint32_t last) : edges_{first, last + 1} {}

void CodePointSet::Add(const CodePointSet& other) {
  std::vector<uint32_t> all;
  std::merge(edges_.begin(), edges_.end(), other.edges_.begin(), other.edges_.end(),
             std::back_inserter(all));
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::vector<uint32_t> merged;
  for (const uint32_t edge : all) {
    const bool inside = merged.size() % 2 == 1;
    if ((Contains(edge) || other.Contains(edge)) != inside) merged.push_back(edge);
  }
  edges_ = std::move(merged);
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet result;
  if (edges_.empty() || edges_.front() != 0) result.edges_.push_back(0);
  for (const uint32_t edge : edges_) {
    if (edge != 0 && edge != kCodePoints) result.edges_.push_back(edge);
  }
  if (result.edges_.size() % 2 == 1) result.edges_.push_back(kCodePoints);
  return result;
}

bool CodePointSet::Contains(uint32_t code_point) const {
  const auto after = std::upper_bound(edges_.begin(), edges_.end(), code_point);
  return (after - edges_.begin()) % 2 == 1;
}

std::optional<CodePointSet> GeneralCategory(std::string_view name) {
  if (name.empty() || name.size() > 2) return std::nullopt;
  std::vector<uint32_t> edges;
  for (size_t i = 0; i < std::size(kRuns); ++i) {
    const Run& run = kRuns[i];
    if (run.major != name[0] || (name.size() == 2 && run.minor != name[1])) continue;
    const uint32_t end = i + 1 < std::size(kRuns) ? kRuns[i + 1].first : kCodePoints;
    if (edges.empty() || edges.back() != run.first) {
      edges.push_back(run.first);
      edges.push_back(end);
    } else {
      edges.back() = end;
    }
  }
  if (edges.empty()) return std::nullopt;
  return CodePointSet(std::move(edges));
}

CodePointSet WhiteSpace() {
  // Beside the separators, Unicode has these controls, and promises that the list is closed.
  CodePointSet set('\t', '\r');
  set.Add(CodePointSet(0x85));
  set.Add(*GeneralCategory("Z"));
  return set;
}

}  // namespace skein::model
