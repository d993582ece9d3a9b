// The figures of a load test. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace skein::client {

// What a client saw of one request. Times count from the start of the measurement.
struct RequestRecord {
  std::string code = "OK";  // how it ended, in gRPC's words
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;  // that were asked for
  absl::Duration sent;
  absl::Duration ended;
  std::vector<absl::Duration> tokens;  // when each of the answer's tokens was received

  bool ok() const { return code == "OK"; }
};

// From sending to the first token; of an answer without tokens, nothing.
std::optional<absl::Duration> TimeToFirstToken(const RequestRecord& record);
// The mean time of a token after the first; of an answer of less than 2 tokens, nothing.
std::optional<absl::Duration> TimePerOutputToken(const RequestRecord& record);

// `percent` in [0, 100] of values that are sorted; between two of them by linear interpolation (as
// numpy does). 0 when there is none.
double Percentile(absl::Span<const double> sorted, double percent);

// In seconds.
struct Distribution {
  std::vector<double> sorted;
  double mean = 0;

  double percentile(double percent) const { return Percentile(sorted, percent); }
};
Distribution Describe(std::vector<double> seconds);

// What a request has to keep to count as good.
struct Limits {
  absl::Duration ttft = absl::InfiniteDuration();
  absl::Duration tpot = absl::InfiniteDuration();
};

// Only requests that ended OK count, but in `requests` and `errors`.
struct Summary {
  int64_t requests = 0;
  int64_t succeeded = 0;
  int64_t short_answers = 0;              // ended OK with other than the tokens asked for
  std::map<std::string, int64_t> errors;  // by code
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  double seconds = 0;  // from the first request's start to the last one's end
  double requests_per_s = 0;
  double tokens_per_s = 0;
  // Goodput (Zhong et al. 2024, "DistServe"): requests within both limits, per second.
  int64_t good = 0;
  double good_per_s = 0;
  Distribution ttft;
  Distribution tpot;
  Distribution inter_token;  // between tokens of one answer; 0 for those that arrive together
  Distribution latency;      // from sending to the end
};
Summary Summarize(absl::Span<const RequestRecord> records, const Limits& limits);

// Tokens per second that arrived in each of `parts` equal parts of [0, seconds).
std::vector<double> Throughput(absl::Span<const RequestRecord> records, double seconds, int parts);

}  // namespace skein::client
