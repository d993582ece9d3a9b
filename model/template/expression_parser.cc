// Operators, and what all expressions share.
#include <algorithm>

#include "base/status_macros.h"
#include "model/template/token_parser.h"

namespace skein::model {
namespace {

class Deeper {
 public:
  explicit Deeper(int& depth) : depth_(++depth) {}
  ~Deeper() { --depth_; }
  bool ok(int limit) const { return depth_ <= limit; }

 private:
  int& depth_;
};

}  // namespace

absl::Status ExpressionParser::TooDeep(Position at) {
  return Locate(Invalid("more than ", kMaxDepth, " expressions or statements inside each other"),
                at);
}

NameId ExpressionParser::Intern(const std::string& name) {
  const auto [place, is_new] = ids_.try_emplace(name, static_cast<NameId>(ast_.names.size()));
  if (is_new) ast_.names.push_back(name);
  return place->second;
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

ParsedExpression ExpressionParser::ParseTuple(bool with_conditional) {
  const Position at = Peek().at;
  const auto at_end = [&] {
    return Peek().kind == TokenKind::kBlockEnd || Peek().kind == TokenKind::kVariableEnd ||
           AtOperator(")");
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
  if (!deeper.ok(kMaxDepth)) return TooDeep(Peek().at);
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
  if (!deeper.ok(kMaxDepth)) return TooDeep(Peek().at);
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
  if (!deeper.ok(kMaxDepth)) return TooDeep(Peek().at);
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

}  // namespace skein::model
