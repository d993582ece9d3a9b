#include "model/tokenizer/scored_merges.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace skein::model {
namespace {

// 262,144 tokens make some million merges.
constexpr size_t kMaxMerges = 1 << 23;

}  // namespace

absl::StatusOr<ScoredMerges> MergesOfScores(absl::Span<const std::string> texts,
                                            absl::Span<const double> scores,
                                            const Vocabulary& vocabulary) {
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::isfinite(scores[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat("the score of token ", i, " is no number"));
  }
  std::vector<int32_t> by_score;
  for (const auto& [text, id] : vocabulary) by_score.push_back(id);
  const auto score_of = [scores](int32_t id) { return scores[static_cast<size_t>(id)]; };
  std::sort(by_score.begin(), by_score.end(), [&](int32_t a, int32_t b) {
    return std::pair(-score_of(a), a) < std::pair(-score_of(b), b);
  });
  ScoredMerges result;
  uint32_t order = 0;
  for (size_t i = 0; i < by_score.size(); ++i) {
    const int32_t id = by_score[i];
    if (i > 0 && score_of(id) != score_of(by_score[i - 1])) ++order;
    const std::string& text = texts[static_cast<size_t>(id)];
    if (text.size() > kMaxScoredTokenBytes) continue;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((text[cut] & 0xC0) == 0x80) continue;  // inside of a character
      std::string left = text.substr(0, cut);
      std::string right = text.substr(cut);
      if (vocabulary.contains(left) && vocabulary.contains(right)) {
        result.merges.emplace_back(std::move(left), std::move(right));
        result.orders.push_back(order);
      }
    }
    if (result.merges.size() > kMaxMerges) {
      return absl::InvalidArgumentError(
          absl::StrCat("the tokens make more than ", kMaxMerges, " merges"));
    }
  }
  return result;
}

}  // namespace skein::model
