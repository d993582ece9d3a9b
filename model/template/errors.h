// Errors of templates, and the places in a template's source that they name.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::model {

// From 1. Columns count characters.
struct Position {
  int line = 1;
  int column = 1;
};

// The same status, its message begun by "line L, column C: ". One that has a place, or that a
// template raised, stays as it is.
absl::Status Locate(const absl::Status& status, Position at);
// Makes Locate leave it alone.
absl::Status AsRaised(absl::Status status);
// Without what these two remember.
absl::Status WithoutMarks(absl::Status status);

// InvalidArgument, its message made of strings and numbers.
template <typename... Pieces>
absl::Status Invalid(const Pieces&... pieces) {
  const auto printed = [](const auto& piece) -> std::string {
    if constexpr (std::is_convertible_v<decltype(piece), std::string_view>) {
      return std::string(std::string_view(piece));
    } else {
      return absl::StrCat(piece);
    }
  };
  return absl::InvalidArgumentError((printed(pieces) + ... + std::string()));
}

}  // namespace skein::model
