#include "base/flags/flags.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "base/flags/config.h"
#include "base/flags/documentation.h"
#include "base/host_port.h"

namespace skein {
namespace {

constexpr absl::Duration kYear = absl::Hours(24 * 365);

std::string Complaint(const CLI::App* app, const CLI::Error& error) {
  std::string text = absl::StrCat(app->get_name(), ": ", error.what());
  // A misspelled flag that is required is both: missing and unknown.
  const std::vector<std::string> unknown = app->remaining(/*recurse=*/true);
  if (error.get_name() == "RequiredError" && !unknown.empty()) {
    absl::StrAppend(&text, "; not known: ", absl::StrJoin(unknown, " "));
  }
  return absl::StrCat(text, "\nRun with --help for more information.\n");
}

}  // namespace

std::optional<int> ParseCommandLine(CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    // CLI11 would take what follows "--flag=" for its value, be it a flag.
    const bool empty = argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    if (empty) argument.pop_back();
    arguments.push_back(std::move(argument));
    if (empty) arguments.emplace_back();
  }
  DeclareConfig(app);
  DeclareDocumentation(app);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  app.failure_message(Complaint);
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return std::nullopt;
}

CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](const std::string& text) { return std::string(text.empty() ? "must not be empty" : ""); },
      "");
}

absl::StatusOr<absl::Duration> ParseDuration(const std::string& text, absl::Duration least) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration >= least && duration <= kYear) {
    return duration;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("must be a duration in [", absl::FormatDuration(least), ", ",
                   absl::FormatDuration(kYear), "], like 30s or 1m30s, not '", text, "'"));
}

CLI::Option* AddAddress(CLI::App& app, const std::string& name, std::string& value,
                        const std::string& help, int least_port) {
  const auto check = [least_port](const std::string& text) {
    return std::string(ParseHostPort(text, least_port).status().message());
  };
  return app.add_option(name, value, help)
      ->check(check)
      ->type_name("HOST:PORT")
      ->capture_default_str();
}

CLI::Option* AddLogLevel(CLI::App& app, std::string& level) {
  constexpr const char* kLevels = "trace, debug, info, warning, error or off";
  const auto parse = [kLevels](const std::string& text) -> absl::StatusOr<std::string> {
    for (const char* const known : {"trace", "debug", "info", "warning", "error", "off"}) {
      if (text == known) return text;
    }
    return absl::InvalidArgumentError(absl::StrCat("must be ", kLevels, ", not '", text, "'"));
  };
  return AddParsed(app, "--log-level", level, parse, absl::StrCat("How much is logged: ", kLevels))
      ->type_name("LEVEL")
      ->default_str(level);
}

}  // namespace skein
