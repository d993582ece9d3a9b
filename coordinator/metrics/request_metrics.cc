#include "coordinator/metrics/request_metrics.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/metrics/buckets.h"

namespace skein::coordinator {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::Registry;
using AnswerEnd = RequestObserver::AnswerEnd;

// vLLM's words, but for an end-of-sequence token, which it counts as "stop".
constexpr std::pair<AnswerEnd, const char*> kReasons[] = {{AnswerEnd::kEos, "eos"},
                                                          {AnswerEnd::kStop, "stop"},
                                                          {AnswerEnd::kMaxTokens, "length"},
                                                          {AnswerEnd::kError, "error"},
                                                          {AnswerEnd::kCancelled, "abort"}};

Family<Counter>& Counters(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

Counter& OneCounter(Registry& registry, const Labels& labels, const char* name, const char* help) {
  return Counters(registry, name, help).Add(labels);
}

Labels With(Labels labels, const char* name, const std::string& value) {
  labels.emplace(name, value);
  return labels;
}

Counter& OfCode(Family<Counter>& family, const Labels& labels, absl::StatusCode code) {
  return family.Add(With(labels, "code", absl::StatusCodeToString(code)));
}

// The codes that are expected are there at once: a rate cannot see a series' first value.
Family<Counter>& CountersByCode(Family<Counter>& family, const Labels& labels,
                                std::initializer_list<absl::StatusCode> expected) {
  for (const absl::StatusCode code : expected) OfCode(family, labels, code);
  return family;
}

Family<Counter>& Refused(Registry& registry) {
  return Counters(registry, "skein_requests_refused_total",
                  "Requests that were not begun, by the code of the error.");
}

std::map<AnswerEnd, Counter*> CountersByReason(Family<Counter>& family, const Labels& labels) {
  std::map<AnswerEnd, Counter*> counters;
  for (const auto& [end, name] : kReasons) {
    counters[end] = &family.Add(With(labels, "finished_reason", name));
  }
  return counters;
}

Histogram& OneHistogram(Registry& registry, const Labels& labels, const char* name,
                        const char* help, const std::vector<double>& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
}

}  // namespace

RefusalMetrics::RefusalMetrics(Registry& registry)
    : refused_(CountersByCode(Refused(registry), {{"model_name", ""}},
                              {absl::StatusCode::kInvalidArgument, absl::StatusCode::kNotFound})) {}

void RefusalMetrics::OnRefused(absl::StatusCode code) {
  OfCode(refused_, {{"model_name", ""}}, code).Increment();
}

// A registry has one family of a name, whoever asks for it.
RequestMetrics::RequestMetrics(Registry& registry, const std::string& model_name,
                               int64_t context_length)
    : labels_({{"model_name", model_name}}),
      admitted_(OneCounter(registry, labels_, "skein_requests_admitted_total",
                           "Requests that were taken: they waited for a replica or had one.")),
      prompt_tokens_total_(OneCounter(registry, labels_, "skein_prompt_tokens_total",
                                      "Tokens of the prompts of admitted requests.")),
      generation_tokens_total_(OneCounter(registry, labels_, "skein_generation_tokens_total",
                                          "Tokens that answers were given.")),
      refused_(
          CountersByCode(Refused(registry), labels_,
                         {absl::StatusCode::kInvalidArgument, absl::StatusCode::kFailedPrecondition,
                          absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnavailable})),
      failed_(CountersByCode(Counters(registry, "skein_requests_failed_total",
                                      "Admitted requests that ended with an error, by its code."),
                             labels_,
                             {absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kInternal,
                              absl::StatusCode::kUnavailable})),
      ended_(CountersByReason(
          Counters(registry, "skein_answers_finished_total",
                   "Answers that ended, by reason; a request for n answers counts n times."),
          labels_)),
      queue_time_(OneHistogram(registry, labels_, "skein_request_queue_time_seconds",
                               "From a request's arrival until a replica had it.",
                               RequestLatencyBuckets())),
      first_token_(OneHistogram(registry, labels_, "skein_time_to_first_token_seconds",
                                "From a request's arrival to the first token of its answers.",
                                FirstTokenBuckets())),
      inter_token_(OneHistogram(
          registry, labels_, "skein_inter_token_latency_seconds",
          "Between steps that gave an answer tokens, as the coordinator heard of them.",
          PerTokenBuckets())),
      per_output_token_(OneHistogram(
          registry, labels_, "skein_request_time_per_output_token_seconds",
          "Of each whole answer: its mean time between tokens, from the first to the last.",
          PerTokenBuckets())),
      latency_(OneHistogram(registry, labels_, "skein_e2e_request_latency_seconds",
                            "From a request's arrival to its end, where every answer is whole.",
                            RequestLatencyBuckets())),
      prompt_tokens_(OneHistogram(registry, labels_, "skein_request_prompt_tokens",
                                  "Tokens of the prompt of each admitted request.",
                                  TokenBuckets(context_length))),
      generation_tokens_(OneHistogram(registry, labels_, "skein_request_generation_tokens",
                                      "Tokens of each whole answer.",
                                      TokenBuckets(context_length))) {}

void RequestMetrics::OnRefused(absl::StatusCode code) {
  OfCode(refused_, labels_, code).Increment();
}

void RequestMetrics::OnAdmitted(int64_t prompt_tokens) {
  const auto tokens = static_cast<double>(prompt_tokens);
  admitted_.Increment();
  prompt_tokens_total_.Increment(tokens);
  prompt_tokens_.Observe(tokens);
}

void RequestMetrics::OnDispatched(absl::Duration queued) {
  queue_time_.Observe(absl::ToDoubleSeconds(queued));
}

void RequestMetrics::OnFirstToken(absl::Duration waited) {
  first_token_.Observe(absl::ToDoubleSeconds(waited));
}

void RequestMetrics::OnTokens(int64_t tokens, std::optional<absl::Duration> gap) {
  generation_tokens_total_.Increment(static_cast<double>(tokens));
  if (gap.has_value()) inter_token_.Observe(absl::ToDoubleSeconds(*gap));
}

void RequestMetrics::OnAnswerEnd(AnswerEnd end, int64_t tokens,
                                 std::optional<absl::Duration> per_token) {
  ended_.at(end)->Increment();
  if (end == AnswerEnd::kError || end == AnswerEnd::kCancelled) return;
  generation_tokens_.Observe(static_cast<double>(tokens));
  if (per_token.has_value()) per_output_token_.Observe(absl::ToDoubleSeconds(*per_token));
}

void RequestMetrics::OnRequestEnd(absl::StatusCode code, absl::Duration since_arrival) {
  if (code == absl::StatusCode::kOk) {
    latency_.Observe(absl::ToDoubleSeconds(since_arrival));
  } else if (code != absl::StatusCode::kCancelled) {
    OfCode(failed_, labels_, code).Increment();
  }
}

}  // namespace skein::coordinator
