#include "coordinator/rpc/attach_stream.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "coordinator/rpc/grpc_status.h"
#include "coordinator/rpc/sha256.h"
#include "proto/convert/attach.h"
#include "proto/convert/plan.h"
#include "proto/convert/serving.h"

namespace skein::coordinator {

namespace wire = ::skein::cluster::v1;

namespace {

// This number stays in a message that was never read. gRPC reports the end of the rank's messages
// and one that cannot be parsed alike, but the latter has been cleared.
constexpr int32_t kNothingRead = std::numeric_limits<int32_t>::min();

}  // namespace

AttachStream* AttachStream::Start(grpc::CallbackServerContext* context, Cluster* cluster,
                                  absl::Duration hello_time) {
  std::shared_ptr<AttachStream> stream(new AttachStream(context, cluster));
  stream->self_ = stream;
  stream->hello_alarm_.Set(
      std::chrono::system_clock::now() + absl::ToChronoMilliseconds(hello_time),
      [weak = stream->weak_from_this(), hello_time](bool passed) {
        const auto late = passed ? weak.lock() : nullptr;
        if (late == nullptr) return;
        MutexLock lock(&late->mutex_);
        if (late->said_hello_ || late->closing_.has_value()) return;
        late->closing_ = absl::DeadlineExceededError(
            absl::StrCat("no Hello came within ", absl::FormatDuration(hello_time)));
        late->Advance();
      });
  stream->Read();
  return stream.get();
}

void AttachStream::Read() {
  incoming_.mutable_failure()->set_code(kNothingRead);
  StartRead(&incoming_);
}

void AttachStream::OnReadDone(bool ok) {
  if (ok) {
    OnMessage();
    return Read();
  }
  absl::Status end;
  if (incoming_.failure().code() != kNothingRead) {
    end = absl::InvalidArgumentError("a message cannot be read as skein.cluster.v1.WorkerMessage");
  }
  if (rank_.has_value()) {
    cluster_->OnGone(*rank_, !end.ok() ? end
                             : context_->IsCancelled()
                                 ? absl::UnavailableError("the connection broke")
                                 : absl::CancelledError("the rank hung up"));
  }
  MutexLock lock(&mutex_);
  if (!closing_.has_value()) closing_ = end;
  outgoing_.clear();
  Advance();
}

void AttachStream::OnMessage() {
  if (!rank_.has_value()) {
    if (incoming_.kind_case() != wire::WorkerMessage::kHello) {
      return Close(absl::InvalidArgumentError("the first message must be Hello"));
    }
    {
      MutexLock lock(&mutex_);
      if (closing_.has_value()) return;  // it came too late
      said_hello_ = true;
    }
    absl::StatusOr<attach::Hello> hello = convert::FromProto(incoming_.hello());
    incoming_.mutable_hello()->clear_job_secret();
    if (!hello.ok()) return Close(hello.status());
    const std::string secret_digest = Sha256(std::exchange(hello->job_secret, ""));
    const auto rank = cluster_->Attach(*hello, secret_digest, self_);
    if (!rank.ok()) return Close(rank.status());
    rank_ = *rank;
    return;
  }
  switch (incoming_.kind_case()) {
    case wire::WorkerMessage::kHello:
      cluster_->OnFailure(*rank_, absl::InvalidArgumentError("it said Hello twice"));
      break;
    case wire::WorkerMessage::kHeartbeat:
      cluster_->OnHeartbeat(*rank_, convert::FromProto(incoming_.heartbeat()));
      AnswerHeartbeat();
      break;
    case wire::WorkerMessage::kReady:
      cluster_->OnReady(*rank_, convert::FromProto(incoming_.ready()));
      break;
    case wire::WorkerMessage::kStep:
      cluster_->OnStep(*rank_, convert::FromProto(incoming_.step()));
      ++messages_taken_;
      break;
    case wire::WorkerMessage::kFailure:
      cluster_->OnFailure(*rank_, convert::FromProto(incoming_.failure()));
      break;
    case wire::WorkerMessage::KIND_NOT_SET:
      break;
  }
}

void AttachStream::AnswerHeartbeat() {
  MutexLock lock(&mutex_);
  if (writer_.finished() || closing_.has_value()) return;
  auto answer = std::find_if(outgoing_.begin(), outgoing_.end(),
                             [](const auto& message) { return message.has_heartbeat(); });
  if (answer == outgoing_.end()) {
    outgoing_.emplace_back();
    answer = std::prev(outgoing_.end());
  }
  answer->mutable_heartbeat()->set_messages_taken(messages_taken_);
  Advance();
}

void AttachStream::SendPlan(const plan::Plan& plan) {
  wire::CoordinatorMessage message;
  *message.mutable_plan() = convert::ToProto(plan);
  Enqueue(std::move(message));
}

void AttachStream::SendUpdates(serving::RequestUpdates updates) {
  MutexLock lock(&mutex_);
  if (writer_.finished() || closing_.has_value()) return;
  if (outgoing_.empty() || !outgoing_.back().has_updates()) {
    outgoing_.emplace_back();
    ++messages_sent_;
  }
  convert::AppendToProto(updates, absl::Now(), *outgoing_.back().mutable_updates());
  Advance();
}

uint64_t AttachStream::messages_sent() const {
  MutexLock lock(&mutex_);
  return messages_sent_;
}

void AttachStream::SendShutdown(const std::string& reason, int exit_code) {
  wire::CoordinatorMessage message;
  message.mutable_shutdown()->set_reason(reason);
  message.mutable_shutdown()->set_exit_code(exit_code);
  Enqueue(std::move(message));
}

void AttachStream::Close(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (!closing_.has_value()) closing_ = status;
  Advance();
}

void AttachStream::Enqueue(wire::CoordinatorMessage message) {
  MutexLock lock(&mutex_);
  if (writer_.finished() || closing_.has_value()) return;
  outgoing_.push_back(std::move(message));
  Advance();
}

void AttachStream::Advance() {
  writer_.Advance([this](wire::CoordinatorMessage& message)
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> NextWrite {
                        if (outgoing_.empty()) {
                          if (!closing_.has_value()) return {};
                          return {.end = ToGrpc(*closing_)};
                        }
                        message = std::move(outgoing_.front());
                        outgoing_.pop_front();
                        return {.has_message = true};
                      });
}

void AttachStream::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  writer_.OnWriteDone();
  if (!ok) outgoing_.clear();
  Advance();
}

void AttachStream::OnDone() {
  const std::shared_ptr<AttachStream> last = std::move(self_);  // may delete this on return
}

}  // namespace skein::coordinator
