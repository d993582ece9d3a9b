#include "client/load/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace skein::client {
namespace {

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

bool IsGood(const RequestRecord& record, const Limits& limits) {
  const auto ttft = TimeToFirstToken(record);
  const auto tpot = TimePerOutputToken(record);
  return ttft.has_value() && *ttft <= limits.ttft && (!tpot.has_value() || *tpot <= limits.tpot);
}

}  // namespace

std::optional<absl::Duration> TimeToFirstToken(const RequestRecord& record) {
  if (record.tokens.empty()) return std::nullopt;
  return record.tokens.front() - record.sent;
}

std::optional<absl::Duration> TimePerOutputToken(const RequestRecord& record) {
  if (record.tokens.size() < 2) return std::nullopt;
  return (record.tokens.back() - record.tokens.front()) /
         static_cast<int64_t>(record.tokens.size() - 1);
}

double Percentile(absl::Span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  const double position = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(position));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

Distribution Describe(std::vector<double> seconds) {
  Distribution distribution;
  distribution.sorted = std::move(seconds);
  std::vector<double>& values = distribution.sorted;
  if (values.empty()) return distribution;
  std::sort(values.begin(), values.end());
  distribution.mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return distribution;
}

Summary Summarize(absl::Span<const RequestRecord> records, const Limits& limits) {
  Summary summary;
  summary.requests = static_cast<int64_t>(records.size());
  std::vector<double> ttft, tpot, inter_token, latency;
  absl::Duration begin = absl::InfiniteDuration(), end = -absl::InfiniteDuration();
  for (const RequestRecord& record : records) {
    begin = std::min(begin, record.sent);
    end = std::max(end, record.ended);
    if (!record.ok()) {
      ++summary.errors[record.code];
      continue;
    }
    const auto tokens = static_cast<int64_t>(record.tokens.size());
    ++summary.succeeded;
    summary.short_answers += tokens == record.answer_tokens ? 0 : 1;
    summary.prompt_tokens += record.prompt_tokens;
    summary.output_tokens += tokens;
    summary.good += IsGood(record, limits) ? 1 : 0;
    if (const auto time = TimeToFirstToken(record)) ttft.push_back(Seconds(*time));
    if (const auto time = TimePerOutputToken(record)) tpot.push_back(Seconds(*time));
    for (size_t i = 1; i < record.tokens.size(); ++i) {
      inter_token.push_back(Seconds(record.tokens[i] - record.tokens[i - 1]));
    }
    latency.push_back(Seconds(record.ended - record.sent));
  }
  summary.ttft = Describe(std::move(ttft));
  summary.tpot = Describe(std::move(tpot));
  summary.inter_token = Describe(std::move(inter_token));
  summary.latency = Describe(std::move(latency));
  if (end > begin) {
    summary.seconds = Seconds(end - begin);
    summary.requests_per_s = static_cast<double>(summary.succeeded) / summary.seconds;
    summary.tokens_per_s = static_cast<double>(summary.output_tokens) / summary.seconds;
    summary.good_per_s = static_cast<double>(summary.good) / summary.seconds;
  }
  return summary;
}

std::vector<double> Throughput(absl::Span<const RequestRecord> records, double seconds, int parts) {
  std::vector<double> rates(static_cast<size_t>(parts), 0.0);
  if (!(seconds > 0)) return rates;
  const double part = seconds / parts;
  for (const RequestRecord& record : records) {
    if (!record.ok()) continue;
    for (const absl::Duration token : record.tokens) {
      const double index = std::clamp(Seconds(token) / part, 0.0, static_cast<double>(parts - 1));
      rates[static_cast<size_t>(index)] += 1 / part;
    }
  }
  return rates;
}

}  // namespace skein::client
