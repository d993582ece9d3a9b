#include "coordinator/rpc/fake_job.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/tls/job_key.h"
#include "coordinator/service/fake_tokenizer.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/convert/attach.h"
#include "proto/convert/serving.h"
#include "proto/credentials/credentials.h"

namespace skein::coordinator {
namespace {

namespace wire = ::skein::cluster::v1;

constexpr absl::Duration kPatience = absl::Seconds(20);  // a machine may do much else
constexpr absl::Duration kHeartbeat = absl::Milliseconds(100);

// Looks until `predicate`, called with `mutex` held, is true.
template <typename Predicate>
bool WaitUntil(Mutex& mutex, const Predicate& predicate, absl::Duration patience = kPatience) {
  const absl::Time until = absl::Now() + patience;
  while (true) {
    {
      MutexLock lock(&mutex);
      if (predicate()) return true;
    }
    if (absl::Now() > until) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
}

}  // namespace

serving::AnswerOutput TextOutput(serving::RequestId request_id, const std::string& text,
                                 serving::Finish finish) {
  serving::AnswerOutput output{.request_id = request_id, .finish = finish};
  for (const char byte : text) output.tokens.push_back({.id = static_cast<uint8_t>(byte)});
  if (finish == serving::Finish::kEos) {
    output.tokens.push_back({.id = FakeTokenizer::kEos});
  }
  return output;
}

class FakeJob::Rank {
 public:
  Rank(FakeJob* job, int32_t rank)
      : job_(job),
        rank_(rank),
        stub_(wire::Cluster::NewStub(grpc::CreateChannel(
            job->options_.coordinator, ChannelCredentialsOf(job->options_.tls)))) {
    context_.set_wait_for_ready(true);
    stream_ = stub_->Attach(&context_);
  }

  void Start() {
    wire::WorkerMessage message;
    wire::Hello& hello = *message.mutable_hello();
    hello.set_version(job_->options_.version);
    hello.set_job_id(job_->options_.job_id);
    hello.set_rank(rank_);
    hello.set_job_size(job_->options_.size);
    hello.set_pid(1000 + rank_);
    hello.set_job_key(PublicJobKey(job_->options_.secret));
    *hello.mutable_protocols() = convert::ToProto(job_->options_.protocols);
    hello.set_layout(job_->options_.layout);
    hello.set_model(job_->options_.model);
    hello.mutable_node()->set_host(absl::StrCat("host", rank_));
    hello.mutable_node()->set_cores(4);
    hello.mutable_node()->set_memory_bytes(int64_t{4} << 30);
    hello.mutable_device()->set_kind("cpu");
    hello.mutable_device()->set_name("a CPU");
    stream_->Write(message);
    reader_ = std::thread([this] { Read(); });
    heart_ = std::thread([this] { Beat(); });
  }

  ~Rank() {
    HangUp();
    reader_.join();
    heart_.join();
  }

  void Write(const wire::WorkerMessage& message) {
    MutexLock lock(&write_mutex_);
    if (!hung_up_) stream_->Write(message);
  }
  void Cancel() { context_.TryCancel(); }
  void Silence() {
    MutexLock lock(&mutex_);
    silent_ = true;
  }

  void Freeze(const std::string& thread, double seconds) {
    MutexLock lock(&mutex_);
    frozen_[thread] = seconds;
  }

  bool WaitForPlan() {
    return WaitUntil(mutex_, [this] { return planned_; });
  }
  std::optional<int> WaitForShutdown() {
    std::optional<int> exit_code;
    WaitUntil(mutex_, [&] { return (exit_code = exit_code_).has_value(); });
    return exit_code;
  }
  absl::Status WaitForEnd() {
    std::optional<absl::Status> end;
    WaitUntil(mutex_, [&] { return (end = end_).has_value(); });
    return end.value_or(absl::UnknownError("still open"));
  }

 private:
  void Read() {
    wire::CoordinatorMessage message;
    while (stream_->Read(&message)) {
      if (message.has_welcome()) Prove(message.welcome().nonce());
      if (message.has_plan()) OnPlan();
      if (message.has_shutdown()) {
        MutexLock lock(&mutex_);
        exit_code_ = message.shutdown().exit_code();
      }
      // A worker ends when it is told to.
      if (message.has_shutdown()) HangUp();
      if (!message.has_updates()) continue;
      {
        MutexLock lock(&mutex_);
        ++messages_;
      }
      const serving::RequestUpdates updates = convert::FromProto(message.updates(), absl::Now());
      for (const serving::Request& request : updates.requests) job_->OnRequest(this, request);
      for (const serving::RequestId id : updates.cancelled) job_->OnCancel(id);
      for (const serving::CancelledAnswer& answer : updates.cancelled_answers) {
        job_->OnCancel(answer);
      }
    }
    const grpc::Status status = stream_->Finish();
    MutexLock lock(&mutex_);
    end_ = absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }

  void Prove(const std::string& nonce) {
    wire::WorkerMessage message;
    message.mutable_proof()->set_signature(
        ProveClaim(job_->options_.secret, {.nonce = nonce,
                                           .job_id = job_->options_.job_id,
                                           .rank = rank_,
                                           .job_size = job_->options_.size}));
    Write(message);
    MutexLock lock(&mutex_);
    known_ = true;
  }

  // gRPC aborts on whatever is written after the end.
  void HangUp() {
    MutexLock lock(&write_mutex_);
    if (!std::exchange(hung_up_, true)) stream_->WritesDone();
  }

  void OnPlan() {
    {
      MutexLock lock(&mutex_);
      planned_ = true;
    }
    if (job_->options_.load) job_->SendReady(rank_);
  }

  void Beat() {
    wire::WorkerMessage message;
    wire::Heartbeat& beat = *message.mutable_heartbeat();
    while (!WaitUntil(mutex_, [this] { return end_.has_value(); }, kHeartbeat)) {
      {
        MutexLock lock(&mutex_);
        if (silent_ || !known_) continue;
        if (job_->options_.acknowledges) beat.set_messages_taken(messages_);
        beat.mutable_threads()->insert(frozen_.begin(), frozen_.end());
      }
      Write(message);
    }
  }

  FakeJob* const job_;
  const int32_t rank_;
  grpc::ClientContext context_;
  std::unique_ptr<wire::Cluster::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<wire::WorkerMessage, wire::CoordinatorMessage>> stream_;
  Mutex write_mutex_;
  bool hung_up_ ABSL_GUARDED_BY(write_mutex_) = false;

  Mutex mutex_;
  bool known_ ABSL_GUARDED_BY(mutex_) = false;
  bool planned_ ABSL_GUARDED_BY(mutex_) = false;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t messages_ ABSL_GUARDED_BY(mutex_) = 0;  // with updates
  std::map<std::string, double> frozen_ ABSL_GUARDED_BY(mutex_);
  std::optional<int> exit_code_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);

  std::thread reader_;
  std::thread heart_;
};

FakeJob::FakeJob(FakeJobOptions options) : options_(std::move(options)) {
  for (int32_t rank = 0; rank < options_.size; ++rank) {
    ranks_.push_back(std::make_unique<Rank>(this, rank));
  }
  for (const auto& rank : ranks_) rank->Start();
}

FakeJob::~FakeJob() {
  for (const auto& rank : ranks_) rank->Cancel();
}

bool FakeJob::WaitForPlan(int32_t rank) { return ranks_[rank]->WaitForPlan(); }

std::optional<int> FakeJob::WaitForShutdown(int32_t rank) {
  return ranks_[rank]->WaitForShutdown();
}

absl::Status FakeJob::WaitForEnd(int32_t rank) { return ranks_[rank]->WaitForEnd(); }

std::optional<serving::Request> FakeJob::WaitForRequest() {
  std::optional<serving::Request> request;
  WaitUntil(mutex_, [&] {
    if (requests_.empty()) return false;
    request = std::move(requests_.front());
    requests_.pop_front();
    return true;
  });
  return request;
}

bool FakeJob::WaitForCancel(serving::RequestId request_id) {
  return WaitUntil(mutex_, [&] {
    return std::find(cancelled_.begin(), cancelled_.end(), request_id) != cancelled_.end();
  });
}

bool FakeJob::WaitForCancel(const serving::CancelledAnswer& answer) {
  return WaitUntil(mutex_, [&] {
    return std::find(cancelled_answers_.begin(), cancelled_answers_.end(), answer) !=
           cancelled_answers_.end();
  });
}

void FakeJob::OnRequest(Rank* rank, const serving::Request& request) {
  {
    MutexLock lock(&mutex_);
    leaders_[request.id] = rank;
    if (!options_.script) requests_.push_back(request);
  }
  if (!options_.script) return;
  for (const serving::AnswerOutput& output : options_.script(request)) Send(output);
}

void FakeJob::OnCancel(serving::RequestId request_id) {
  MutexLock lock(&mutex_);
  cancelled_.push_back(request_id);
}

void FakeJob::OnCancel(const serving::CancelledAnswer& answer) {
  MutexLock lock(&mutex_);
  cancelled_answers_.push_back(answer);
}

void FakeJob::SendOutputs(const std::vector<serving::AnswerOutput>& outputs) {
  Rank* leader = nullptr;
  {
    MutexLock lock(&mutex_);
    leader = leaders_.at(outputs.at(0).request_id);
  }
  wire::WorkerMessage message;
  *message.mutable_step() =
      convert::ToProto(serving::StepOutput{.answers = outputs, .load = options_.replica_load});
  leader->Write(message);
}

void FakeJob::SendReady(int32_t rank) {
  wire::WorkerMessage message;
  message.mutable_ready()->set_slice_key("slices");
  message.mutable_ready()->set_slice_digest(options_.digest);
  message.mutable_ready()->set_model_path(options_.model_path);
  message.mutable_ready()->set_bytes_read(100);
  ranks_[rank]->Write(message);
}

void FakeJob::SendFailure(int32_t rank, const std::string& text) {
  wire::WorkerMessage message;
  message.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kNotFound));
  message.mutable_failure()->set_message(text);
  ranks_[rank]->Write(message);
}

void FakeJob::Kill(int32_t rank) { ranks_[rank]->Cancel(); }

void FakeJob::Silence(int32_t rank) { ranks_[rank]->Silence(); }

void FakeJob::Freeze(int32_t rank, const std::string& thread, double seconds) {
  ranks_[rank]->Freeze(thread, seconds);
}

}  // namespace skein::coordinator
