// Counts requests as they go.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/service/request_observer.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/labels.h"
#include "prometheus/registry.h"

namespace skein::coordinator {

// Counts requests that name no model that is served, which are refused.
class RefusalMetrics final : public RequestObserver {
 public:
  explicit RefusalMetrics(prometheus::Registry& registry);
  void OnRefused(absl::StatusCode code) override;

 private:
  prometheus::Family<prometheus::Counter>& refused_;  // by code
};

// Thread-safe. Owns nothing: the registry holds the values, and outlives it. What comes once a step
// and answer takes an atomic sum and a histogram's own lock, which a scrape holds only while it
// copies the buckets (docs/metrics.md tells the time).
class RequestMetrics final : public RequestObserver {
 public:
  // `context_length`: tokens of a sequence at most, which ends the buckets of tokens.
  // Labels say which model it is.
  RequestMetrics(prometheus::Registry& registry, const std::string& model_name,
                 int64_t context_length);

  void OnRefused(absl::StatusCode code) override;
  void OnAdmitted(int64_t prompt_tokens) override;
  void OnDispatched(absl::Duration queued) override;
  void OnFirstToken(absl::Duration waited) override;
  void OnTokens(int64_t tokens, std::optional<absl::Duration> gap) override;
  void OnAnswerEnd(AnswerEnd end, int64_t tokens, std::optional<absl::Duration> per_token) override;
  void OnRequestEnd(absl::StatusCode code, absl::Duration since_arrival) override;

 private:
  const prometheus::Labels labels_;
  prometheus::Counter& admitted_;
  prometheus::Counter& prompt_tokens_total_;
  prometheus::Counter& generation_tokens_total_;
  prometheus::Family<prometheus::Counter>& refused_;  // by code
  prometheus::Family<prometheus::Counter>& failed_;   // by code
  std::map<AnswerEnd, prometheus::Counter*> ended_;
  prometheus::Histogram& queue_time_;
  prometheus::Histogram& first_token_;
  prometheus::Histogram& inter_token_;
  prometheus::Histogram& per_output_token_;
  prometheus::Histogram& latency_;
  prometheus::Histogram& prompt_tokens_;
  prometheus::Histogram& generation_tokens_;
};

}  // namespace skein::coordinator
