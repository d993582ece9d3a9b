#include <string>

#include "model/template/token_parser.h"

namespace skein::model {

bool TokenReader::SkipName(std::string_view name) {
  if (!AtName(name)) return false;
  Take();
  return true;
}

bool TokenReader::SkipOperator(std::string_view name) {
  if (!AtOperator(name)) return false;
  Take();
  return true;
}

absl::Status TokenReader::ExpectOperator(std::string_view name) {
  if (SkipOperator(name)) return absl::OkStatus();
  return Unexpected("'" + std::string(name) + "'");
}

absl::Status TokenReader::ExpectName(std::string_view name) {
  if (SkipName(name)) return absl::OkStatus();
  return Unexpected("'" + std::string(name) + "'");
}

absl::Status TokenReader::ExpectKind(TokenKind kind) {
  if (Peek().kind == kind) {
    Take();
    return absl::OkStatus();
  }
  return Unexpected(kind == TokenKind::kBlockEnd ? "'%}'" : "'}}'");
}

absl::StatusOr<std::string> TokenReader::ExpectAnyName() {
  if (Peek().kind == TokenKind::kName) return Take().text;
  return Unexpected("a name");
}

absl::Status TokenReader::Unexpected(std::string_view wanted) const {
  const Token& token = Peek();
  const auto found = [&]() -> std::string {
    switch (token.kind) {
      case TokenKind::kName:
      case TokenKind::kOperator:
        return "'" + token.text + "'";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return "a number";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kVariableEnd:
        return "'}}'";
      case TokenKind::kBlockBegin:
        return "'{%'";
      case TokenKind::kVariableBegin:
        return "'{{'";
      case TokenKind::kData:
        return "text";
      case TokenKind::kEnd:
        return "the template's end";
    }
    return "";
  };
  return Locate(Invalid("expected ", wanted, ", found ", found()), token.at);
}

}  // namespace skein::model
