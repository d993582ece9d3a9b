// A scripted load: every metric has a value after it.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "coordinator/metrics/metrics.h"

namespace skein::coordinator {

// Two jobs: one serves with two replicas, the first of which has computed long enough to be held
// against its predictions; one waits for its ranks. A third is over.
inline MetricsSnapshot ScriptedSnapshot() {
  const serving::ReplicaLoad load = {
      .running = 3,
      .waiting = 2,
      .total_pages = 100,
      .free_pages = 60,
      .used_pages = 25,
      .shared_pages = 5,
      .cached_pages = 35,
      .total_swap_pages = 50,
      .free_swap_pages = 49,
      .steps = 1000,
      .prompt_tokens = 4096,
      .cached_tokens = 1024,
      .preemptions_swapped = 7,
      .preemptions_recomputed = 8,
      .decode_steps = 900,
      .decode_rows = 2700,
      .decode_time = absl::Milliseconds(1800),
      .prompt_steps = {.steps = 100, .rows = 3072, .time = absl::Milliseconds(1250)},
      .host_time = absl::Milliseconds(90)};
  const StepComparison decodes = {.steps = 60,
                                  .decodes = 3,
                                  .context = 128,
                                  .measured = absl::Microseconds(2500),
                                  .predicted = absl::Microseconds(2000)};
  const StepComparison prompts = {.steps = 30,
                                  .prompt_rows = 96,
                                  .measured = absl::Milliseconds(15),
                                  .predicted = absl::Microseconds(12500)};
  JobStatus serving = {
      .id = "5f0c", .model = "bard", .state = "serving", .size = 3, .plan = {}, .detail = {}};
  const comm::RankTimes times = {.compute = absl::Milliseconds(6500),
                                 .transfer = absl::Milliseconds(250),
                                 .bubble = absl::Milliseconds(1250),
                                 .waiting = absl::Seconds(2)};
  serving.ranks = {{0, "node0", 100, "ready", absl::Milliseconds(250), 10, times},
                   {1, "node1", 101, "ready", absl::Milliseconds(500), 10},
                   {2, "node1", 102, "idle", absl::ZeroDuration(), 10}};
  serving.replicas = {{.replica = 0,
                       .load = load,
                       .tokens_per_second = 1,
                       .tokens_total = 2800,
                       .decodes = decodes,
                       .prompts = prompts},
                      {.replica = 1, .load = {.total_pages = 100, .free_pages = 100}}};
  JobStatus waiting = {.id = "77aa",
                       .model = "chat",
                       .state = "waiting for ranks",
                       .size = 2,
                       .plan = {},
                       .detail = {}};
  waiting.ranks = {{0, "node2", 103, "attached", absl::ZeroDuration(), 0}};
  JobStatus over = {
      .id = "dead", .model = "bard", .state = "lost", .size = 1, .plan = {}, .detail = "gone"};
  over.ranks = {{0, "node3", 104, "lost", absl::ZeroDuration(), 0}};
  over.replicas = {{.replica = 0, .load = load}};
  over.over_for = absl::Seconds(1);
  return {
      .models = {{"bard", {.queued = 4, .running = 6, .migrations = 9}}, {"chat", {.queued = 1}}},
      .jobs = {serving, waiting, over}};
}

inline std::unique_ptr<Metrics> ScriptedMetrics() {
  using AnswerEnd = RequestObserver::AnswerEnd;
  auto metrics =
      std::make_unique<Metrics>(Metrics::Options{.version = "1.2.3", .snapshot = ScriptedSnapshot});
  RequestObserver& observer = metrics->observer("bard", 100);
  metrics->observer("chat", 50).OnAdmitted(7);
  // Three tokens in two steps.
  observer.OnAdmitted(12);
  observer.OnDispatched(absl::Milliseconds(40));
  observer.OnFirstToken(absl::Milliseconds(90));
  observer.OnTokens(1, {});
  observer.OnTokens(2, absl::Milliseconds(4));
  observer.OnAnswerEnd(AnswerEnd::kEos, 3, absl::Milliseconds(2));
  observer.OnRequestEnd(absl::StatusCode::kOk, absl::Milliseconds(94));
  // One answer of two is whole, then the request fails.
  observer.OnAdmitted(60);
  observer.OnTokens(1, {});
  observer.OnAnswerEnd(AnswerEnd::kMaxTokens, 1, {});
  observer.OnAnswerEnd(AnswerEnd::kError, 0, {});
  observer.OnRequestEnd(absl::StatusCode::kInternal, absl::Seconds(3));
  // Its client goes.
  observer.OnAdmitted(1);
  observer.OnAnswerEnd(AnswerEnd::kCancelled, 5, {});
  observer.OnRequestEnd(absl::StatusCode::kCancelled, absl::Seconds(4));
  observer.OnRefused(absl::StatusCode::kResourceExhausted);
  observer.OnRefused(absl::StatusCode::kResourceExhausted);
  observer.OnRefused(absl::StatusCode::kOutOfRange);  // none that is expected
  metrics->OnHttpAnswer("/v1/completions", 200);
  metrics->OnHttpAnswer("/v1/completions", 200);
  metrics->of_no_model().OnRefused(absl::StatusCode::kNotFound);
  metrics->OnHttpAnswer("/v1/completions", 429);
  return metrics;
}

}  // namespace skein::coordinator
