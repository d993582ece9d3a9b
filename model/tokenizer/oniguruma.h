// Translates regular expressions from Oniguruma's syntax, which tokenizer.json uses, to expressions
// over bytes for PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/tokenizer/symbol_table.h"

namespace skein::model {

// Matches the symbols of a text where the original matches the text. PCRE2 gets neither classes
// nor case to decide, so that it does not matter which Unicode it knows.
struct BytePattern {
  std::string pattern;
  SymbolTable symbols;
};

// `pattern` is UTF-8 in Ruby's syntax. Syntax that means the same to both engines stays; classes,
// escapes such as \p{Lu} and \s, characters beyond ASCII and letters in (?i: ) become the bytes of
// their symbols. InvalidArgument with the offset for a broken class; Unimplemented, by name, for
// what PCRE2 would read otherwise, or match otherwise than Oniguruma.
absl::StatusOr<BytePattern> TranslateOniguruma(std::string_view pattern);

}  // namespace skein::model
