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
#include "base/status_macros.h"
#include "base/tls/job_key.h"
#include "coordinator/cluster/job.h"
#include "coordinator/rpc/grpc_status.h"
#include "coordinator/rpc/peer.h"
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
                                  Refusals* refusals, absl::Duration hello_time) {
  std::shared_ptr<AttachStream> stream(new AttachStream(context, cluster, refusals));
  stream->self_ = stream;
  stream->hello_alarm_.Set(
      std::chrono::system_clock::now() + absl::ToChronoMilliseconds(hello_time),
      [weak = stream->weak_from_this(), hello_time](bool passed) {
        const auto late = passed ? weak.lock() : nullptr;
        if (late == nullptr) return;
        {
          MutexLock lock(&late->mutex_);
          if (late->known_ || late->closing_.has_value()) return;
        }
        late->Refuse("a caller of Attach",
                     absl::DeadlineExceededError(absl::StrCat("it has not proved within ",
                                                              absl::FormatDuration(hello_time),
                                                              " which rank it is")));
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
    {
      MutexLock lock(&mutex_);
      if (closing_.has_value()) return;
    }
    const absl::Status heard = claim_.has_value() ? OnProof() : OnHello();
    if (heard.ok()) return;
    return Refuse(claim_.has_value() ? absl::StrCat("job ", claim_->job_id, ": ", RankName(*claim_))
                                     : "a caller of Attach",
                  heard);
  }
  switch (incoming_.kind_case()) {
    case wire::WorkerMessage::kHello:
    case wire::WorkerMessage::kProof:
      cluster_->OnFailure(*rank_, absl::InvalidArgumentError("it said twice who it is"));
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

absl::Status AttachStream::OnHello() {
  if (incoming_.kind_case() != wire::WorkerMessage::kHello) {
    return absl::InvalidArgumentError("the first message must be Hello");
  }
  SKEIN_ASSIGN_OR_RETURN(claim_, convert::FromProto(incoming_.hello()));
  SKEIN_ASSIGN_OR_RETURN(const int32_t protocol, cluster_->CheckHello(*claim_));
  SKEIN_ASSIGN_OR_RETURN(nonce_, DrawNonce());
  wire::CoordinatorMessage message;
  *message.mutable_welcome() = convert::ToProto(attach::Welcome{.version = cluster_->version(),
                                                                .protocols = cluster_->protocols(),
                                                                .protocol = protocol,
                                                                .nonce = nonce_});
  Enqueue(std::move(message));
  return absl::OkStatus();
}

absl::Status AttachStream::OnProof() {
  if (incoming_.kind_case() != wire::WorkerMessage::kProof) {
    return absl::InvalidArgumentError("the message after Hello must be Proof");
  }
  if (!IsProof(incoming_.proof().signature(), claim_->job_key,
               {.nonce = nonce_,
                .job_id = claim_->job_id,
                .rank = claim_->rank,
                .job_size = claim_->job_size})) {
    return absl::UnauthenticatedError(
        absl::StrCat("it does not prove that it knows the secret of job ", claim_->job_id,
                     ", whose key it showed"));
  }
  {
    MutexLock lock(&mutex_);
    if (closing_.has_value()) return absl::OkStatus();  // it came too late
    known_ = true;
  }
  SKEIN_ASSIGN_OR_RETURN(rank_, cluster_->Attach(*claim_, self_));
  return absl::OkStatus();
}

void AttachStream::Refuse(const std::string& who, const absl::Status& why) {
  refusals_->Say(absl::StatusCodeToString(why.code()),
                 absl::StrCat(who, ", from ", PeerOf(*context_), ", is refused: ", why.message()),
                 absl::Now());
  Close(why);
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
