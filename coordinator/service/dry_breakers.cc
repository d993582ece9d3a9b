#include "coordinator/service/dry_breakers.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::coordinator {
namespace {

// What the API promises in proto/inference.proto.
constexpr size_t kMaxBreakers = 16;
constexpr size_t kMaxBreakerBytes = 32;
constexpr size_t kMaxSpellings = 256;  // of one breaker, over several tokens

using Spelling = std::vector<int32_t>;

// One string, against token after token in ascending order.
class Speller {
 public:
  static absl::StatusOr<Speller> Create(const std::string& text,
                                        const model::Tokenizer& tokenizer) {
    Speller speller(text);
    if (text.size() == 1) return speller;
    const model::EncodeOptions plain{.add_special_tokens = false};
    SKEIN_ASSIGN_OR_RETURN(Spelling own, tokenizer.Encode(text, plain));
    if (own.size() > 1) speller.spellings_.push_back(std::move(own));
    for (size_t head = 1; head < text.size(); ++head) {
      // None where it would begin within a character.
      auto tail = tokenizer.Encode(text.substr(head), plain);
      speller.tails_.push_back(tail.ok() ? std::optional<Spelling>(*std::move(tail))
                                         : std::nullopt);
    }
    return speller;
  }

  // Whether the string stands in the token; else notes the spellings that begin with it.
  bool Visit(int32_t id, const std::string& bytes) {
    if (bytes.find(text_) != std::string::npos) return true;
    for (size_t head = 1; head <= std::min(bytes.size(), tails_.size()); ++head) {
      if (spellings_.size() == kMaxSpellings) return false;
      if (!tails_[head - 1].has_value()) continue;
      if (bytes.compare(bytes.size() - head, head, text_, 0, head) != 0) continue;
      Spelling spelling = {id};
      spelling.insert(spelling.end(), tails_[head - 1]->begin(), tails_[head - 1]->end());
      if (spellings_.empty() || spellings_.front() != spelling) {
        spellings_.push_back(std::move(spelling));
      }
    }
    return false;
  }

  const std::vector<Spelling>& spellings() const { return spellings_; }

 private:
  explicit Speller(const std::string& text) : text_(text) {}

  std::string text_;
  std::vector<std::optional<Spelling>> tails_;  // [i]: of what follows the first i + 1 bytes
  std::vector<Spelling> spellings_;
};

}  // namespace

absl::StatusOr<std::vector<std::vector<int32_t>>> ResolveDryBreakers(
    const std::vector<std::string>& breakers, const model::Tokenizer& tokenizer,
    int64_t vocabulary) {
  if (breakers.size() > kMaxBreakers) {
    return absl::InvalidArgumentError(absl::StrCat("sampling.dry_breakers: ", breakers.size(),
                                                   " strings; at most ", kMaxBreakers,
                                                   " are allowed"));
  }
  std::vector<Speller> spellers;
  for (size_t i = 0; i < breakers.size(); ++i) {
    const std::string field = absl::StrCat("sampling.dry_breakers[", i, "]");
    if (breakers[i].empty() || breakers[i].size() > kMaxBreakerBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          field, ": ", breakers[i].size(), " bytes is not in [1, ", kMaxBreakerBytes, "]"));
    }
    auto speller = Speller::Create(breakers[i], tokenizer);
    if (!speller.ok()) return Annotate(speller.status(), field);
    spellers.push_back(*std::move(speller));
  }
  std::vector<Spelling> sequences;
  const auto tokens = std::min<int64_t>(tokenizer.vocab_size(), vocabulary);
  for (int32_t id = 0; id < tokens && !spellers.empty(); ++id) {
    const std::string bytes = tokenizer.TokenBytes(id, /*skip_special=*/false);
    bool breaks = false;
    for (Speller& speller : spellers) breaks |= speller.Visit(id, bytes);
    if (breaks) sequences.push_back({id});
  }
  std::set<Spelling> longer;
  for (const Speller& speller : spellers) {
    longer.insert(speller.spellings().begin(), speller.spellings().end());
  }
  sequences.insert(sequences.end(), longer.begin(), longer.end());
  return sequences;
}

}  // namespace skein::coordinator
