#include "base/log/log.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/log/line_writer.h"
#include "spdlog/sinks/base_sink.h"
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

constexpr absl::Duration kLastLines = absl::Seconds(1);

// Of the process, as standard error is; never destroyed, since threads log until the very end.
LineWriter& StandardError() {
  static LineWriter* const writer = new LineWriter(STDERR_FILENO);
  return *writer;
}

// The letter of the level in its colour, as people expect on a terminal.
std::string_view ColorOf(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::info:
      return "\x1b[32m";
    case spdlog::level::warn:
      return "\x1b[33m\x1b[1m";
    case spdlog::level::err:
      return "\x1b[31m\x1b[1m";
    default:
      return "\x1b[36m";
  }
}

// std::mutex, and not Mutex: what base_sink can lock.
class QueueSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    std::string line(text.data(), text.size());
    while (line.ends_with('\n')) line.pop_back();
    if (terminal_ && message.color_range_end > message.color_range_start) {
      line.insert(message.color_range_end, "\x1b[0m");
      line.insert(message.color_range_start, ColorOf(message.level));
    }
    StandardError().Write(std::move(line));
  }
  void flush_() override {}

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
};

}  // namespace

void FlushLog() { StandardError().Flush(kLastLines); }

absl::Status InitLogging(std::string_view component, std::string_view level) {
  for (const auto& [name, value] : kLevels) {
    if (name != level) continue;
    // A log whose reader has gone is no reason to end.
    signal(SIGPIPE, SIG_IGN);
    [[maybe_unused]] static const int flushes_at_exit = std::atexit(FlushLog);
    auto logger = std::make_shared<spdlog::logger>("skein", std::make_shared<QueueSink>());
    logger->set_pattern(
        absl::StrCat("%H:%M:%S.%e %^%L%$ ", Literal(HostName()), " ", Literal(component), " | %v"));
    logger->set_level(value);
    spdlog::set_default_logger(std::move(logger));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "log level '", std::string(level), "' is none of trace, debug, info, warning, error, off"));
}

}  // namespace skein
