// Serves one rank's stream: hears who it is, has it prove that, then carries messages.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/links.h"
#include "coordinator/rpc/message_writer.h"
#include "coordinator/rpc/refusals.h"
#include "parallel/attach/messages.h"
#include "proto/cluster.pb.h"
#include "serving/request.h"

namespace skein::coordinator {

// Carries the rank's messages to the cluster and the cluster's to the rank. Owns itself until gRPC
// is done with it; the cluster shares it as a RankLink. Updates that wait for a write in flight are
// joined into one message.
class AttachStream final
    : public grpc::ServerBidiReactor<cluster::v1::WorkerMessage, cluster::v1::CoordinatorMessage>,
      public RankLink,
      public std::enable_shared_from_this<AttachStream> {
 public:
  // Cluster and refusals outlive the stream. Who has not proved within `hello_time` which rank it
  // is is refused, which `refusals` tell.
  static AttachStream* Start(grpc::CallbackServerContext* context, Cluster* cluster,
                             Refusals* refusals, absl::Duration hello_time);

  // These are RankLink's.
  void SendPlan(const plan::Plan& plan) override;
  void SendUpdates(serving::RequestUpdates updates) override;
  uint64_t messages_sent() const override;
  void SendShutdown(const std::string& reason, int exit_code) override;
  void Close(const absl::Status& status) override;

  // gRPC calls these, reads and writes apart, each one at a time.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  AttachStream(grpc::CallbackServerContext* context, Cluster* cluster, Refusals* refusals)
      : context_(context), cluster_(cluster), refusals_(refusals) {}

  void Read();
  void OnMessage();
  // Of who is no rank yet. An error is why it will be none.
  absl::Status OnHello();
  absl::Status OnProof();
  // Ends the stream, and has the log say of `who`, a rank or what is none, why.
  void Refuse(const std::string& who, const absl::Status& why);
  // Answers a heartbeat. One answer that waits says all that many would, so that a rank that does
  // not read piles up none.
  void AnswerHeartbeat();
  void Enqueue(cluster::v1::CoordinatorMessage message);
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::CallbackServerContext* const context_;
  Cluster* const cluster_;
  Refusals* const refusals_;
  std::shared_ptr<AttachStream> self_;

  // These belong to the reading side.
  cluster::v1::WorkerMessage incoming_;
  std::optional<attach::Hello> claim_;  // once Hello has come
  std::string nonce_;
  std::optional<Cluster::RankId> rank_;  // once that is proved
  uint64_t messages_taken_ = 0;          // messages with StepOutput

  grpc::Alarm hello_alarm_;
  mutable Mutex mutex_;
  uint64_t messages_sent_ ABSL_GUARDED_BY(mutex_) = 0;  // messages with RequestUpdates
  std::deque<cluster::v1::CoordinatorMessage> outgoing_ ABSL_GUARDED_BY(mutex_);
  MessageWriter<AttachStream, cluster::v1::CoordinatorMessage> writer_ ABSL_GUARDED_BY(mutex_){
      this};
  bool known_ ABSL_GUARDED_BY(mutex_) = false;                   // it has proved which rank it is
  std::optional<absl::Status> closing_ ABSL_GUARDED_BY(mutex_);  // the end, once all is written
};

}  // namespace skein::coordinator
