// The writing half of every stream here writes one message at a time, then the call's end.
#pragma once

#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/status.h>

#include <optional>

#include "absl/base/thread_annotations.h"

namespace skein::coordinator {

// A stream has to say next: a message, the end, both, or nothing yet.
struct NextWrite {
  bool has_message = false;
  std::optional<grpc::Status> end;
};

// Knows whether a write is under way and whether the call has been finished. The stream says what
// to write, when there is room for it, so that what piles up during a write can share the next
// message. Not thread-safe: the stream's mutex guards it.
template <typename Reactor, typename Message>
class MessageWriter {
 public:
  // The reactor outlives the writer, which is its only caller of StartWrite and Finish.
  explicit MessageWriter(Reactor* reactor) : reactor_(reactor) {}

  // Unless a write is under way or the end was said, calls next(message), which fills `message`
  // and says what of the two there is. Call it whenever there may be something.
  template <typename Next>
  void Advance(Next&& next) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (writing_ || finished_) return;
    in_flight_.Clear();
    const NextWrite write = next(in_flight_);
    writing_ = write.has_message;
    finished_ = write.end.has_value();
    if (writing_ && finished_) {
      reactor_->StartWriteAndFinish(&in_flight_, grpc::WriteOptions(), *write.end);
    } else if (writing_) {
      reactor_->StartWrite(&in_flight_);
    } else if (finished_) {
      reactor_->Finish(*write.end);
    }
  }
  // Call it from OnWriteDone, then Advance.
  void OnWriteDone() { writing_ = false; }

  bool finished() const { return finished_; }

 private:
  Reactor* const reactor_;
  Message in_flight_;
  bool writing_ = false;
  bool finished_ = false;
};

}  // namespace skein::coordinator
