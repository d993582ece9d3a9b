#include "coordinator/rpc/attach_stream.h"

#include <algorithm>
#include <utility>

#include "coordinator/rpc/cluster_convert.h"
#include "coordinator/rpc/grpc_status.h"
#include "proto/convert/plan.h"

namespace skein::coordinator {

namespace wire = ::skein::cluster::v1;

AttachStream* AttachStream::Start(grpc::CallbackServerContext* context, Cluster* cluster) {
  std::shared_ptr<AttachStream> stream(new AttachStream(context, cluster));
  stream->self_ = stream;
  stream->StartRead(&stream->incoming_);
  return stream.get();
}

void AttachStream::OnReadDone(bool ok) {
  if (ok) {
    OnMessage();
    StartRead(&incoming_);
    return;
  }
  if (rank_.has_value()) {
    cluster_->OnGone(*rank_, context_->IsCancelled()
                                 ? absl::UnavailableError("the connection broke")
                                 : absl::CancelledError("the rank hung up"));
  }
  MutexLock lock(&mutex_);
  if (!closing_.has_value()) closing_ = absl::OkStatus();
  outgoing_.clear();
  Advance();
}

void AttachStream::OnMessage() {
  if (!rank_.has_value()) {
    if (incoming_.kind_case() != wire::WorkerMessage::kHello) {
      return Close(absl::InvalidArgumentError("the first message must be Hello"));
    }
    const absl::StatusOr<RankHello> hello = FromProto(incoming_.hello());
    if (!hello.ok()) return Close(hello.status());
    const auto rank = cluster_->Attach(*hello, self_);
    if (!rank.ok()) return Close(rank.status());
    rank_ = *rank;
    return;
  }
  switch (incoming_.kind_case()) {
    case wire::WorkerMessage::kHello:
      cluster_->OnFailure(*rank_, absl::InvalidArgumentError("it said Hello twice"));
      break;
    case wire::WorkerMessage::kHeartbeat:
      cluster_->OnHeartbeat(*rank_, FromProto(incoming_.heartbeat()));
      AnswerHeartbeat();
      break;
    case wire::WorkerMessage::kReady:
      cluster_->OnReady(*rank_, FromProto(incoming_.ready()));
      break;
    case wire::WorkerMessage::kStep:
      cluster_->OnStep(*rank_, FromProto(incoming_.step()));
      break;
    case wire::WorkerMessage::kFailure:
      cluster_->OnFailure(*rank_, FromProto(incoming_.failure()));
      break;
    case wire::WorkerMessage::KIND_NOT_SET:
      break;
  }
}

void AttachStream::AnswerHeartbeat() {
  MutexLock lock(&mutex_);
  if (finished_ || closing_.has_value()) return;
  const bool waits = std::any_of(outgoing_.begin(), outgoing_.end(),
                                 [](const auto& message) { return message.has_heartbeat(); });
  if (waits) return;
  outgoing_.emplace_back().mutable_heartbeat();
  Advance();
}

void AttachStream::SendPlan(const plan::Plan& plan) {
  wire::CoordinatorMessage message;
  *message.mutable_plan() = convert::ToProto(plan);
  Enqueue(std::move(message));
}

void AttachStream::SendStep(StepInput input) {
  MutexLock lock(&mutex_);
  if (finished_ || closing_.has_value()) return;
  if (outgoing_.empty() || !outgoing_.back().has_step()) outgoing_.emplace_back();
  AppendToProto(input, *outgoing_.back().mutable_step());
  Advance();
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
  if (finished_ || closing_.has_value()) return;
  outgoing_.push_back(std::move(message));
  Advance();
}

void AttachStream::Advance() {
  if (finished_ || writing_) return;
  if (!outgoing_.empty()) {
    in_flight_ = std::move(outgoing_.front());
    outgoing_.pop_front();
    writing_ = true;
    StartWrite(&in_flight_);
  } else if (closing_.has_value()) {
    finished_ = true;
    Finish(ToGrpc(*closing_));
  }
}

void AttachStream::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok) outgoing_.clear();
  Advance();
}

void AttachStream::OnDone() {
  const std::shared_ptr<AttachStream> last = std::move(self_);  // may delete this on return
}

}  // namespace skein::coordinator
