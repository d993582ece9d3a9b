// Cutting text at the matches of a regular expression, by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/symbol_table.h"

struct pcre2_real_code_8;

namespace skein::model {

// Immutable; any thread may use it.
class Regex {
 public:
  // `pattern` in Oniguruma's syntax, or the text itself when `literal`. Errors as of
  // TranslateOniguruma; InvalidArgument with the offset when it does not compile.
  static absl::StatusOr<Regex> Compile(std::string_view pattern, bool literal);

  // Whether a match may be empty.
  bool MatchesEmpty() const;

  // Cuts each of `texts` (valid UTF-8) into matches and the gaps between them. Returns the pieces
  // of the kinds that are kept, in order; no piece is empty. InvalidArgument when a text asks for
  // more backtracking or memory than is allowed, which no pattern in use does.
  absl::StatusOr<std::vector<std::string_view>> Cut(const std::vector<std::string_view>& texts,
                                                    bool keep_matches, bool keep_gaps) const;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  explicit Regex(SymbolTable symbols) : symbols_(std::move(symbols)) {}

  SymbolTable symbols_;
  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;  // matches symbols
  std::string pattern_;
};

}  // namespace skein::model
