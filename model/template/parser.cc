#include "model/template/parser.h"

#include <algorithm>

#include "base/status_macros.h"
#include "model/template/token_parser.h"

namespace skein::model {
namespace {

// Of blocks inside each other; those of published templates are 12 deep.
constexpr int kMaxBlocks = 60;

template <typename T>
class Within {  // has another value while this lives
 public:
  Within(T& variable, T value) : variable_(variable), before_(variable) { variable_ = value; }
  ~Within() { variable_ = before_; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  T& variable_;
  const T before_;
};

class StatementParser : private ExpressionParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  absl::StatusOr<Ast> Run() {
    SKEIN_ASSIGN_OR_RETURN(ast_.body, ParseBody({}));
    if (!unknown_.empty()) return unknown_[0];
    return std::move(ast_);
  }

 private:
  using Names = std::vector<std::string_view>;

  // To the tag that one of these names begins, which is the next token then; to the end: none.
  absl::StatusOr<Body> ParseBody(const Names& ends);
  absl::StatusOr<Body> ParseInnerBody(const Names& ends);
  // The rest of the tag that begins a block, and the body to its end, whose name is taken.
  absl::StatusOr<Body> ParseBlock(std::string_view end);
  absl::Status BeginBlock();
  absl::Status ParseStatement(Body& body);
  absl::Status ParsePrint(Body& body);
  absl::Status Refuse(const Token& tag) const;

  absl::StatusOr<For> ParseFor();
  absl::StatusOr<If> ParseIf();
  absl::Status ParseSet(Position at, Body& body);
  absl::StatusOr<With> ParseWith();
  absl::StatusOr<std::unique_ptr<Macro>> ParseMacroBody(Macro macro, std::string_view end);
  absl::StatusOr<MacroDefinition> ParseMacro();
  absl::StatusOr<CallBlock> ParseCallBlock();
  absl::StatusOr<FilterBlock> ParseFilterBlock();
  absl::StatusOr<Generation> ParseGeneration();
  absl::StatusOr<Print> ParsePrintTag();
  absl::Status ParseParameters(Macro& macro);
  absl::StatusOr<Target> ParseTarget(bool with_attributes);
  absl::StatusOr<Target> ParseOneTarget(bool with_attributes);
  absl::StatusOr<NameId> ParseAssignedName();

  template <typename Node>
  static absl::Status Add(Body& body, Position at, absl::StatusOr<Node> node) {
    if (!node.ok()) return node.status();
    body.push_back({at, *std::move(node)});
    return absl::OkStatus();
  }

  int blocks_ = 0;
  int for_blocks_ = 0;      // around, for the name `loop`
  bool may_break_ = false;  // in a for's body, and in no macro's
};

absl::StatusOr<Body> StatementParser::ParseBody(const Names& ends) {
  const Within<int> inside(blocks_, blocks_ + 1);
  if (blocks_ > kMaxBlocks) {
    return Locate(Invalid("more than ", kMaxBlocks, " blocks inside each other"), Peek().at);
  }
  Body body;
  while (Peek().kind != TokenKind::kEnd) {
    const Token& token = Take();
    if (token.kind == TokenKind::kData) {
      body.push_back({token.at, Data{Text(token.text)}});
    } else if (token.kind == TokenKind::kVariableBegin) {
      SKEIN_RETURN_IF_ERROR(ParsePrint(body));
    } else {
      const bool ended = Peek().kind == TokenKind::kName &&
                         std::find(ends.begin(), ends.end(), Peek().text) != ends.end();
      if (ended) return body;
      SKEIN_RETURN_IF_ERROR(ParseStatement(body));
      SKEIN_RETURN_IF_ERROR(ExpectKind(TokenKind::kBlockEnd));
    }
  }
  if (ends.empty()) return body;
  return Unexpected("'" + std::string(ends.back()) + "'");
}

absl::Status StatementParser::ParsePrint(Body& body) {
  const Position at = Peek().at;
  SKEIN_ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple(/*with_conditional=*/true));
  Print print;
  print.values.push_back(std::move(value));
  body.push_back({at, std::move(print)});
  return ExpectKind(TokenKind::kVariableEnd);
}

absl::Status StatementParser::BeginBlock() {
  SkipOperator(":");
  return ExpectKind(TokenKind::kBlockEnd);
}

// A body with a scope of its own.
absl::StatusOr<Body> StatementParser::ParseInnerBody(const Names& ends) {
  const Within<bool> no_branch(in_branch_, false);
  SKEIN_RETURN_IF_ERROR(BeginBlock());
  return ParseBody(ends);
}

absl::StatusOr<Body> StatementParser::ParseBlock(std::string_view end) {
  SKEIN_ASSIGN_OR_RETURN(Body body, ParseInnerBody({end}));
  Take();
  return body;
}

absl::Status StatementParser::ParseStatement(Body& body) {
  if (Peek().kind != TokenKind::kName) return Unexpected("a tag's name");
  const Token& tag = Take();
  const std::string& name = tag.text;
  if (name == "for") return Add(body, tag.at, ParseFor());
  if (name == "if") return Add(body, tag.at, ParseIf());
  if (name == "set") return ParseSet(tag.at, body);
  if (name == "with") return Add(body, tag.at, ParseWith());
  if (name == "macro") return Add(body, tag.at, ParseMacro());
  if (name == "call") return Add(body, tag.at, ParseCallBlock());
  if (name == "filter") return Add(body, tag.at, ParseFilterBlock());
  if (name == "generation") return Add(body, tag.at, ParseGeneration());
  if (name == "print") return Add(body, tag.at, ParsePrintTag());
  if (name != "break" && name != "continue") return Refuse(tag);
  if (!may_break_) return Locate(Invalid("'", name, "' outside of a loop"), tag.at);
  if (name == "break") {
    body.push_back({tag.at, Break()});
  } else {
    body.push_back({tag.at, Continue()});
  }
  return absl::OkStatus();
}

absl::Status StatementParser::Refuse(const Token& tag) const {
  for (const std::string_view known :
       {"include", "import", "from", "extends", "block", "autoescape", "trans", "do", "debug"}) {
    if (tag.text == known) {
      return Locate(Invalid("the tag '", known, "' is not supported"), tag.at);
    }
  }
  return Locate(Invalid("no tag is named '", tag.text, "', or not here"), tag.at);
}

absl::StatusOr<NameId> StatementParser::ParseAssignedName() {
  const Token& token = Peek();
  SKEIN_ASSIGN_OR_RETURN(const std::string name, ExpectAnyName());
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) return Locate(Invalid("cannot assign to '", name, "'"), token.at);
  }
  if (name == "loop" && for_blocks_ > 0) {
    return Locate(Invalid("cannot assign to 'loop' in a loop"), token.at);
  }
  return Intern(name);
}

absl::StatusOr<Target> StatementParser::ParseOneTarget(bool with_attributes) {
  Target target{.at = Peek().at};
  if (SkipOperator("(")) {
    const Within<int> inside(blocks_, blocks_ + 1);
    if (blocks_ > kMaxBlocks) return Unexpected("fewer parentheses");
    SKEIN_ASSIGN_OR_RETURN(target, ParseTarget(/*with_attributes=*/false));
    SKEIN_RETURN_IF_ERROR(ExpectOperator(")"));
    return target;
  }
  const bool has_attribute = with_attributes && Is(Peek(1), TokenKind::kOperator, ".");
  if (has_attribute) {
    target.name = Intern(Peek().text);
    SKEIN_RETURN_IF_ERROR(ExpectAnyName().status());
    Take();
    SKEIN_ASSIGN_OR_RETURN(target.attribute, ExpectAnyName());
  } else {
    SKEIN_ASSIGN_OR_RETURN(target.name, ParseAssignedName());
  }
  return target;
}

absl::StatusOr<Target> StatementParser::ParseTarget(bool with_attributes) {
  Target tuple{.at = Peek().at, .is_tuple = true};
  bool has_comma = false;
  do {
    if (has_comma && AtOperator(")")) break;
    SKEIN_ASSIGN_OR_RETURN(Target target, ParseOneTarget(with_attributes));
    tuple.items.push_back(std::move(target));
  } while (SkipOperator(",") && (has_comma = true));
  if (has_comma) return tuple;
  return std::move(tuple.items[0]);
}

absl::StatusOr<For> StatementParser::ParseFor() {
  For loop;
  {
    const Within<int> inside(for_blocks_, for_blocks_ + 1);
    SKEIN_ASSIGN_OR_RETURN(loop.target, ParseTarget(/*with_attributes=*/false));
  }
  SKEIN_RETURN_IF_ERROR(ExpectName("in"));
  SKEIN_ASSIGN_OR_RETURN(loop.items, ParseTuple(/*with_conditional=*/false));
  const Within<int> inside(for_blocks_, for_blocks_ + 1);
  if (SkipName("if")) {
    const Within<bool> no_branch(in_branch_, false);
    SKEIN_ASSIGN_OR_RETURN(loop.condition, ParseExpression());
  }
  loop.recursive = SkipName("recursive");
  {
    const Within<bool> breakable(may_break_, true);
    SKEIN_ASSIGN_OR_RETURN(loop.body, ParseInnerBody({"endfor", "else"}));
  }
  if (Take().text == "endfor") return loop;
  const Within<bool> breakable(may_break_, may_break_ && !loop.recursive);
  SKEIN_ASSIGN_OR_RETURN(loop.otherwise, ParseBlock("endfor"));
  return loop;
}

absl::StatusOr<If> StatementParser::ParseIf() {
  const Within<bool> branch(in_branch_, true);
  If all;
  while (true) {
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseTuple(/*with_conditional=*/false));
    SKEIN_RETURN_IF_ERROR(BeginBlock());
    SKEIN_ASSIGN_OR_RETURN(Body body, ParseBody({"elif", "else", "endif"}));
    all.branches.emplace_back(std::move(condition), std::move(body));
    const std::string next = Take().text;
    if (next == "endif") return all;
    if (next == "elif") continue;
    SKEIN_RETURN_IF_ERROR(BeginBlock());
    SKEIN_ASSIGN_OR_RETURN(all.otherwise, ParseBody({"endif"}));
    Take();
    return all;
  }
}

absl::Status StatementParser::ParseSet(Position at, Body& body) {
  SKEIN_ASSIGN_OR_RETURN(Target target, ParseTarget(/*with_attributes=*/true));
  if (SkipOperator("=")) {
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple(/*with_conditional=*/true));
    body.push_back({at, Set{std::move(target), std::move(value)}});
    return absl::OkStatus();
  }
  SetBlock block{.target = std::move(target)};
  {
    const Within<bool> no_branch(in_branch_, false);
    SKEIN_ASSIGN_OR_RETURN(block.filter, ParseFilters(nullptr, false));
  }
  SKEIN_ASSIGN_OR_RETURN(block.body, ParseBlock("endset"));
  body.push_back({at, std::move(block)});
  return absl::OkStatus();
}

absl::StatusOr<With> StatementParser::ParseWith() {
  With with;
  while (Peek().kind != TokenKind::kBlockEnd) {
    if (!with.assignments.empty()) SKEIN_RETURN_IF_ERROR(ExpectOperator(","));
    SKEIN_ASSIGN_OR_RETURN(Target target, ParseOneTarget(/*with_attributes=*/false));
    SKEIN_RETURN_IF_ERROR(ExpectOperator("="));
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    with.assignments.emplace_back(std::move(target), std::move(value));
  }
  SKEIN_ASSIGN_OR_RETURN(with.body, ParseBlock("endwith"));
  return with;
}

absl::Status StatementParser::ParseParameters(Macro& macro) {
  SKEIN_RETURN_IF_ERROR(ExpectOperator("("));
  while (!AtOperator(")")) {
    if (!macro.parameters.empty()) SKEIN_RETURN_IF_ERROR(ExpectOperator(","));
    Parameter parameter;
    const Position at = Peek().at;
    SKEIN_ASSIGN_OR_RETURN(parameter.name, ParseAssignedName());
    for (const Parameter& other : macro.parameters) {
      if (other.name == parameter.name) return Locate(Invalid("two parameters of one name"), at);
    }
    if (SkipOperator("=")) {
      const Within<bool> no_branch(in_branch_, false);
      SKEIN_ASSIGN_OR_RETURN(parameter.fallback, ParseExpression());
    } else if (!macro.parameters.empty() && macro.parameters.back().fallback != nullptr) {
      return Locate(Invalid("a parameter without a default follows one with a default"), at);
    }
    if (macro.parameters.size() == kMaxNames) return Locate(Invalid("too many parameters"), at);
    macro.parameters.push_back(std::move(parameter));
  }
  Take();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Macro>> StatementParser::ParseMacroBody(Macro macro,
                                                                       std::string_view end) {
  auto made = std::make_unique<Macro>(std::move(macro));
  const Within<bool> unbreakable(may_break_, false);
  macros_.push_back(made.get());
  auto body = ParseBlock(end);
  macros_.pop_back();
  SKEIN_ASSIGN_OR_RETURN(made->body, std::move(body));
  for (const Parameter& parameter : made->parameters) {
    if (ast_.names[parameter.name] == "kwargs") made->takes_named = false;
    if (ast_.names[parameter.name] == "varargs") made->takes_positional = false;
  }
  return made;
}

absl::StatusOr<MacroDefinition> StatementParser::ParseMacro() {
  Macro macro;
  SKEIN_ASSIGN_OR_RETURN(macro.name, ParseAssignedName());
  SKEIN_RETURN_IF_ERROR(ParseParameters(macro));
  MacroDefinition definition;
  SKEIN_ASSIGN_OR_RETURN(definition.macro, ParseMacroBody(std::move(macro), "endmacro"));
  return definition;
}

absl::StatusOr<CallBlock> StatementParser::ParseCallBlock() {
  Macro macro{.name = Intern("caller")};
  if (AtOperator("(")) SKEIN_RETURN_IF_ERROR(ParseParameters(macro));
  CallBlock block;
  const Position at = Peek().at;
  SKEIN_ASSIGN_OR_RETURN(block.call, ParseExpression());
  if (!std::holds_alternative<Call>(block.call->node)) {
    return Locate(Invalid("expected a call"), at);
  }
  SKEIN_ASSIGN_OR_RETURN(block.caller, ParseMacroBody(std::move(macro), "endcall"));
  return block;
}

absl::StatusOr<FilterBlock> StatementParser::ParseFilterBlock() {
  FilterBlock block;
  {
    const Within<bool> no_branch(in_branch_, false);
    SKEIN_ASSIGN_OR_RETURN(block.filter, ParseFilters(nullptr, true));
  }
  SKEIN_ASSIGN_OR_RETURN(block.body, ParseBlock("endfilter"));
  return block;
}

absl::StatusOr<Generation> StatementParser::ParseGeneration() {
  Generation block;
  const Within<bool> unbreakable(may_break_, false);
  SKEIN_ASSIGN_OR_RETURN(block.body, ParseBlock("endgeneration"));
  return block;
}

absl::StatusOr<Print> StatementParser::ParsePrintTag() {
  Print print;
  while (Peek().kind != TokenKind::kBlockEnd) {
    if (!print.values.empty()) SKEIN_RETURN_IF_ERROR(ExpectOperator(","));
    SKEIN_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    print.values.push_back(std::move(value));
  }
  return print;
}

}  // namespace

absl::StatusOr<Ast> ParseTemplate(std::string_view source) {
  SKEIN_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return StatementParser(std::move(tokens)).Run();
}

}  // namespace skein::model
