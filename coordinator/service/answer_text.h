// Turns an answer's tokens into its text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/service/stop_matcher.h"
#include "model/tokenizer/tokenizer.h"

namespace skein::coordinator {

// Joins tokens' bytes, ends them before the first stop string, and hands out whole characters.
// Not thread-safe; the tokenizer outlives it.
class AnswerText {
 public:
  AnswerText(const model::Tokenizer* tokenizer, const std::vector<std::string>& stops)
      : tokenizer_(tokenizer), stops_(stops), characters_(tokenizer) {}

  // The text that becomes final by this token; may be empty.
  std::string Push(int32_t id);
  // The rest, after the last token.
  std::string Finish();

  // The stop string that ended the answer; null before.
  const std::string* stop() const { return stops_.matched(); }

 private:
  const model::Tokenizer* tokenizer_;
  StopMatcher stops_;
  model::StreamingDetokenizer characters_;
};

}  // namespace skein::coordinator
