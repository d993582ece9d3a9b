#include "coordinator/rpc/fake_job.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "coordinator/service/fake_tokenizer.h"
#include "proto/cluster.grpc.pb.h"

namespace skein::coordinator {
namespace {

namespace wire = ::skein::cluster::v1;

constexpr absl::Duration kPatience = absl::Seconds(20);  // for a machine that does much else
constexpr absl::Duration kHeartbeat = absl::Milliseconds(100);

SamplingParams FromWire(const wire::Sampling& from) {
  SamplingParams to{.repetition_penalty = from.repetition_penalty(),
                    .presence_penalty = from.presence_penalty(),
                    .frequency_penalty = from.frequency_penalty(),
                    .temperature = from.temperature(),
                    .top_k = from.top_k(),
                    .top_p = from.top_p(),
                    .min_p = from.min_p(),
                    .seed = from.seed(),
                    .logprobs = from.logprobs(),
                    .min_tokens = from.min_tokens(),
                    .stop_ids = {from.stop_ids().begin(), from.stop_ids().end()},
                    .typical_p = from.typical_p(),
                    .mirostat_tau = from.mirostat_tau(),
                    .mirostat_eta = from.mirostat_eta(),
                    .dry_multiplier = from.dry_multiplier(),
                    .dry_base = from.dry_base(),
                    .dry_allowed_length = from.dry_allowed_length(),
                    .dry_last_n = from.dry_last_n()};
  for (const wire::TokenBias& bias : from.logit_bias()) {
    to.logit_bias.emplace_back(bias.id(), bias.bias());
  }
  for (const wire::TokenSequence& breaker : from.dry_breakers()) {
    to.dry_breakers.emplace_back(breaker.ids().begin(), breaker.ids().end());
  }
  return to;
}

NewRequest FromWire(const wire::NewRequest& from) {
  NewRequest to{.id = from.request_id()};
  to.prompt.assign(from.prompt().begin(), from.prompt().end());
  to.max_tokens = from.max_tokens();
  to.eos_token_ids.assign(from.eos_token_ids().begin(), from.eos_token_ids().end());
  to.samples.clear();
  for (const wire::SampleStart& sample : from.samples()) {
    SampleStart& start = to.samples.emplace_back();
    start.index = sample.index();
    start.output.assign(sample.output().begin(), sample.output().end());
    if (sample.has_mu()) start.mu = sample.mu();
  }
  to.priority = from.priority();
  if (from.deadline_seconds() > 0) {
    to.deadline = absl::Now() + absl::Seconds(from.deadline_seconds());
  }
  to.waited = absl::Seconds(from.waited_seconds());
  to.prompt_logprobs = from.prompt_logprobs();
  to.sampling = FromWire(from.sampling());
  return to;
}

void ToWire(const OutputToken& from, wire::Token& to) {
  to.set_id(from.id);
  to.set_logprob(from.logprob);
  to.set_mu(from.mu);
  for (const TokenLogprob& top : from.top) {
    wire::TokenLogprob& copy = *to.add_top();
    copy.set_id(top.id);
    copy.set_logprob(top.logprob);
  }
}

void ToWire(const SequenceOutput& from, wire::SequenceOutput& to) {
  to.set_request_id(from.request_id);
  to.set_finish(static_cast<wire::SequenceOutput::Finish>(from.finish));  // in the same order
  to.set_error(from.error);
  to.set_sample(from.sample);
  for (const OutputToken& token : from.tokens) ToWire(token, *to.add_tokens());
  for (const OutputToken& token : from.prompt_logprobs) ToWire(token, *to.add_prompt_logprobs());
}

void ToWire(const ReplicaLoad& from, wire::ReplicaLoad& to) {
  to.set_running(from.running);
  to.set_waiting(from.waiting);
  to.set_total_pages(from.total_pages);
  to.set_free_pages(from.free_pages);
  to.set_used_pages(from.used_pages);
  to.set_shared_pages(from.shared_pages);
  to.set_cached_pages(from.cached_pages);
  to.set_total_swap_pages(from.total_swap_pages);
  to.set_free_swap_pages(from.free_swap_pages);
  to.set_steps(from.steps);
  to.set_prompt_tokens(from.prompt_tokens);
  to.set_cached_tokens(from.cached_tokens);
  to.set_preemptions_swapped(from.preemptions_swapped);
  to.set_preemptions_recomputed(from.preemptions_recomputed);
  to.set_host_seconds(from.host_seconds);
}

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

SequenceOutput TextOutput(uint64_t request_id, const std::string& text,
                          SequenceOutput::Finish finish) {
  SequenceOutput output{.request_id = request_id, .finish = finish};
  for (const char byte : text) output.tokens.push_back({.id = static_cast<uint8_t>(byte)});
  if (finish == SequenceOutput::Finish::kEos) {
    output.tokens.push_back({.id = FakeTokenizer::kEos});
  }
  return output;
}

class FakeJob::Rank {
 public:
  Rank(FakeJob* job, int32_t rank)
      : job_(job),
        rank_(rank),
        stub_(wire::Cluster::NewStub(
            grpc::CreateChannel(job->options_.coordinator, grpc::InsecureChannelCredentials()))) {
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
    hello.set_job_secret(job_->options_.secret);
    hello.set_layout(job_->options_.layout);
    hello.mutable_node()->set_host(absl::StrCat("host", rank_));
    hello.mutable_node()->set_cores(4);
    hello.mutable_node()->set_memory_bytes(int64_t{4} << 30);
    hello.mutable_device()->set_kind("cpu");
    hello.mutable_device()->set_name("a CPU");
    Write(message);
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
      if (message.has_plan()) OnPlan();
      if (message.has_shutdown()) {
        MutexLock lock(&mutex_);
        exit_code_ = message.shutdown().exit_code();
      }
      // A worker ends when it is told to.
      if (message.has_shutdown()) HangUp();
      if (message.has_step()) {
        MutexLock lock(&mutex_);
        ++steps_;
      }
      for (const auto& request : message.step().requests())
        job_->OnRequest(this, FromWire(request));
      for (const uint64_t id : message.step().cancelled()) job_->OnCancel(id);
      for (const wire::CancelledSample& sample : message.step().cancelled_samples()) {
        job_->OnCancel({sample.request_id(), sample.sample()});
      }
    }
    const grpc::Status status = stream_->Finish();
    MutexLock lock(&mutex_);
    end_ = absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
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
        if (silent_) continue;
        if (job_->options_.acknowledges) beat.set_steps_taken(steps_);
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
  bool planned_ ABSL_GUARDED_BY(mutex_) = false;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;  // messages that came
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

std::optional<NewRequest> FakeJob::WaitForRequest() {
  std::optional<NewRequest> request;
  WaitUntil(mutex_, [&] {
    if (requests_.empty()) return false;
    request = std::move(requests_.front());
    requests_.pop_front();
    return true;
  });
  return request;
}

bool FakeJob::WaitForCancel(uint64_t request_id) {
  return WaitUntil(mutex_, [&] {
    return std::find(cancelled_.begin(), cancelled_.end(), request_id) != cancelled_.end();
  });
}

bool FakeJob::WaitForCancel(const CancelledSample& sample) {
  return WaitUntil(mutex_, [&] {
    return std::find(cancelled_samples_.begin(), cancelled_samples_.end(), sample) !=
           cancelled_samples_.end();
  });
}

void FakeJob::OnRequest(Rank* rank, const NewRequest& request) {
  {
    MutexLock lock(&mutex_);
    leaders_[request.id] = rank;
    if (!options_.script) requests_.push_back(request);
  }
  if (!options_.script) return;
  for (const SequenceOutput& output : options_.script(request)) Send(output);
}

void FakeJob::OnCancel(uint64_t request_id) {
  MutexLock lock(&mutex_);
  cancelled_.push_back(request_id);
}

void FakeJob::OnCancel(const CancelledSample& sample) {
  MutexLock lock(&mutex_);
  cancelled_samples_.push_back(sample);
}

void FakeJob::SendStep(const std::vector<SequenceOutput>& outputs) {
  Rank* leader = nullptr;
  {
    MutexLock lock(&mutex_);
    leader = leaders_.at(outputs.at(0).request_id);
  }
  wire::WorkerMessage message;
  for (const SequenceOutput& output : outputs) {
    ToWire(output, *message.mutable_step()->add_sequences());
  }
  ToWire(options_.replica_load, *message.mutable_step()->mutable_load());
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
