#include <algorithm>

#include "base/status_macros.h"
#include "model/template/filters.h"
#include "model/template/predicates.h"
#include "model/template/token_parser.h"

namespace skein::model {
namespace {

// Of expressions inside each other: each takes stack when it is parsed, evaluated and freed.
constexpr int kMaxDepth = 150;

class Deeper {
 public:
  explicit Deeper(int& depth) : depth_(++depth) {}
  ~Deeper() { --depth_; }
  bool ok() const { return depth_ <= kMaxDepth; }

 private:
  int& depth_;
};

absl::Status TooDeep(Position at) {
  return Locate(Invalid("more than ", kMaxDepth, " expressions or statements inside each other"),
                at);
}

std::shared_ptr<const String> LiteralString(std::string bytes) {
  return std::make_shared<const String>(String{.text = Text(std::move(bytes))});
}

}  // namespace

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

NameId ExpressionParser::Intern(const std::string& name) {
  const auto [place, is_new] = ids_.try_emplace(name, static_cast<NameId>(ast_.names.size()));
  if (is_new) ast_.names.push_back(name);
  return place->second;
}

template <typename Node>
ParsedExpression ExpressionParser::Make(Position at, Node node, int height_below) {
  if (height_below >= kMaxDepth) return TooDeep(at);
  auto expression = std::make_unique<Expression>();
  expression->at = at;
  expression->height = height_below + 1;
  expression->node = std::move(node);
  return expression;
}

int ExpressionParser::HeightOf(const ExpressionPtr& expression) {
  return expression == nullptr ? 0 : expression->height;
}

int ExpressionParser::HeightOf(const std::vector<ExpressionPtr>& expressions) {
  int height = 0;
  for (const ExpressionPtr& expression : expressions)
    height = std::max(height, HeightOf(expression));
  return height;
}

int ExpressionParser::HeightOf(const CallArguments& arguments) {
  int height = std::max({HeightOf(arguments.positional), HeightOf(arguments.more_positional),
                         HeightOf(arguments.more_named)});
  for (const auto& named : arguments.named) height = std::max(height, HeightOf(named.second));
  return height;
}

void ExpressionParser::NoteUnknown(std::string_view what, const std::string& name, Position at) {
  if (!in_branch_) unknown_.push_back(Locate(Invalid("no ", what, " is named '", name, "'"), at));
}

ParsedExpression ExpressionParser::ParseTuple(bool with_conditional, std::string_view ends) {
  const Position at = Peek().at;
  const auto at_end = [&] {
    return Peek().kind == TokenKind::kBlockEnd || Peek().kind == TokenKind::kVariableEnd ||
           AtOperator(")") || (!ends.empty() && AtName(ends));
  };
  ListDisplay tuple{.kind = ListKind::kTuple};
  bool is_tuple = false;
  do {
    if (at_end()) break;
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr item, with_conditional ? ParseExpression() : ParseOr());
    tuple.items.push_back(std::move(item));
    if (!AtOperator(",")) break;
    is_tuple = true;
  } while (SkipOperator(","));
  if (!is_tuple && tuple.items.empty()) return Unexpected("an expression");
  if (!is_tuple) return std::move(tuple.items[0]);
  const int height = HeightOf(tuple.items);
  return Make(at, std::move(tuple), height);
}

ParsedExpression ExpressionParser::ParseExpression() {
  const Deeper deeper(depth_);
  if (!deeper.ok()) return TooDeep(Peek().at);
  const size_t unknown = unknown_.size();
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr then, ParseOr());
  while (AtName("if")) {
    const Position at = Take().at;
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    ExpressionPtr otherwise;
    if (SkipName("else")) {
      SKEIN_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    unknown_.resize(unknown);  // they are errors only where they are reached
    const int height = std::max({HeightOf(then), HeightOf(condition), HeightOf(otherwise)});
    SKEIN_ASSIGN_OR_RETURN(
        then,
        Make(at, Conditional{std::move(condition), std::move(then), std::move(otherwise)}, height));
  }
  return then;
}

ParsedExpression ExpressionParser::ParseOr() {
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (AtName("or")) {
    const Position at = Take().at;
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    const int height = std::max(HeightOf(left), HeightOf(right));
    SKEIN_ASSIGN_OR_RETURN(left,
                           Make(at, Logical{false, std::move(left), std::move(right)}, height));
  }
  return left;
}

ParsedExpression ExpressionParser::ParseAnd() {
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (AtName("and")) {
    const Position at = Take().at;
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    const int height = std::max(HeightOf(left), HeightOf(right));
    SKEIN_ASSIGN_OR_RETURN(left,
                           Make(at, Logical{true, std::move(left), std::move(right)}, height));
  }
  return left;
}

ParsedExpression ExpressionParser::ParseNot() {
  if (!AtName("not")) return ParseComparison();
  const Deeper deeper(depth_);
  if (!deeper.ok()) return TooDeep(Peek().at);
  const Position at = Take().at;
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  const int height = HeightOf(operand);
  return Make(at, Unary{UnaryOperator::kNot, std::move(operand)}, height);
}

ParsedExpression ExpressionParser::ParseComparison() {
  constexpr std::pair<std::string_view, Comparison> kComparisons[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kUnequal},
      {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
      {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual}};
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  Compare compare;
  const Position at = Peek().at;
  int height = HeightOf(first);
  while (true) {
    const auto* found = std::find_if(std::begin(kComparisons), std::end(kComparisons),
                                     [&](const auto& entry) { return AtOperator(entry.first); });
    Comparison comparison;
    if (found != std::end(kComparisons)) {
      comparison = found->second;
      Take();
    } else if (SkipName("in")) {
      comparison = Comparison::kIn;
    } else if (AtName("not") && Is(Peek(1), TokenKind::kName, "in")) {
      comparison = Comparison::kNotIn;
      Take();
      Take();
    } else {
      break;
    }
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr next, ParseSum());
    height = std::max(height, HeightOf(next));
    compare.rest.emplace_back(comparison, std::move(next));
  }
  if (compare.rest.empty()) return first;
  compare.first = std::move(first);
  return Make(at, std::move(compare), height);
}

ParsedExpression ExpressionParser::MakeBinary(BinaryOperator operation, Position at,
                                              ExpressionPtr left, ExpressionPtr right) {
  const int height = std::max(HeightOf(left), HeightOf(right));
  return Make(at, Binary{operation, std::move(left), std::move(right)}, height);
}

ParsedExpression ExpressionParser::ParseSum() {
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcatenation());
  while (AtOperator("+") || AtOperator("-")) {
    const auto operation = AtOperator("+") ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    const Position at = Take().at;
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcatenation());
    SKEIN_ASSIGN_OR_RETURN(left, MakeBinary(operation, at, std::move(left), std::move(right)));
  }
  return left;
}

ParsedExpression ExpressionParser::ParseConcatenation() {
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr first, ParseProduct());
  if (!AtOperator("~")) return first;
  const Position at = Peek().at;
  Concatenation all;
  all.parts.push_back(std::move(first));
  while (SkipOperator("~")) {
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr part, ParseProduct());
    all.parts.push_back(std::move(part));
  }
  const int height = HeightOf(all.parts);
  return Make(at, std::move(all), height);
}

ParsedExpression ExpressionParser::ParseProduct() {
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr left, ParsePower());
  while (AtOperator("*") || AtOperator("/") || AtOperator("//") || AtOperator("%")) {
    const auto operation = AtOperator("*")    ? BinaryOperator::kMultiply
                           : AtOperator("/")  ? BinaryOperator::kDivide
                           : AtOperator("//") ? BinaryOperator::kFloorDivide
                                              : BinaryOperator::kModulo;
    const Position at = Take().at;
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
    SKEIN_ASSIGN_OR_RETURN(left, MakeBinary(operation, at, std::move(left), std::move(right)));
  }
  return left;
}

ParsedExpression ExpressionParser::ParsePower() {
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(true));
  while (AtOperator("**")) {
    const Position at = Take().at;
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(true));
    SKEIN_ASSIGN_OR_RETURN(
        left, MakeBinary(BinaryOperator::kPower, at, std::move(left), std::move(right)));
  }
  return left;
}

ParsedExpression ExpressionParser::ParseUnary(bool with_filters) {
  const Deeper deeper(depth_);
  if (!deeper.ok()) return TooDeep(Peek().at);
  ExpressionPtr expression;
  if (AtOperator("-") || AtOperator("+")) {
    const auto operation = AtOperator("-") ? UnaryOperator::kMinus : UnaryOperator::kPlus;
    const Position at = Take().at;
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
    const int height = HeightOf(operand);
    SKEIN_ASSIGN_OR_RETURN(expression, Make(at, Unary{operation, std::move(operand)}, height));
  } else {
    SKEIN_ASSIGN_OR_RETURN(expression, ParsePrimary());
  }
  SKEIN_ASSIGN_OR_RETURN(expression, ParsePostfix(std::move(expression)));
  return with_filters ? ParseFiltersAndTests(std::move(expression)) : std::move(expression);
}

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
