// What clients waited for of late, for those who look at a coordinator without a Prometheus.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "coordinator/service/recent_durations.h"
#include "coordinator/service/request_observer.h"

namespace skein::coordinator {

// Keeps what clients of all models waited for. Thread-safe, but for Tick.
class LatencyWatch {
 public:
  struct Latencies {
    absl::Duration window = RecentDurations::kWindow;
    RecentDurations::Quantiles first_token;  // from a request's arrival
    RecentDurations::Quantiles inter_token;  // between steps that gave an answer tokens
  };

  Latencies Read() const {
    return {.first_token = first_token_.Read(), .inter_token = inter_token_.Read()};
  }
  // See RecentDurations::Advance.
  void Tick(absl::Time now) {
    first_token_.Advance(now);
    inter_token_.Advance(now);
  }

  // Returns an observer whose news are kept here and told to `next`, which outlives the watch; the
  // same one for the same `next`. It lives as long as the watch.
  RequestObserver& Over(RequestObserver* next) {
    MutexLock lock(&mutex_);
    auto& observer = observers_[next];
    if (observer == nullptr) observer = std::make_unique<Observer>(this, next);
    return *observer;
  }

 private:
  class Observer final : public RequestObserver {
   public:
    Observer(LatencyWatch* watch, RequestObserver* next) : watch_(*watch), next_(*next) {}

    void OnRefused(absl::StatusCode code) override { next_.OnRefused(code); }
    void OnAdmitted(int64_t prompt_tokens) override { next_.OnAdmitted(prompt_tokens); }
    void OnDispatched(absl::Duration queued) override { next_.OnDispatched(queued); }
    void OnFirstToken(absl::Duration waited) override {
      watch_.first_token_.Add(waited);
      next_.OnFirstToken(waited);
    }
    void OnTokens(int64_t tokens, std::optional<absl::Duration> gap) override {
      if (gap.has_value()) watch_.inter_token_.Add(*gap);
      next_.OnTokens(tokens, gap);
    }
    void OnAnswerEnd(AnswerEnd end, int64_t tokens,
                     std::optional<absl::Duration> per_token) override {
      next_.OnAnswerEnd(end, tokens, per_token);
    }
    void OnRequestEnd(absl::StatusCode code, absl::Duration since_arrival) override {
      next_.OnRequestEnd(code, since_arrival);
    }

   private:
    LatencyWatch& watch_;
    RequestObserver& next_;
  };

  RecentDurations first_token_;
  RecentDurations inter_token_;
  Mutex mutex_;
  std::map<RequestObserver*, std::unique_ptr<Observer>> observers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace skein::coordinator
