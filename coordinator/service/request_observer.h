// What happens to requests, told as it happens to whoever counts it.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace skein::coordinator {

// Called by many threads, some of which hold a generation's lock or the dispatcher's: a call is
// quick and calls nobody back. Durations are of the service's clock. What a class does not override
// is ignored.
class RequestObserver {
 public:
  // kError: its request failed. kCancelled: its client went away, or wanted no more.
  enum class AnswerEnd : uint8_t { kEos, kStop, kMaxTokens, kError, kCancelled };

  virtual ~RequestObserver() = default;

  // It was not begun, for this reason.
  virtual void OnRefused(absl::StatusCode /*code*/) {}
  // It waits for a replica, or has one already: the calls below may come first.
  virtual void OnAdmitted(int64_t /*prompt_tokens*/) {}
  // A replica has it for the first time, so long after it arrived.
  virtual void OnDispatched(absl::Duration /*queued*/) {}
  // The first of all its answers' tokens, so long after it arrived.
  virtual void OnFirstToken(absl::Duration /*waited*/) {}
  // A step gave an answer tokens, one or more. `gap`: since those before; none before: nothing.
  virtual void OnTokens(int64_t /*tokens*/, std::optional<absl::Duration> /*gap*/) {}
  // `per_token`: between the first token and the last, of an answer of two or more that is whole.
  virtual void OnAnswerEnd(AnswerEnd /*end*/, int64_t /*tokens*/,
                           std::optional<absl::Duration> /*per_token*/) {}
  // After the last OnAnswerEnd. OK: every answer is whole. Cancelled: as kCancelled above.
  virtual void OnRequestEnd(absl::StatusCode /*code*/, absl::Duration /*since_arrival*/) {}

  // Ignores everything.
  static RequestObserver& None() {
    static RequestObserver none;
    return none;
  }
};

}  // namespace skein::coordinator
