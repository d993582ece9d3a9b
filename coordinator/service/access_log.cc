#include "coordinator/service/access_log.h"

#include <atomic>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/log/log_fields.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

std::atomic<bool> is_enabled = true;

// To the microsecond.
double Milliseconds(absl::Duration duration) {
  return std::round(absl::ToDoubleMicroseconds(duration)) / 1000;
}

}  // namespace

void EnableAccessLog(bool enabled) { is_enabled = enabled; }

void LogAccess(const EndedCall& call, const CallRecord& record) {
  const auto level = call.is_routine ? spdlog::level::debug : spdlog::level::info;
  if (!is_enabled || !spdlog::should_log(level)) return;
  const CallRecord::Counts counts = record.counts();
  LogFields fields = {{"protocol", std::string(call.protocol)},
                      {"method", std::string(call.method)},
                      {"route", std::string(call.route)},
                      {"status", call.status}};
  if (call.aborted) fields.emplace_back("aborted", true);
  fields.emplace_back("answer_bytes", call.answer_bytes);
  if (counts.requests > 1) fields.emplace_back("requests", counts.requests);
  if (counts.requests > 0) {
    fields.emplace_back("prompt_tokens", counts.prompt_tokens);
    fields.emplace_back("answer_tokens", counts.answer_tokens);
  }
  const auto add = [&](const char* name, std::optional<absl::Duration> duration) {
    if (duration.has_value()) fields.emplace_back(name, Milliseconds(*duration));
  };
  add("queue_ms", counts.queued);
  add("first_token_ms", counts.first_token);
  add("total_ms", call.total);
  const auto name = [&](const char* field, const std::string& text) {
    if (!text.empty()) fields.emplace_back(field, text);
  };
  name("key", record.caller().key);
  name("request_id", counts.request_id);
  name("client", record.caller().client);
  name("trace_id", record.caller().trace_id);
  const WithLogFields with(fields);
  spdlog::log(level, "access");
}

}  // namespace skein::coordinator
