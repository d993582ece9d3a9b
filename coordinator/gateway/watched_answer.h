// Tells with which status an answer began.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "coordinator/gateway/http_server.h"

namespace skein::coordinator {

// Passes an answer on, and calls `on_status` once, with its head. Of an answer whose client goes
// before that it says nothing.
class WatchedAnswer final : public HttpAnswer {
 public:
  WatchedAnswer(std::unique_ptr<HttpAnswer> answer, std::function<void(int)> on_status)
      : answer_(std::move(answer)), on_status_(std::move(on_status)) {}
  Part Next() override {
    Part part = answer_->Next();
    if (part.head.has_value() && on_status_) std::exchange(on_status_, nullptr)(part.head->status);
    return part;
  }

 private:
  const std::unique_ptr<HttpAnswer> answer_;
  std::function<void(int)> on_status_;
};

}  // namespace skein::coordinator
