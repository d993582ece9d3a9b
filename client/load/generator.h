// Sends planned requests to a coordinator and notes when their tokens come.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "client/connection.h"
#include "client/load/sender.h"
#include "client/load/statistics.h"
#include "client/load/workload.h"
#include "proto/inference.grpc.pb.h"

namespace skein::client {

struct LoadProgress {
  int64_t finished = 0;
  int64_t failed = 0;  // of them
  int64_t running = 0;
  int64_t tokens = 0;
  absl::Duration elapsed;
};

class LoadGenerator final : private Sender::Listener {
 public:
  enum class Calls { kOne, kSeparate };  // SendInOneCall, SendInSeparateCalls

  // `on_progress` is called by Run, some five times a second. The connection outlives the
  // generator.
  LoadGenerator(const Connection* connection, Calls calls,
                std::function<void(const LoadProgress&)> on_progress);

  // Sends all requests and waits until all have ended. `concurrency` > 0: a request begins when
  // less than so many run; 0: at its time. Records are in the requests' order; after Cancel,
  // requests that were not sent have none. One call at a time.
  std::vector<RequestRecord> Run(absl::Span<const PlannedRequest> requests, int64_t concurrency);

  // From any thread: sends no more and cancels what runs, which then counts as no failure.
  void Cancel();
  bool cancelled() const;

  // What a person may do about the last request that failed; empty when none did.
  std::string last_error() const;

 private:
  void OnTokens(size_t index, size_t tokens) override;
  void OnEnd(size_t index, const grpc::Status& status) override;

  bool MayBegin(const PlannedRequest& request, int64_t concurrency) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Sender> MakeSender();
  // Until something may have changed, or it is time for progress, or `until`.
  void Wait(absl::Duration until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReportProgress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration Elapsed() const;

  const Connection* const connection_;
  const Calls calls_;
  const std::unique_ptr<v1::Inference::Stub> stub_;
  const std::function<void(const LoadProgress&)> on_progress_;
  std::chrono::steady_clock::time_point start_;  // set while nothing runs

  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<Sender> sender_ ABSL_GUARDED_BY(mutex_);  // while a load runs
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t finished_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t failed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration next_report_ ABSL_GUARDED_BY(mutex_);
  std::string last_error_ ABSL_GUARDED_BY(mutex_);
  std::vector<RequestRecord> records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace skein::client
