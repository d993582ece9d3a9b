// The parser of expressions and, derived from it, that of statements: recursive descent over
// tokens. Private to parser.cc, expression_parser.cc
// and operand_parser.cc.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/template/ast.h"
#include "model/template/lexer.h"

namespace skein::model {

using ParsedExpression = absl::StatusOr<ExpressionPtr>;

// The tokens, and what is known while they are read.
class TokenReader {
 protected:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Peek(size_t ahead = 0) const {
    return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
  }
  const Token& Take() {
    const Token& token = Peek();
    if (next_ + 1 < tokens_.size()) ++next_;
    return token;
  }
  static bool Is(const Token& token, TokenKind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }
  bool AtName(std::string_view name) const { return Is(Peek(), TokenKind::kName, name); }
  bool AtOperator(std::string_view name) const { return Is(Peek(), TokenKind::kOperator, name); }
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view name);
  absl::Status ExpectOperator(std::string_view name);
  absl::Status ExpectName(std::string_view name);
  absl::Status ExpectKind(TokenKind kind);
  absl::StatusOr<std::string> ExpectAnyName();
  absl::Status Unexpected(std::string_view wanted) const;

  std::vector<Token> tokens_;
  size_t next_ = 0;
};

class ExpressionParser : protected TokenReader {
 protected:
  using TokenReader::TokenReader;

  // With commas: a tuple.
  ParsedExpression ParseTuple(bool with_conditional);
  ParsedExpression ParseExpression();
  ParsedExpression ParseOr();
  // `| name(...)`, as often as it stands there. A null input: that of a block, which may be first
  // without its `|`.
  ParsedExpression ParseFilters(ExpressionPtr input, bool first_has_no_bar);

  NameId Intern(const std::string& name);

  Ast ast_;
  // Of parameters, and of names in a call: each is looked for among all.
  static constexpr size_t kMaxNames = 200;

  // Filters and tests without a meaning, which is an error outside of branches.
  std::vector<absl::Status> unknown_;
  bool in_branch_ = false;
  // Macros that the parser is inside of.
  std::vector<Macro*> macros_;
  int depth_ = 0;

 private:
  // Of expressions inside each other: each takes stack when it is parsed, evaluated and freed.
  static constexpr int kMaxDepth = 150;

  static absl::Status TooDeep(Position at);
  template <typename Node>
  static ParsedExpression Make(Position at, Node node, int height_below) {
    if (height_below >= kMaxDepth) return TooDeep(at);
    auto expression = std::make_unique<Expression>();
    expression->at = at;
    expression->height = height_below + 1;
    expression->node = std::move(node);
    return expression;
  }
  static int HeightOf(const ExpressionPtr& expression);
  static int HeightOf(const std::vector<ExpressionPtr>& expressions);
  static int HeightOf(const CallArguments& arguments);

  ParsedExpression ParseAnd();
  ParsedExpression ParseNot();
  ParsedExpression ParseComparison();
  ParsedExpression ParseSum();
  ParsedExpression ParseConcatenation();
  ParsedExpression ParseProduct();
  ParsedExpression ParsePower();
  ParsedExpression ParseUnary(bool with_filters);
  ParsedExpression ParsePrimary();
  ParsedExpression ParseNamed(const Token& token);
  ParsedExpression ParseStrings();
  ParsedExpression ParseParentheses();
  ParsedExpression ParseList();
  ParsedExpression ParseDict();
  ParsedExpression ParsePostfix(ExpressionPtr expression);
  ParsedExpression ParseFiltersAndTests(ExpressionPtr expression);
  ParsedExpression ParseAttribute(ExpressionPtr object);
  ParsedExpression ParseSubscript(ExpressionPtr object);
  ParsedExpression ParseCall(ExpressionPtr callee);
  ParsedExpression ParseTest(ExpressionPtr input);
  ParsedExpression ParseTestArgument();
  absl::StatusOr<CallArguments> ParseArguments();
  absl::Status ParseArgument(CallArguments& arguments);
  absl::StatusOr<std::string> ParseDottedName();
  ParsedExpression MakeBinary(BinaryOperator operation, Position at, ExpressionPtr left,
                              ExpressionPtr right);
  void NoteUnknown(std::string_view what, const std::string& name, Position at);

  absl::flat_hash_map<std::string, NameId> ids_;
};

}  // namespace skein::model
