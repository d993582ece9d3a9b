// Command lines, over CLI11, as all programs have them: exit codes, and flags whose errors name the
// flag, the value and what it must be.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace skein {

// Exit codes of all programs.
constexpr int kExitOk = 0;
constexpr int kExitError = 1;
constexpr int kExitUsage = 2;  // the command line is wrong

// Parses the command line. Answers --help and --version, and reports errors on standard error.
// Returns the exit code if the program must end now, and nothing if it goes on. "--flag=" gives an
// empty value.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, const char* const* argv);

// For an option's check(): a number in [least, most].
template <typename T>
CLI::Validator InRange(T least = std::numeric_limits<T>::lowest(),
                       T most = std::numeric_limits<T>::max()) {
  constexpr T kLeast = std::numeric_limits<T>::lowest();
  constexpr T kMost = std::numeric_limits<T>::max();
  const bool whole = !std::is_floating_point_v<T>;
  // Nobody comes near the ends of wide types.
  const bool wide = !whole || sizeof(T) == sizeof(int64_t);
  std::string range;
  const char* before = "";
  if (!wide || most < kMost) {
    range = absl::StrCat("in [", least, ", ", most, "]");
    before = " ";
  } else if (least > kLeast || (whole && !std::is_signed_v<T>)) {
    range = absl::StrCat("at least ", least);
    before = " of ";
  }
  const std::string wanted =
      absl::StrCat("must be a ", whole ? "whole number" : "number", before, range);
  const bool limits = least > kLeast || most < kMost;
  return CLI::Validator(
      [=](const std::string& text) {
        T value = 0;
        // As CLI11 converts it then, which may wrap "-1". NaN is in no range.
        const bool wraps = !std::is_signed_v<T> && text.find('-') != std::string::npos;
        if (!wraps && CLI::detail::lexical_cast(text, value) && value >= least && value <= most) {
          return std::string();
        }
        return absl::StrCat(wanted, ", not '", text, "'");
      },
      limits ? range : "");
}

// For an option's check(): refuses "", which would otherwise be taken for another value, or for
// none.
CLI::Validator NotEmpty();

// Adds a flag whose text `parse` turns into its value, as an absl::StatusOr. An error of `parse` is
// reported as the flag's.
template <typename Value, typename Parse>
CLI::Option* AddParsed(CLI::App& app, const std::string& name, Value& value, Parse parse,
                       const std::string& help) {
  const auto take = [&value, name, parse](const std::string& text) {
    auto parsed = parse(text);
    if (!parsed.ok()) throw CLI::ValidationError(name, std::string(parsed.status().message()));
    value = *std::move(parsed);
  };
  return app.add_option_function<std::string>(name, take, help);
}

// Parses "30s" or "1m30s". InvalidArgument for text that is no duration in [least, a year].
absl::StatusOr<absl::Duration> ParseDuration(const std::string& text, absl::Duration least);

// Adds a flag that takes a duration. `value` is an absl::Duration that holds the default, or an
// optional one.
template <typename Value>
CLI::Option* AddDuration(CLI::App& app, const std::string& name, Value& value,
                         const std::string& help, absl::Duration least = absl::ZeroDuration()) {
  const auto parse = [least](const std::string& text) { return ParseDuration(text, least); };
  CLI::Option* option = AddParsed(app, name, value, parse, help)->type_name("DURATION");
  if constexpr (std::is_same_v<Value, absl::Duration>) {
    option->default_str(absl::FormatDuration(value));
  }
  return option;
}

// Adds a flag that takes an address to connect to; `value` gets the text as it is written.
CLI::Option* AddAddress(CLI::App& app, const std::string& name, std::string& value,
                        const std::string& help, int least_port = 1);

// Adds --log-level, which takes the levels that base/log knows.
CLI::Option* AddLogLevel(CLI::App& app, std::string& level);

}  // namespace skein
