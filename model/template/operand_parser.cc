// What operators stand between: literals, names, calls, subscripts, filters and tests.
#include <algorithm>

#include "base/status_macros.h"
#include "model/template/filters.h"
#include "model/template/predicates.h"
#include "model/template/token_parser.h"

namespace skein::model {
namespace {

std::shared_ptr<const String> LiteralString(std::string bytes) {
  return std::make_shared<const String>(String{.text = Text(std::move(bytes))});
}

}  // namespace

ParsedExpression ExpressionParser::ParsePrimary() {
  const Token& token = Peek();
  if (token.kind == TokenKind::kName) return ParseNamed(Take());
  if (token.kind == TokenKind::kString) return ParseStrings();
  if (token.kind == TokenKind::kInteger) return Make(token.at, Literal{Take().integer}, 0);
  if (token.kind == TokenKind::kFloat) return Make(token.at, Literal{Take().number}, 0);
  if (AtOperator("(")) return ParseParentheses();
  if (AtOperator("[")) return ParseList();
  if (AtOperator("{")) return ParseDict();
  return Unexpected("an expression");
}

ParsedExpression ExpressionParser::ParseNamed(const Token& token) {
  const std::string& name = token.text;
  if (name == "true" || name == "True") return Make(token.at, Literal{true}, 0);
  if (name == "false" || name == "False") return Make(token.at, Literal{false}, 0);
  if (name == "none" || name == "None") return Make(token.at, Literal{None()}, 0);
  for (Macro* macro : macros_) {
    macro->takes_caller |= name == "caller";
    macro->takes_named |= name == "kwargs";
    macro->takes_positional |= name == "varargs";
  }
  return Make(token.at, Variable{Intern(name)}, 0);
}

ParsedExpression ExpressionParser::ParseStrings() {
  const Position at = Peek().at;
  std::string all;
  while (Peek().kind == TokenKind::kString) all += Take().text;
  return Make(at, Literal{LiteralString(std::move(all))}, 0);
}

ParsedExpression ExpressionParser::ParseParentheses() {
  const Position at = Take().at;
  if (SkipOperator(")")) return Make(at, ListDisplay{.kind = ListKind::kTuple}, 0);
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr inside, ParseTuple(/*with_conditional=*/true));
  SKEIN_RETURN_IF_ERROR(ExpectOperator(")"));
  return inside;
}

ParsedExpression ExpressionParser::ParseList() {
  ListDisplay list;
  const Position at = Take().at;
  while (!AtOperator("]")) {
    if (!list.items.empty()) SKEIN_RETURN_IF_ERROR(ExpectOperator(","));
    if (AtOperator("]")) break;
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    list.items.push_back(std::move(item));
  }
  Take();
  const int height = HeightOf(list.items);
  return Make(at, std::move(list), height);
}

ParsedExpression ExpressionParser::ParseDict() {
  DictDisplay dict;
  const Position at = Take().at;
  int height = 0;
  while (!AtOperator("}")) {
    if (!dict.entries.empty()) SKEIN_RETURN_IF_ERROR(ExpectOperator(","));
    if (AtOperator("}")) break;
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    SKEIN_RETURN_IF_ERROR(ExpectOperator(":"));
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    height = std::max({height, HeightOf(key), HeightOf(value)});
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  Take();
  return Make(at, std::move(dict), height);
}

ParsedExpression ExpressionParser::ParsePostfix(ExpressionPtr expression) {
  while (true) {
    if (AtOperator(".")) {
      SKEIN_ASSIGN_OR_RETURN(expression, ParseAttribute(std::move(expression)));
    } else if (AtOperator("[")) {
      SKEIN_ASSIGN_OR_RETURN(expression, ParseSubscript(std::move(expression)));
    } else if (AtOperator("(")) {
      SKEIN_ASSIGN_OR_RETURN(expression, ParseCall(std::move(expression)));
    } else {
      return expression;
    }
  }
}

ParsedExpression ExpressionParser::ParseFiltersAndTests(ExpressionPtr expression) {
  while (true) {
    if (AtOperator("|")) {
      SKEIN_ASSIGN_OR_RETURN(expression, ParseFilters(std::move(expression), false));
    } else if (AtName("is")) {
      SKEIN_ASSIGN_OR_RETURN(expression, ParseTest(std::move(expression)));
    } else if (AtOperator("(")) {
      SKEIN_ASSIGN_OR_RETURN(expression, ParseCall(std::move(expression)));
    } else {
      return expression;
    }
  }
}

ParsedExpression ExpressionParser::ParseAttribute(ExpressionPtr object) {
  Take();
  const Token& token = Peek();
  const int height = HeightOf(object);
  if (token.kind == TokenKind::kName) {
    return Make(token.at, Attribute{std::move(object), Take().text}, height);
  }
  if (token.kind != TokenKind::kInteger) return Unexpected("a name or a number");
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr key, Make(token.at, Literal{Take().integer}, 0));
  return Make(token.at, Subscript{std::move(object), std::move(key)}, height);
}

ParsedExpression ExpressionParser::ParseSubscript(ExpressionPtr object) {
  const Position at = Take().at;
  ExpressionPtr parts[3];
  int part = 0;
  const auto at_part_end = [&] { return AtOperator(":") || AtOperator("]") || AtOperator(","); };
  do {
    if (!at_part_end()) {
      SKEIN_ASSIGN_OR_RETURN(parts[part], ParseExpression());
    }
  } while (part < 2 && SkipOperator(":") && ++part > 0);
  if (AtOperator(",")) {
    return Locate(Invalid("a subscript of several parts is not supported"), Peek().at);
  }
  if (part == 0 && parts[0] == nullptr) return Unexpected("a subscript");
  SKEIN_RETURN_IF_ERROR(ExpectOperator("]"));
  const int height =
      std::max({HeightOf(object), HeightOf(parts[0]), HeightOf(parts[1]), HeightOf(parts[2])});
  if (part == 0) return Make(at, Subscript{std::move(object), std::move(parts[0])}, height);
  return Make(
      at, Slice{std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])},
      height);
}

ParsedExpression ExpressionParser::ParseCall(ExpressionPtr callee) {
  const Position at = callee->at;
  SKEIN_ASSIGN_OR_RETURN(CallArguments arguments, ParseArguments());
  const int height = std::max(HeightOf(callee), HeightOf(arguments));
  return Make(at, Call{std::move(callee), std::move(arguments)}, height);
}

absl::Status ExpressionParser::ParseArgument(CallArguments& arguments) {
  const auto bad = [&] { return Locate(Invalid("an argument in a wrong place"), Peek().at); };
  if (SkipOperator("*")) {
    if (arguments.more_positional != nullptr || arguments.more_named != nullptr) return bad();
    SKEIN_ASSIGN_OR_RETURN(arguments.more_positional, ParseExpression());
  } else if (SkipOperator("**")) {
    if (arguments.more_named != nullptr) return bad();
    SKEIN_ASSIGN_OR_RETURN(arguments.more_named, ParseExpression());
  } else if (Peek().kind == TokenKind::kName && Is(Peek(1), TokenKind::kOperator, "=")) {
    if (arguments.more_named != nullptr) return bad();
    const std::string name = Take().text;
    for (const auto& named : arguments.named) {
      if (named.first == name) return bad();
    }
    if (arguments.named.size() == kMaxNames) return Locate(Invalid("too many names"), Peek().at);
    Take();
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    arguments.named.emplace_back(name, std::move(value));
  } else {
    if (arguments.more_positional != nullptr || arguments.more_named != nullptr ||
        !arguments.named.empty()) {
      return bad();
    }
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    arguments.positional.push_back(std::move(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<CallArguments> ExpressionParser::ParseArguments() {
  SKEIN_RETURN_IF_ERROR(ExpectOperator("("));
  CallArguments arguments;
  for (bool first = true; !AtOperator(")"); first = false) {
    if (!first) SKEIN_RETURN_IF_ERROR(ExpectOperator(","));
    if (AtOperator(")")) break;
    SKEIN_RETURN_IF_ERROR(ParseArgument(arguments));
  }
  Take();
  return arguments;
}

absl::StatusOr<std::string> ExpressionParser::ParseDottedName() {
  SKEIN_ASSIGN_OR_RETURN(std::string name, ExpectAnyName());
  while (SkipOperator(".")) {
    SKEIN_ASSIGN_OR_RETURN(const std::string part, ExpectAnyName());
    name += "." + part;
  }
  return name;
}

ParsedExpression ExpressionParser::ParseFilters(ExpressionPtr input, bool first_has_no_bar) {
  while (first_has_no_bar || SkipOperator("|")) {
    first_has_no_bar = false;
    const Position at = Peek().at;
    FilterCall call;
    SKEIN_ASSIGN_OR_RETURN(call.name, ParseDottedName());
    if (!IsFilter(call.name)) NoteUnknown("filter", call.name, at);
    if (AtOperator("(")) {
      SKEIN_ASSIGN_OR_RETURN(call.arguments, ParseArguments());
    }
    const int height = std::max(HeightOf(input), HeightOf(call.arguments));
    call.input = std::move(input);
    SKEIN_ASSIGN_OR_RETURN(input, Make(at, std::move(call), height));
  }
  return input;
}

// What follows a test's name without parentheses; null: nothing does.
ParsedExpression ExpressionParser::ParseTestArgument() {
  const Token& token = Peek();
  const bool begins = token.kind == TokenKind::kName || token.kind == TokenKind::kString ||
                      token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat ||
                      AtOperator("[") || AtOperator("{");
  if (!begins || AtName("else") || AtName("or") || AtName("and")) return ExpressionPtr();
  if (AtName("is")) return Locate(Invalid("tests cannot be chained by 'is'"), token.at);
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
  return ParsePostfix(std::move(argument));
}

ParsedExpression ExpressionParser::ParseTest(ExpressionPtr input) {
  Take();
  const bool negated = SkipName("not");
  const Position at = Peek().at;
  TestCall call;
  SKEIN_ASSIGN_OR_RETURN(call.name, ParseDottedName());
  if (!IsTest(call.name)) NoteUnknown("test", call.name, at);
  if (AtOperator("(")) {
    SKEIN_ASSIGN_OR_RETURN(call.arguments, ParseArguments());
  } else {
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr argument, ParseTestArgument());
    if (argument != nullptr) call.arguments.positional.push_back(std::move(argument));
  }
  const int height = std::max(HeightOf(input), HeightOf(call.arguments));
  call.input = std::move(input);
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr test, Make(at, std::move(call), height));
  if (!negated) return test;
  return Make(at, Unary{UnaryOperator::kNot, std::move(test)}, height + 1);
}

}  // namespace skein::model
