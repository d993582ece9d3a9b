#include "worker/rpc/attachment.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/acknowledgements.h"
#include "base/status_macros.h"
#include "base/tls/job_key.h"
#include "base/version.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/convert/attach.h"
#include "proto/convert/plan.h"
#include "proto/convert/serving.h"
#include "proto/credentials/credentials.h"

namespace skein::worker {
namespace {

namespace pb = ::skein::cluster::v1;

// Attempts to reach a coordinator are so far apart.
constexpr absl::Duration kRetryInterval = absl::Milliseconds(200);
// One attempt may take so long.
constexpr absl::Duration kConnectTime = absl::Seconds(1);
// Messages that the coordinator is not there are so far apart.
constexpr absl::Duration kWaitMessageInterval = absl::Seconds(5);
// A coordinator has so long to end a stream that this rank ends.
constexpr absl::Duration kHangUpTime = absl::Seconds(1);

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// Tells that the coordinator is gone or not there yet; every other status is its word.
bool IsLoss(const absl::Status& status) {
  return status.ok() || absl::IsUnavailable(status) || absl::IsCancelled(status);
}

// Whether both have ranks do the same, whatever is expected of it and why it was chosen.
bool DoTheSame(plan::Plan a, const plan::Plan& b) {
  a.prediction = b.prediction;
  a.reasons = b.reasons;
  return a == b;
}

std::chrono::steady_clock::time_point SteadyNow() { return std::chrono::steady_clock::now(); }

std::chrono::steady_clock::time_point SteadyTimeIn(absl::Duration duration) {
  return SteadyNow() + absl::ToChronoNanoseconds(duration);
}

attach::Hello HelloOf(const AttachmentOptions& options) {
  return {.version = std::string(kVersion),
          .protocols = options.protocols,
          .job_id = options.job.id,
          .job_key = PublicJobKey(options.job.secret),
          .rank = options.rank,
          .job_size = options.job_size,
          .pid = getpid(),
          .node = options.node,
          .device = options.device,
          .layout = options.layout,
          .told = options.told,
          .model = options.model};
}

attach::Heartbeat HeartbeatOf(const AttachmentOptions& options, const Inbox& inbox) {
  attach::Heartbeat beat;
  if (options.tracker != nullptr) {
    beat.progress = options.tracker->Read();
    beat.times = options.tracker->Times();
  }
  if (options.experts != nullptr) beat.experts = options.experts->Read();
  // A leader whose followers are busy takes nothing; whether they are stuck is for others to judge.
  const bool waits = options.beats != nullptr && options.beats->AnyExcused();
  beat.messages_taken = waits ? inbox.messages() : inbox.messages_taken();
  if (options.beats == nullptr) return beat;
  for (const auto& [thread, still] : options.beats->Read()) beat.threads[thread] = still;
  return beat;
}

pb::WorkerMessage MessageOf(const attach::Hello& hello) {
  pb::WorkerMessage message;
  *message.mutable_hello() = convert::ToProto(hello);
  return message;
}

pb::WorkerMessage MessageOf(const attach::Ready& ready) {
  pb::WorkerMessage message;
  *message.mutable_ready() = convert::ToProto(ready);
  return message;
}

pb::WorkerMessage MessageOf(const attach::Heartbeat& beat) {
  pb::WorkerMessage message;
  *message.mutable_heartbeat() = convert::ToProto(beat);
  return message;
}

}  // namespace

// Is one life of the stream. Writes come from several threads, reads from one.
class Attachment::Stream {
 public:
  // Unavailable says why the coordinator is not reached within `patience`.
  static absl::StatusOr<std::shared_ptr<Stream>> Connect(const AttachmentOptions& options,
                                                         absl::Duration patience) {
    grpc::ChannelArguments arguments;
    // A coordinator that comes back finds its ranks a moment later.
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
    // A global subchannel would keep the backoff of earlier attempts.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    auto channel = grpc::CreateCustomChannel(options.coordinator, ChannelCredentialsOf(options.tls),
                                             arguments);
    const auto deadline = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience);
    if (!channel->WaitForConnected(deadline)) {
      return absl::UnavailableError(WhyNot(channel, options.tls.has_value()));
    }
    return std::shared_ptr<Stream>(new Stream(std::move(channel)));
  }

  // Hello and Proof. Once the coordinator knows the rank by them, it may be told all else.
  void Introduce(const pb::WorkerMessage& message, bool known) {
    MutexLock lock(&write_mutex_);
    if (!half_closed_) rpc_->Write(message);
    known_ = known;
  }
  bool known() {
    MutexLock lock(&write_mutex_);
    return known_;
  }
  // Says nothing where the coordinator does not know the rank, or the stream is over or half
  // closed.
  void Write(const pb::WorkerMessage& message) {
    MutexLock lock(&write_mutex_);
    if (known_ && !half_closed_) rpc_->Write(message);
  }
  // Writes and counts the message: the coordinator says how many it has taken up.
  void WriteStep(const pb::WorkerMessage& message) {
    MutexLock lock(&write_mutex_);
    if (!known_ || half_closed_) return;
    ++messages_sent_;
    rpc_->Write(message);
  }
  void OnMessagesTaken(uint64_t taken) { messages_taken_ = taken; }
  // Tells whether the coordinator has left a step that was sent before `patience` untaken. One
  // thread may call.
  bool StepsAreOverdue(absl::Duration patience) {
    const absl::Time now = absl::UnixEpoch() + absl::FromChrono(SteadyNow().time_since_epoch());
    return acknowledgements_.Overdue(messages_sent_, messages_taken_, now, patience).has_value();
  }
  void HalfClose() {
    MutexLock lock(&write_mutex_);
    if (!std::exchange(half_closed_, true)) rpc_->WritesDone();
  }
  bool Read(pb::CoordinatorMessage* message) { return rpc_->Read(message); }
  // Makes writes and reads that block return. Any thread may call.
  void Cancel() { context_.TryCancel(); }
  absl::Status Finish() { return FromGrpc(rpc_->Finish()); }

 private:
  // Only a call that fails tells why there is no connection.
  static std::string WhyNot(const std::shared_ptr<grpc::Channel>& channel, bool tls) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoMilliseconds(kRetryInterval));
    pb::JobStatus ignored;
    const grpc::Status status = pb::Cluster::NewStub(channel)->GetJob(&context, {}, &ignored);
    const std::string hint = status.error_code() == grpc::StatusCode::UNAVAILABLE
                                 ? TlsHint(status.error_message(), tls)
                                 : "";
    if (hint.empty()) return "no connection";
    return absl::StrCat("no connection: ", status.error_message(), "; ", hint);
  }

  explicit Stream(std::shared_ptr<grpc::Channel> channel)
      : channel_(std::move(channel)),
        stub_(pb::Cluster::NewStub(channel_)),
        rpc_(stub_->Attach(&context_)) {}

  grpc::ClientContext context_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::Cluster::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<pb::WorkerMessage, pb::CoordinatorMessage>> rpc_;
  Mutex write_mutex_;
  bool known_ ABSL_GUARDED_BY(write_mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(write_mutex_) = false;
  std::atomic<uint64_t> messages_sent_ = 0;
  std::atomic<uint64_t> messages_taken_ = 0;
  Acknowledgements acknowledgements_;
};

Attachment::Attachment(AttachmentOptions options, Inbox* inbox, EndCallback on_end)
    : options_(std::move(options)),
      inbox_(inbox),
      on_end_(std::move(on_end)),
      last_contact_(std::chrono::steady_clock::now()) {
  reader_ = std::thread([this] { ReadLoop(); });
  heartbeat_ = std::thread([this] { HeartbeatLoop(); });
  watch_ = std::thread([this] { WatchLoop(); });
}

Attachment::~Attachment() {
  HangUp([](Stream& stream) { stream.HalfClose(); }, kHangUpTime);
  for (std::thread* thread : {&reader_, &heartbeat_, &watch_}) thread->join();
}

absl::Duration Attachment::Silence() {
  return absl::FromChrono(std::chrono::steady_clock::now() - last_contact_);
}

bool Attachment::EndsWithinABeat() {
  const auto deadline = SteadyTimeIn(options_.heartbeat_interval);
  // A coordinator that has yet to end the stream is to hear that this rank lives.
  while (!(ended_ && stream_ == nullptr) && changed_.WaitUntil(&mutex_, deadline)) {
  }
  return ended_ && stream_ == nullptr;
}

absl::StatusOr<plan::Plan> Attachment::WaitForPlan() {
  MutexLock lock(&mutex_);
  while (!plan_.has_value() && !ended_) changed_.Wait(&mutex_);
  // A job that is to end gets its plan, too, as its other ranks do: they leave together.
  if (plan_.has_value()) return *plan_;
  return absl::CancelledError("the job ended before it was planned");
}

void Attachment::SendReady(const attach::Ready& ready) {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(&mutex_);
    ready_ = ready;
    stream = stream_;
  }
  if (stream != nullptr) stream->Write(MessageOf(ready));
}

void Attachment::SendStep(const StepReport& report) {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(&mutex_);
    if (report.epoch == epoch_) stream = stream_;
  }
  if (stream == nullptr) return;
  pb::WorkerMessage message;
  *message.mutable_step() = convert::ToProto(report);
  stream->WriteStep(message);
}

void Attachment::SendFailure(const absl::Status& why) {
  pb::WorkerMessage message;
  *message.mutable_failure() = convert::ToProto(why);
  HangUp([message](Stream& stream) { stream.Write(message); }, options_.verdict_time);
}

void Attachment::HangUp(const std::function<void(Stream&)>& last_words, absl::Duration patience) {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(&mutex_);
    ended_ = true;  // nothing that comes now is to be reported as an end of its own
    changed_.NotifyAll();
    stream = stream_;
  }
  if (stream == nullptr) return;
  // Another thread says goodbye, since a coordinator that does not read would hold this rank.
  std::thread goodbye([&] { last_words(*stream); });
  {
    // The coordinator ends the stream; then the reader drops it.
    MutexLock lock(&mutex_);
    const auto deadline = SteadyTimeIn(patience);
    while (stream_ != nullptr && changed_.WaitUntil(&mutex_, deadline)) {
    }
  }
  stream->Cancel();  // ends writes that wait
  goodbye.join();
}

bool Attachment::OnEnd(const absl::Status& why, int exit_code) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(ended_, true)) return false;
    changed_.NotifyAll();
  }
  on_end_(why, exit_code);
  return true;
}

void Attachment::ReadLoop() {
  absl::Time next_message = absl::Now() + kRetryInterval;
  while (true) {
    const absl::Status status = RunStream();
    absl::Duration silence;
    {
      MutexLock lock(&mutex_);
      if (ended_) return;
      silence = Silence();
    }
    if (!IsLoss(status)) {
      OnEnd(status, 1);
      return;
    }
    {
      MutexLock lock(&mutex_);
      epoch_ = inbox_->NewEpoch();
    }
    if (silence > options_.orphan_timeout) {
      OnEnd(absl::DeadlineExceededError(
                absl::StrCat("no coordinator at ", options_.coordinator, " for ",
                             absl::FormatDuration(options_.orphan_timeout), " (--orphan-timeout)")),
            1);
      return;
    }
    if (options_.announces && absl::Now() >= next_message) {
      spdlog::info("waiting for a coordinator at {} ({}); start one with: coordinator --model=...",
                   options_.coordinator, std::string(status.message()));
      next_message = absl::Now() + kWaitMessageInterval;
    }
    absl::SleepFor(kRetryInterval);
  }
}

absl::Status Attachment::RunStream() {
  SKEIN_ASSIGN_OR_RETURN(const std::shared_ptr<Stream> stream,
                         Stream::Connect(options_, kConnectTime));
  attach::Hello hello = HelloOf(options_);
  {
    MutexLock lock(&mutex_);
    // A coordinator that comes back might choose another one than is loaded.
    if (plan_.has_value()) hello.model = plan_->model_name;
  }
  stream->Introduce(MessageOf(hello), /*known=*/false);
  {
    MutexLock lock(&mutex_);
    if (ended_) stream->Cancel();
    stream_ = stream;
  }
  absl::Status failure;
  pb::CoordinatorMessage message;
  while (failure.ok() && stream->Read(&message)) {
    {
      MutexLock lock(&mutex_);
      last_contact_ = std::chrono::steady_clock::now();
    }
    // An older coordinator has a plan at once, and tells of no protocol.
    if (!stream->known() && !message.has_welcome()) message.mutable_welcome();
    switch (message.kind_case()) {
      case pb::CoordinatorMessage::kWelcome:
        failure = OnWelcome(convert::FromProto(message.welcome()), *stream);
        break;
      case pb::CoordinatorMessage::kPlan: {
        absl::StatusOr<plan::Plan> plan = convert::FromProto(message.plan());
        failure = plan.ok() ? OnPlan(*std::move(plan)) : plan.status();
        break;
      }
      case pb::CoordinatorMessage::kUpdates:
        OnUpdates(convert::FromProto(message.updates(), absl::Now()));
        break;
      case pb::CoordinatorMessage::kShutdown:
        // A rank that ends by itself waits for no other verdict.
        if (!OnEnd(absl::CancelledError(message.shutdown().reason()),
                   message.shutdown().exit_code())) {
          stream->HalfClose();
        }
        break;
      case pb::CoordinatorMessage::kHeartbeat:
        stream->OnMessagesTaken(message.heartbeat().messages_taken());
        break;
      case pb::CoordinatorMessage::KIND_NOT_SET:
        break;
    }
  }
  if (!failure.ok()) stream->Cancel();
  const absl::Status finished = stream->Finish();
  MutexLock lock(&mutex_);
  stream_ = nullptr;
  changed_.NotifyAll();
  return failure.ok() ? finished : failure;
}

absl::Status Attachment::OnWelcome(const attach::Welcome& welcome, Stream& stream) {
  const std::string name = absl::StrCat("rank ", options_.rank);
  const std::string coordinator = absl::StrCat("the coordinator at ", options_.coordinator);
  SKEIN_ASSIGN_OR_RETURN(
      const int32_t protocol,
      attach::AgreeOnProtocol({name, std::string(kVersion), options_.protocols},
                              {coordinator, welcome.version, welcome.protocols}));
  if (protocol != welcome.protocol) {
    return absl::FailedPreconditionError(
        absl::StrCat(coordinator, " (Skein ", welcome.version, ") wants version ", welcome.protocol,
                     " of the protocol; the highest that both speak is ", protocol));
  }
  pb::WorkerMessage message;
  message.mutable_proof()->set_signature(
      ProveClaim(options_.job.secret, {.nonce = welcome.nonce,
                                       .job_id = options_.job.id,
                                       .rank = options_.rank,
                                       .job_size = options_.job_size}));
  stream.Introduce(message, /*known=*/true);
  return absl::OkStatus();
}

void Attachment::OnUpdates(serving::RequestUpdates updates) {
  for (serving::Request& request : updates.requests) inbox_->Submit(std::move(request));
  for (const serving::RequestId id : updates.cancelled) inbox_->Cancel(id);
  for (const auto& [id, answer] : updates.cancelled_answers) inbox_->Cancel(id, answer);
  inbox_->EndMessage();
}

absl::Status Attachment::OnPlan(plan::Plan plan) {
  if (options_.job_size != plan.job_size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the plan is of ", plan.job_size(), " ranks, the job of ", options_.job_size));
  }
  if (const plan::RankPlan* const part = plan.Find(options_.rank); part != nullptr) {
    topology::Device planned = part->device;
    planned.node = options_.device.node;  // the plan names it
    if (planned != options_.device) {
      return absl::FailedPreconditionError(absl::StrCat("the plan is for another device ('",
                                                        planned.name, "') than this rank has ('",
                                                        options_.device.name, "')"));
    }
  }
  std::optional<attach::Ready> ready;
  {
    MutexLock lock(&mutex_);
    if (!plan_.has_value()) {
      plan_ = std::move(plan);
      changed_.NotifyAll();
      return absl::OkStatus();
    }
    // A new coordinator planned the job again: the shard that is loaded serves if it is the same.
    if (!DoTheSame(plan, *plan_)) {
      return absl::FailedPreconditionError(
          absl::StrCat("a new coordinator made another plan for this job (", plan.layout.ToString(),
                       "), whose weights are loaded already (", plan_->layout.ToString(),
                       "); start the workers again, or the coordinator as it was"));
    }
    ready = ready_;
  }
  if (ready.has_value()) SendReady(*ready);
  return absl::OkStatus();
}

void Attachment::HeartbeatLoop() {
  while (true) {
    std::shared_ptr<Stream> stream;
    {
      MutexLock lock(&mutex_);
      if (EndsWithinABeat()) return;
      stream = stream_;
    }
    if (stream == nullptr) continue;
    stream->Write(MessageOf(HeartbeatOf(options_, *inbox_)));
  }
}

void Attachment::WatchLoop() {
  MutexLock lock(&mutex_);
  while (!EndsWithinABeat()) {
    // The reader sees the end of the stream, and what to make of it.
    if (stream_ == nullptr) continue;
    if (Silence() > options_.orphan_timeout) stream_->Cancel();
    if (!stream_->StepsAreOverdue(options_.orphan_timeout)) continue;
    spdlog::error("the coordinator has taken up none of this replica's reports for {}",
                  absl::FormatDuration(options_.orphan_timeout));
    stream_->Cancel();
  }
}

}  // namespace skein::worker
