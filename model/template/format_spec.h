// How wide, how precise and where: one specification of either way to format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/template/runtime.h"
#include "model/template/text.h"

namespace skein::model {

struct FormatSpec {
  Text fill = Text(" ");
  char align = '\0';  // < > ^ or =; none: as the value's type has it
  char sign = '-';    // - + or a space
  bool alternate = false;
  int64_t width = 0;
  char grouping = '\0';  // , or _
  int64_t precision = -1;
  char type = '\0';
};

// [[fill]align][sign][#][0][width][grouping][.precision][type]
absl::StatusOr<FormatSpec> ParseFormatSpec(const Text& spec);

// A string cut to the precision and filled to the width.
absl::StatusOr<Text> FormatText(Runtime& runtime, const Text& text, const FormatSpec& spec);
// str.center: where one more is needed at one side, another side than that of '^'.
absl::StatusOr<Text> Center(Runtime& runtime, const Text& text, const FormatSpec& spec);
absl::StatusOr<Text> FormatInteger(Runtime& runtime, int64_t number, const FormatSpec& spec);
absl::StatusOr<Text> FormatFloat(Runtime& runtime, double number, const FormatSpec& spec);

}  // namespace skein::model
