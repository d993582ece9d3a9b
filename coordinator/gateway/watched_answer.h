// What is told of an answer: how it began, and how it went.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/service/access_log.h"
#include "coordinator/service/call_record.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {

// Passes an answer on, as a part of its call. Calls `on_status` once, with its head; of an answer
// whose client goes before that it says nothing there. Logs the call when it goes.
class WatchedAnswer final : public HttpAnswer {
 public:
  // `call`: its protocol, method, route, and whether it is routine.
  WatchedAnswer(std::unique_ptr<HttpAnswer> answer, std::function<void(int)> on_status,
                EndedCall call, std::shared_ptr<CallRecord> record, absl::Time began)
      : answer_(std::move(answer)),
        on_status_(std::move(on_status)),
        call_(std::move(call)),
        record_(std::move(record)),
        began_(began) {}
  ~WatchedAnswer() override {
    answer_.reset();  // it may have more to tell
    call_.status = absl::StrCat(status_);
    call_.aborted = !over_;
    call_.total = absl::Now() - began_;
    call_.is_routine = call_.is_routine && status_ < 400;
    LogAccess(call_, *record_);
  }

  Part Next() override {
    const CallRecord::Scope scope(record_);
    Part part = NextOf();
    call_.answer_bytes += static_cast<int64_t>(part.bytes.size());
    over_ = over_ || part.last;
    if (part.head.has_value() && on_status_) {
      status_ = part.head->status;
      std::exchange(on_status_, nullptr)(status_);
    }
    return part;
  }

 private:
  static constexpr int kClientGone = 499;  // as nginx has it

  Part NextOf() {
    try {
      return answer_->Next();
    } catch (const std::exception& thrown) {
      if (on_status_ == nullptr) throw;  // behind the head there is no other status
      spdlog::error("an HTTP request failed: {}", thrown.what());
      answer_ = ToAnswer({.status = 500, .message = kInternalError});
      return answer_->Next();
    }
  }

  std::unique_ptr<HttpAnswer> answer_;
  std::function<void(int)> on_status_;
  EndedCall call_;
  const std::shared_ptr<CallRecord> record_;
  const absl::Time began_;
  int status_ = kClientGone;
  bool over_ = false;
};

}  // namespace skein::coordinator
