// Cuts a template's source into tokens, with Jinja's rules of white space: trim_blocks and
// lstrip_blocks are on, keep_trailing_newline is off, line ends of any system become \n.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/template/errors.h"

namespace skein::model {

enum class TokenKind {
  kData,           // text between tags
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  Position at;
  std::string text;  // of a string: what it stands for
  int64_t integer = 0;
  double number = 0;
};

// InvalidArgument, with a place: text that is no UTF-8, is beyond 1 MiB, or that Jinja refuses.
// Linear. The last token is kEnd.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace skein::model
