#include "base/log/log.h"

#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace skein {
namespace {

constexpr std::array<std::pair<std::string_view, spdlog::level::level_enum>, 6> kLevels = {{
    {"trace", spdlog::level::trace},
    {"debug", spdlog::level::debug},
    {"info", spdlog::level::info},
    {"warning", spdlog::level::warn},
    {"error", spdlog::level::err},
    {"off", spdlog::level::off},
}};

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.data();
}

// spdlog reads '%' in a pattern as a flag.
std::string Literal(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped.append(c == '%' ? 2 : 1, c);
  return escaped;
}

}  // namespace

absl::Status InitLogging(std::string_view component, std::string_view level) {
  for (const auto& [name, value] : kLevels) {
    if (name != level) continue;
    auto logger = std::make_shared<spdlog::logger>(
        "skein", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_pattern(
        absl::StrCat("%H:%M:%S.%e %^%L%$ ", Literal(HostName()), " ", Literal(component), " | %v"));
    logger->set_level(value);
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(std::move(logger));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "log level '", std::string(level), "' is none of trace, debug, info, warning, error, off"));
}

}  // namespace skein
