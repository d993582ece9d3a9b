#include "base/flags/log_flags.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/flags/flags.h"

namespace skein {
namespace {

constexpr int64_t kLeastBytes = int64_t{64} << 10;  // the longest lines are shorter
constexpr int64_t kMostBytes = int64_t{1} << 40;

absl::StatusOr<int64_t> ParseSize(const std::string& text) {
  for (const auto& [unit, bytes] :
       {std::pair("KiB", int64_t{1} << 10), {"MiB", int64_t{1} << 20}, {"GiB", int64_t{1} << 30}}) {
    int64_t count = 0;
    if (!text.ends_with(unit) || !absl::SimpleAtoi(text.substr(0, text.size() - 3), &count)) {
      continue;
    }
    if (count > 0 && count <= kMostBytes / bytes && count * bytes >= kLeastBytes) {
      return count * bytes;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("must be a size in [64KiB, 1024GiB], like 100MiB, not '", text, "'"));
}

absl::StatusOr<LogOptions::Format> ParseFormat(const std::string& text) {
  if (text == "text") return LogOptions::Format::kText;
  if (text == "json") return LogOptions::Format::kJson;
  return absl::InvalidArgumentError(absl::StrCat("must be text or json, not '", text, "'"));
}

}  // namespace

void AddLogging(CLI::App& app, LogOptions& options, const std::string& file_of) {
  AddLogLevel(app, options.level);
  AddParsed(app, "--log-format", options.format, ParseFormat,
            "How lines are logged: text, or json, an object on each line")
      ->type_name("FORMAT")
      ->default_str("text");
  CLI::Option* const file =
      app.add_option("--log-file", options.file,
                     absl::StrCat("Log to this file, ", file_of,
                                  "and errors to standard error as well; it is opened anew where "
                                  "logrotate has moved it"))
          ->check(NotEmpty());
  AddParsed(app, "--log-max-size", options.max_bytes, ParseSize,
            "A --log-file that would be larger becomes FILE.1, the one before FILE.2, and so on")
      ->needs(file)
      ->type_name("SIZE")
      ->default_str("100MiB");
  app.add_option("--log-files", options.files, "So many files are kept, --log-file included")
      ->needs(file)
      ->check(InRange(1, 1000))
      ->capture_default_str();
}

}  // namespace skein
