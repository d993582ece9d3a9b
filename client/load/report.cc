#include "client/load/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace skein::client {
namespace {

using Json = nlohmann::ordered_json;

void AppendRow(std::string& out, const char* name, const Distribution& distribution) {
  const auto ms = [&](double percent) { return distribution.percentile(percent) * 1e3; };
  absl::StrAppendFormat(&out, "%-28s %10.2f %10.2f %10.2f %10.2f %10.2f\n", name,
                        distribution.mean * 1e3, ms(50), ms(90), ms(99), ms(100));
}

bool HasLimits(const Limits& limits) {
  return limits.ttft != absl::InfiniteDuration() || limits.tpot != absl::InfiniteDuration();
}

// "ttft <= 200ms, tpot <= 50ms"
std::string LimitText(const Limits& limits) {
  std::string text;
  if (limits.ttft != absl::InfiniteDuration()) {
    text = absl::StrCat("ttft <= ", absl::FormatDuration(limits.ttft));
  }
  if (limits.tpot != absl::InfiniteDuration()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", "tpot <= ", absl::FormatDuration(limits.tpot));
  }
  return text;
}

// Requests that came to an end of their own.
int64_t Done(const LoadTest& test) {
  const auto& errors = test.summary.errors;
  const auto cancelled = test.interrupted ? errors.find("CANCELLED") : errors.end();
  return test.summary.requests - (cancelled == errors.end() ? 0 : cancelled->second);
}

Json ToJson(const Distribution& distribution) {
  return {{"count", distribution.sorted.size()}, {"mean", distribution.mean},
          {"p50", distribution.percentile(50)},  {"p90", distribution.percentile(90)},
          {"p99", distribution.percentile(99)},  {"max", distribution.percentile(100)}};
}

Json ToJson(const RequestRecord& record) {
  Json json = {{"code", record.code},
               {"prompt_tokens", record.prompt_tokens},
               {"answer_tokens", record.answer_tokens},
               {"sent", absl::ToDoubleSeconds(record.sent)},
               {"ended", absl::ToDoubleSeconds(record.ended)}};
  Json& tokens = json["tokens"] = Json::array();
  for (const absl::Duration token : record.tokens) tokens.push_back(absl::ToDoubleSeconds(token));
  return json;
}

Json LimitJson(absl::Duration limit) {
  return limit == absl::InfiniteDuration() ? Json() : Json(absl::ToDoubleSeconds(limit));
}

}  // namespace

std::string FormatLoadTest(const LoadTest& test) {
  const Summary& summary = test.summary;
  std::string out = absl::StrFormat("%s: %s, %s\n", test.model, test.load, test.lengths);
  if (Done(test) < test.asked) {
    absl::StrAppendFormat(&out, "INCOMPLETE: interrupted when %d of %d requests were done\n",
                          Done(test), test.asked);
  }
  absl::StrAppendFormat(&out, "%d of %d requests succeeded in %.2f s\n", summary.succeeded,
                        summary.requests, summary.seconds);
  for (const auto& [code, count] : summary.errors) {
    absl::StrAppendFormat(&out, "  %s: %d\n", code, count);
  }
  if (summary.short_answers > 0) {
    absl::StrAppendFormat(&out, "%d answers have another length than was asked for\n",
                          summary.short_answers);
  }
  absl::StrAppendFormat(&out, "\n%-28s %10.2f requests/s\n", "throughput", summary.requests_per_s);
  absl::StrAppendFormat(&out, "%-28s %10.2f tokens/s\n", "", summary.tokens_per_s);
  if (HasLimits(test.limits)) {
    absl::StrAppendFormat(&out, "%-28s %10.2f requests/s (%d of %d within %s)\n", "goodput",
                          summary.good_per_s, summary.good, summary.requests,
                          LimitText(test.limits));
  }
  absl::StrAppendFormat(&out, "\n%-28s %10s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90",
                        "p99", "max");
  AppendRow(out, "time to first token", summary.ttft);
  AppendRow(out, "time per output token", summary.tpot);
  AppendRow(out, "between tokens", summary.inter_token);
  AppendRow(out, "whole answer", summary.latency);
  return out;
}

std::string LoadTestToJson(const LoadTest& test) {
  const Summary& summary = test.summary;
  Json json = {{"model", test.model},
               {"load", test.load},
               {"lengths", test.lengths},
               {"complete", Done(test) == test.asked},
               {"requests_asked", test.asked},
               {"requests_done", Done(test)},
               {"requests", summary.requests},
               {"succeeded", summary.succeeded},
               {"short_answers", summary.short_answers},
               {"errors", summary.errors},
               {"seconds", summary.seconds},
               {"prompt_tokens", summary.prompt_tokens},
               {"output_tokens", summary.output_tokens},
               {"requests_per_second", summary.requests_per_s},
               {"tokens_per_second", summary.tokens_per_s},
               {"goodput",
                {{"ttft_limit", LimitJson(test.limits.ttft)},
                 {"tpot_limit", LimitJson(test.limits.tpot)},
                 {"requests", summary.good},
                 {"requests_per_second", summary.good_per_s}}},
               {"ttft", ToJson(summary.ttft)},
               {"tpot", ToJson(summary.tpot)},
               {"inter_token", ToJson(summary.inter_token)},
               {"latency", ToJson(summary.latency)}};
  Json& records = json["records"] = Json::array();
  for (const RequestRecord& record : test.records) records.push_back(ToJson(record));
  return json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace skein::client
