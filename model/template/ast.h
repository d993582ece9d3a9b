// A template, parsed. Nothing changes it after that: threads share it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/template/errors.h"
#include "model/template/value.h"

namespace skein::model {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;
struct Statement;
using Body = std::vector<Statement>;

// Variables are numbers into Ast::names.
using NameId = int;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *; null: none
  ExpressionPtr more_named;       // **; null: none
};

struct Literal {
  Value value;  // none, a truth, a number, or a string
};
struct Variable {
  NameId name = 0;
};
struct ListDisplay {
  ListKind kind = ListKind::kList;
  std::vector<ExpressionPtr> items;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
enum class UnaryOperator { kNot, kMinus, kPlus };
struct Unary {
  UnaryOperator operation;
  ExpressionPtr operand;
};
enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct Binary {
  BinaryOperator operation;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
struct Logical {
  bool is_and = false;
  ExpressionPtr left;
  ExpressionPtr right;
};
enum class Comparison { kEqual, kUnequal, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct Compare {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
struct Conditional {
  ExpressionPtr condition;
  ExpressionPtr then;
  ExpressionPtr otherwise;  // null: undefined
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object;
  ExpressionPtr key;
};
struct Slice {
  ExpressionPtr object;
  ExpressionPtr start;  // each may be null
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct FilterCall {
  ExpressionPtr input;  // null: the text of a block
  std::string name;
  CallArguments arguments;
};
struct TestCall {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};

struct Expression {
  Position at;
  int height = 1;  // of expressions inside each other
  std::variant<Literal, Variable, ListDisplay, DictDisplay, Unary, Binary, Concatenation, Logical,
               Compare, Conditional, Attribute, Subscript, Slice, Call, FilterCall, TestCall>
      node;
};

// What a value is assigned to: a name, an attribute of a namespace, or targets that its items
// are assigned to.
struct Target {
  Position at;
  NameId name = 0;
  std::string attribute;      // empty: the name itself
  std::vector<Target> items;  // if `is_tuple`
  bool is_tuple = false;
};

struct Data {
  Text text;
};
struct Print {
  std::vector<ExpressionPtr> values;
};
struct For {
  Target target;
  ExpressionPtr items;
  ExpressionPtr condition;  // null: none
  bool recursive = false;
  Body body;
  Body otherwise;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // null: none
  Body body;
};
struct Parameter {
  NameId name = 0;
  ExpressionPtr fallback;  // null: none
};
// Also the body of a call block, which is named "caller".
struct Macro {
  NameId name = 0;
  std::vector<Parameter> parameters;
  Body body;
  // What of this it mentions, and takes.
  bool takes_caller = false;
  bool takes_named = false;       // kwargs
  bool takes_positional = false;  // varargs
};
struct CallBlock {
  std::unique_ptr<Macro> caller;
  ExpressionPtr call;
};
struct FilterBlock {
  ExpressionPtr filter;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
};
struct Generation {
  Body body;
};
struct MacroDefinition {
  std::unique_ptr<Macro> macro;
};
struct Break {};
struct Continue {};

struct Statement {
  Position at;
  std::variant<Data, Print, For, If, Set, SetBlock, MacroDefinition, CallBlock, FilterBlock, With,
               Generation, Break, Continue>
      node;
};

struct Ast {
  Body body;
  std::vector<std::string> names;
};

}  // namespace skein::model
