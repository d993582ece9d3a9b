// JSON text from files that nobody vouches for: the limits that it has to keep, and its errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace skein {

struct JsonLimits {
  int max_depth = 64;  // a tokenizer.json nests 8 deep
  // Arrays, objects and what is in them. Bounds the memory of the tree to a few hundred MiB; the
  // largest tokenizer.json in use (Gemma 3) has some 2 million.
  int64_t max_values = 4 << 20;
};

// Parses a whole text into a tree. InvalidArgument, as JsonError has it, for text that is not JSON,
// is not UTF-8, has a zero byte, has a key twice in one object, or is beyond the limits. Nothing
// recurses on the text's depth.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// InvalidArgument: "bad JSON at offset 12: reason". The offset is that of the last byte that was
// read, from 0; it is the text's size where the text ends too early.
absl::Status JsonError(int64_t offset, std::string_view reason);

// The same with what a parser of the JSON library has thrown. The text is shortened, since it
// quotes the file.
absl::Status JsonError(int64_t offset, const std::exception& error);

// The iterator by which parsers of the JSON library read a text. It tells how far they are.
class JsonCursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  // `*next` is the first character that was not read.
  JsonCursor(const char* at, const char** next) : at_(at), next_(next) {}
  reference operator*() const { return *at_; }
  JsonCursor& operator++() {
    *next_ = ++at_;
    return *this;
  }
  bool operator==(const JsonCursor& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** next_;
};

}  // namespace skein
