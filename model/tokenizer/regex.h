// Cutting text at the matches of a regular expression, by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

struct pcre2_real_code_8;

namespace skein::model {

// The same expression for PCRE2. tokenizer.json is written for Oniguruma (Ruby syntax, Unicode):
// what means the same to both stays, \s becomes the class that Oniguruma has (PCRE2's own has
// U+180E too), and what would mean something else answers Unimplemented by name.
absl::StatusOr<std::string> TranslateOniguruma(std::string_view pattern);

// Immutable; any thread may use it.
class Regex {
 public:
  // `pattern` in Oniguruma's syntax, or the text itself when `literal`. InvalidArgument with the
  // offset when it does not compile.
  static absl::StatusOr<Regex> Compile(std::string_view pattern, bool literal);

  // Cuts each of `texts` (valid UTF-8) into matches and what lies between them; returns the kinds
  // that are to be kept, in order, none of them empty. InvalidArgument when a text asks for more
  // backtracking or memory than is allowed, which no pattern in use does.
  absl::StatusOr<std::vector<std::string_view>> Cut(const std::vector<std::string_view>& texts,
                                                    bool keep_matches, bool keep_gaps) const;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
  std::string pattern_;
};

}  // namespace skein::model
