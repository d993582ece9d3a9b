#include "worker/evaluate/text_tokens.h"

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/tokenizer/tokenizer.h"

namespace skein::worker {

absl::StatusOr<TextTokens> ReadTextTokens(const std::string& model, const std::string& file,
                                          int64_t most_tokens) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;  // what tokenizers take
  SKEIN_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMostBytes));
  SKEIN_ASSIGN_OR_RETURN(const std::unique_ptr<model::Tokenizer> tokenizer,
                         model::LoadTokenizer(model));
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer->Encode(text, {.add_special_tokens = false});
  if (!ids.ok()) return Annotate(ids.status(), file);
  TextTokens tokens = {.ids = *std::move(ids)};
  if (most_tokens > 0 && static_cast<int64_t>(tokens.ids.size()) > most_tokens) {
    tokens.ids.resize(static_cast<size_t>(most_tokens));
  }
  // What stands before a text stands before its first token.
  SKEIN_ASSIGN_OR_RETURN(const std::vector<int32_t> whole,
                         tokenizer->Encode("a", {.add_special_tokens = true}));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<int32_t> bare,
                         tokenizer->Encode("a", {.add_special_tokens = false}));
  if (whole.size() > bare.size() && (bare.empty() || whole.front() != bare.front()) &&
      tokenizer->IsSpecial(whole.front())) {
    tokens.begin = whole.front();
  }
  return tokens;
}

}  // namespace skein::worker
