// Ties a rank to the coordinator: one gRPC stream for its whole life, kept alive by a thread of its
// own and taken up again when the coordinator comes back.
//
// Writes may block for as long as the coordinator does not read. So no lock is held while one
// goes on, and a third thread, which never writes, ends the stream of a coordinator that is silent.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/tls/mutual_tls.h"
#include "parallel/attach/messages.h"
#include "parallel/attach/protocol.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/plan/plan.h"
#include "serving/request.h"
#include "topology/machine.h"
#include "topology/topology.h"
#include "worker/engine/expert_watch.h"
#include "worker/engine/inbox.h"
#include "worker/engine/step_report.h"
#include "worker/engine/thread_beats.h"
#include "worker/job_identity.h"

namespace skein::worker {

struct AttachmentOptions {
  std::string coordinator;                      // HOST:PORT
  std::optional<MutualTls> tls = std::nullopt;  // none: plain
  JobIdentity job;
  int32_t rank = 0;
  int32_t job_size = 1;
  topology::Node node;
  topology::Device device;
  attach::ProtocolRange protocols = attach::kProtocols;
  plan::LayoutRequest layout;                             // the job's; empty: the coordinator's
  std::optional<topology::Topology> told = std::nullopt;  // attach::Hello's
  std::string model = "";  // that the job serves; empty: the coordinator's choice
  // Heartbeats tell what these hold; they outlive the attachment and may be null.
  const comm::OperationTracker* tracker = nullptr;
  const ThreadBeats* beats = nullptr;
  const ExpertWatch* experts = nullptr;
  absl::Duration heartbeat_interval = absl::Milliseconds(500);
  // A rank lives so long without a coordinator, or with one that takes none of its reports.
  absl::Duration orphan_timeout = absl::Seconds(60);
  // A rank that fails waits so long for the coordinator to lose its job.
  absl::Duration verdict_time = absl::Seconds(3);
  bool announces = true;  // the log says that it waits; one rank of a host does so
};

// Thread-safe. Requests go to `inbox`; a coordinator that went away takes its requests along.
class Attachment {
 public:
  // `on_end` is called once, on a thread of the attachment, when the rank must end: it was refused,
  // its job failed (exit code 1), the coordinator stayed away, or all is done (exit code 0).
  using EndCallback = std::function<void(const absl::Status& why, int exit_code)>;

  Attachment(AttachmentOptions options, Inbox* inbox, EndCallback on_end);
  ~Attachment();  // ends the stream and joins the threads

  // Connects, says hello and waits for the job's plan. Blocks; Cancelled when the rank must end.
  absl::StatusOr<plan::Plan> WaitForPlan();

  // Says that the shard is loaded, also to later coordinators.
  void SendReady(const attach::Ready& ready);
  // Reports a step of a leader. A report is dropped while there is no coordinator, and when its
  // requests are an earlier one's.
  void SendStep(const StepReport& report);
  // Says the last words of a rank that ends; waits until the coordinator has lost the job, for the
  // verdict time at most. The launcher ends the others with this process, and they would seem to be
  // the cause.
  void SendFailure(const absl::Status& why);

 private:
  class Stream;

  void ReadLoop();
  void HeartbeatLoop();
  void WatchLoop();
  // Lives one life of the stream, from hello to its end.
  absl::Status RunStream();
  // Proves which rank this is, to a coordinator that speaks as it does.
  absl::Status OnWelcome(const attach::Welcome& welcome, Stream& stream);
  absl::Status OnPlan(plan::Plan plan);
  void OnUpdates(serving::RequestUpdates updates);
  // False when the rank was to end already.
  bool OnEnd(const absl::Status& why, int exit_code);
  // Ends the conversation: says the last words, waits a little for the coordinator to end the
  // stream, then cuts it off.
  void HangUp(const std::function<void(Stream&)>& last_words, absl::Duration patience);
  absl::Duration Silence() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sleeps until the next heartbeat is due; true as soon as the rank is to end and its stream is
  // over.
  bool EndsWithinABeat() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AttachmentOptions options_;
  Inbox* const inbox_;
  const EndCallback on_end_;

  Mutex mutex_;
  CondVar changed_;                                         // stream_ gone, plan_ there, or ended_
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mutex_);  // null between lives
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // the inbox's epoch, of this life or the next
  std::optional<plan::Plan> plan_ ABSL_GUARDED_BY(mutex_);
  std::optional<attach::Ready> ready_ ABSL_GUARDED_BY(mutex_);  // repeated to a new coordinator
  // The time of day would not do, which may jump.
  std::chrono::steady_clock::time_point last_contact_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread reader_;
  std::thread heartbeat_;
  std::thread watch_;
};

}  // namespace skein::worker
