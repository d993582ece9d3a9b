// The values that templates compute with, as Python has them.
//
// Values are small and share what they refer to. All but namespaces, iterators and loops never
// change. A Runtime makes them (runtime.h) and counts what they take; it outlives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/template/text.h"

namespace skein::model {

class Runtime;
struct Arguments;
struct String;
struct List;
struct Dict;
struct Namespace;
struct Iterator;
struct Callable;
struct Loop;

// A name or an attribute that there is none of: prints as nothing, is false and has no items, but
// most else that is done with it fails, saying why there is none.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};

using StringPtr = std::shared_ptr<const String>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;
using NamespacePtr = std::shared_ptr<Namespace>;
using IteratorPtr = std::shared_ptr<Iterator>;
using CallablePtr = std::shared_ptr<const Callable>;
using LoopPtr = std::shared_ptr<Loop>;

using Value = std::variant<Undefined, None, bool, int64_t, double, StringPtr, ListPtr, DictPtr,
                           NamespacePtr, IteratorPtr, CallablePtr, LoopPtr>;

// Bytes that count as used until this goes.
class Charge {
 public:
  Charge() = default;
  Charge(int64_t* used, size_t bytes) : used_(used), bytes_(static_cast<int64_t>(bytes)) {
    if (used_ != nullptr) *used_ += bytes_;
  }
  Charge(Charge&& other) noexcept
      : used_(std::exchange(other.used_, nullptr)), bytes_(other.bytes_) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(used_, other.used_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() {
    if (used_ != nullptr) *used_ -= bytes_;
  }

 private:
  int64_t* used_ = nullptr;
  int64_t bytes_ = 0;
};

struct String {
  Text text;
  bool markup = false;  // `safe` or `escape` made it: what is added to it is escaped
  Charge charge;
};

enum class ListKind { kList, kTuple, kRange, kKeys, kValues, kItems };

struct List {
  std::vector<Value> items;
  ListKind kind = ListKind::kList;
  int height = 1;  // of lists and dicts inside each other
  Charge charge;
  bool is_group = false;  // a tuple that groupby made: has the names `grouper` and `list`
  // Of a range.
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
};

// In the order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  // Keys that are strings (the views are of `entries`), to places.
  absl::flat_hash_map<std::string_view, size_t> places;
  int height = 1;
  Charge charge;

  // null: no such key. Keys compare as in Python: 1, 1.0 and true are the same.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // Keeps the place of a key that is there. False: a key that cannot be hashed.
  bool Set(const Value& key, Value value);

 private:
  size_t PlaceOf(const Value& key) const;
};

struct Namespace {
  Dict attributes;
};

// A generator: gives each item once.
struct Iterator {
  std::vector<Value> items;
  size_t next = 0;
  int height = 1;
  Charge charge;
};

struct Callable {
  std::string name;
  std::function<absl::StatusOr<Value>(Runtime&, const Arguments&)> call;
  int height = 1;
  Charge charge;
};

// `loop` of one pass through a for loop.
struct Loop {
  std::vector<Value> items;
  size_t index = 0;
  int depth = 1;  // of a recursive loop, from 1
  std::optional<std::vector<Value>> last_changed;
  // Renders the loop's body over other items; empty: the loop is not recursive.
  std::function<absl::StatusOr<Value>(const Value& items)> recurse;
  int height = 1;
  Charge charge;
};

// What a call is given. Names are strings: they may be a user's, by `**`.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<Value, Value>> named;
  Charge charge;
};

inline bool IsUndefined(const Value& value) { return std::holds_alternative<Undefined>(value); }
inline bool IsNone(const Value& value) { return std::holds_alternative<None>(value); }
inline bool IsString(const Value& value) { return std::holds_alternative<StringPtr>(value); }
// The text of a string.
inline const Text& TextOf(const Value& value) { return std::get<StringPtr>(value)->text; }
inline bool IsMarkup(const Value& value) {
  return IsString(value) && std::get<StringPtr>(value)->markup;
}
// A list or tuple, or null.
const List* ListOf(const Value& value, ListKind kind);
// An integer, or a bool as 0 or 1.
std::optional<int64_t> IntegerOf(const Value& value);
std::optional<double> NumberOf(const Value& value);

// Python's bool().
bool IsTrue(const Value& value);
// Python's len(), or none.
std::optional<int64_t> LengthOf(const Value& value);
// For messages: "str", "list".
std::string_view TypeName(const Value& value);
int HeightOf(const Value& value);
// May be a key: no list or dict, and of tuples those of up to 16 values that are none either.
bool IsHashable(const Value& value);

}  // namespace skein::model
