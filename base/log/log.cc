#include "base/log/log.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/log/line_writer.h"
#include "base/log/log_fields.h"
#include "base/log/log_file.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "spdlog/fmt/fmt.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace skein {
namespace {

struct Level {
  std::string_view name;
  spdlog::level::level_enum value;
};
constexpr std::array<Level, 6> kLevels = {{
    {"trace", spdlog::level::trace},
    {"debug", spdlog::level::debug},
    {"info", spdlog::level::info},
    {"warning", spdlog::level::warn},
    {"error", spdlog::level::err},
    {"off", spdlog::level::off},
}};

std::optional<spdlog::level::level_enum> LevelOf(std::string_view text) {
  for (const auto& [name, value] : kLevels) {
    if (name == text) return value;
  }
  return std::nullopt;
}

std::string NameOf(spdlog::level::level_enum level) {
  for (const auto& [name, value] : kLevels) {
    if (value == level) return std::string(name);
  }
  return "error";
}

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

// Likewise; null: there is none.
std::atomic<LineWriter*> file_writer = nullptr;

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

// Quoted where it would not be read as one value.
std::string TextOf(const std::string& value) {
  bool plain = !value.empty();
  for (const char c : value) plain = plain && absl::ascii_isgraph(c) && c != '"' && c != '\\';
  return plain ? value : absl::StrCat("\"", absl::CHexEscape(value), "\"");
}
std::string TextOf(int64_t value) { return absl::StrCat(value); }
std::string TextOf(double value) { return fmt::format("{}", value); }
std::string TextOf(bool value) { return value ? "true" : "false"; }

// std::mutex, and not Mutex: what base_sink can lock.
class QueueSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  QueueSink(std::string component, LogOptions::Format format, LineWriter* writer, bool to_file)
      : component_(std::move(component)), format_(format), writer_(writer), to_file_(to_file) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string line = format_ == LogOptions::Format::kJson ? Json(message) : Text(message);
    if (to_file_ && message.level >= spdlog::level::err) StandardError().Write(line);
    writer_->Write(std::move(line));
  }
  void flush_() override {}

 private:
  std::string Text(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    std::string line(text.data(), text.size());
    while (line.ends_with('\n')) line.pop_back();
    if (terminal_ && message.color_range_end > message.color_range_start) {
      line.insert(message.color_range_end, "\x1b[0m");
      line.insert(message.color_range_start, ColorOf(message.level));
    }
    WithLogFields::ForEach([&](const std::string& name, const auto& value) {
      absl::StrAppend(&line, " ", name, "=",
                      std::visit([](const auto& of) { return TextOf(of); }, value));
    });
    return line;
  }

  std::string Json(const spdlog::details::log_msg& message) const {
    const absl::Time time = absl::FromChrono(message.time);
    nlohmann::ordered_json line = {
        {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone())},
        {"level", NameOf(message.level)},
        {"host", host_},
        {"source", component_},
        {"message", std::string(message.payload.data(), message.payload.size())}};
    WithLogFields::ForEach([&](const std::string& name, const auto& value) {
      std::visit([&](const auto& of) { line[name] = of; }, value);
    });
    // What is no UTF-8 is replaced.
    return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }

  const std::string host_ = HostName();
  const std::string component_;
  const LogOptions::Format format_;
  LineWriter* const writer_;
  const bool to_file_;
  const bool terminal_ = !to_file_ && isatty(STDERR_FILENO) == 1;
};

absl::StatusOr<LineWriter*> WriterTo(const LogOptions& options) {
  if (options.file.empty()) return &StandardError();
  SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<LogFile> file,
                         LogFile::Open(options.file, options.max_bytes, options.files));
  auto* const writer = new LineWriter([file](size_t bytes) {
    const int fd = file->DescriptorFor(bytes);
    if (const absl::Status trouble = file->TakeTrouble(); !trouble.ok()) {
      StandardError().Write(absl::StrCat("--log-file: ", std::string(trouble.message()),
                                         "; lines go where they went before"));
    }
    return fd;
  });
  file_writer = writer;
  return writer;
}

}  // namespace

void FlushLog() {
  StandardError().Flush(kLastLines);
  if (LineWriter* const writer = file_writer) writer->Flush(kLastLines);
}

absl::Status InitLogging(std::string_view component, const LogOptions& options) {
  const std::optional<spdlog::level::level_enum> level = LevelOf(options.level);
  if (!level.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "log level '", options.level, "' is none of trace, debug, info, warning, error, off"));
  }
  // A log whose reader has gone is no reason to end.
  signal(SIGPIPE, SIG_IGN);
  SKEIN_ASSIGN_OR_RETURN(LineWriter * writer, WriterTo(options));
  [[maybe_unused]] static const int flushes_at_exit = std::atexit(FlushLog);
  const bool to_file = !options.file.empty();
  auto logger = std::make_shared<spdlog::logger>(
      "skein",
      std::make_shared<QueueSink>(std::string(component), options.format, writer, to_file));
  logger->set_pattern(absl::StrCat(to_file ? "%Y-%m-%d " : "", "%H:%M:%S.%e %^%L%$ ",
                                   Literal(HostName()), " ", Literal(component), " | %v"));
  logger->set_level(*level);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

}  // namespace skein
