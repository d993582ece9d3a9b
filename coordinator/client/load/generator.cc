#include "coordinator/client/load/generator.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <utility>

namespace skein::client {
namespace {

constexpr absl::Duration kReportEvery = absl::Milliseconds(200);

v1::GenerateRequest MakeRequest(const PlannedRequest& planned) {
  v1::GenerateRequest request;
  request.mutable_prompt_tokens()->mutable_ids()->Assign(planned.prompt.begin(),
                                                         planned.prompt.end());
  request.set_max_tokens(static_cast<uint32_t>(planned.answer_tokens));
  request.mutable_sampling()->set_ignore_eos(true);
  return request;
}

}  // namespace

// One request. gRPC calls the reactions one after the other, OnDone last.
class LoadGenerator::Call final : public grpc::ClientReadReactor<v1::GenerateEvent> {
 public:
  Call(LoadGenerator* generator, size_t index, const PlannedRequest& planned)
      : generator_(generator), index_(index), request_(MakeRequest(planned)) {
    record_.prompt_tokens = static_cast<int64_t>(planned.prompt.size());
    record_.answer_tokens = planned.answer_tokens;
    record_.tokens.reserve(static_cast<size_t>(planned.answer_tokens));
  }

  void Begin() {
    generator_->stub_->async()->Generate(&context_, &request_, this);
    record_.sent = generator_->Elapsed();
    StartRead(&event_);
    StartCall();
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const auto tokens = static_cast<size_t>(event_.tokens().tokens_size());
    record_.tokens.insert(record_.tokens.end(), tokens, generator_->Elapsed());
    generator_->tokens_ += static_cast<int64_t>(tokens);
    StartRead(&event_);
  }

  void OnDone(const grpc::Status& status) override {
    record_.ended = generator_->Elapsed();
    record_.code = CodeName(status.error_code());
    generator_->OnDone(index_, std::move(record_), status);  // `this` may be gone
  }

 private:
  LoadGenerator* const generator_;
  const size_t index_;
  const v1::GenerateRequest request_;
  grpc::ClientContext context_;
  v1::GenerateEvent event_;
  RequestRecord record_;
};

LoadGenerator::LoadGenerator(const Connection* connection,
                             std::function<void(const LoadProgress&)> on_progress)
    : connection_(connection),
      stub_(v1::Inference::NewStub(connection->channel())),
      on_progress_(std::move(on_progress)) {}

std::vector<RequestRecord> LoadGenerator::Run(absl::Span<const PlannedRequest> requests,
                                              int64_t concurrency) {
  start_ = std::chrono::steady_clock::now();
  tokens_ = 0;
  size_t begun = 0;
  {
    MutexLock lock(&mutex_);
    finished_ = failed_ = 0;
    next_report_ = absl::ZeroDuration();
    records_.assign(requests.size(), {});
  }
  for (; begun < requests.size(); ++begun) {
    const PlannedRequest& request = requests[begun];
    {
      MutexLock lock(&mutex_);
      while (!cancelled_ && !MayBegin(request, concurrency)) {
        Wait(concurrency > 0 ? absl::InfiniteDuration() : request.at);
      }
      if (cancelled_) break;
    }
    Begin(begun, request);
  }
  MutexLock lock(&mutex_);
  while (!calls_.empty()) Wait(absl::InfiniteDuration());
  ReportProgress();
  records_.resize(begun);
  return std::move(records_);
}

bool LoadGenerator::MayBegin(const PlannedRequest& request, int64_t concurrency) const {
  if (concurrency > 0) return static_cast<int64_t>(calls_.size()) < concurrency;
  return Elapsed() >= request.at;
}

void LoadGenerator::Begin(size_t index, const PlannedRequest& request) {
  const auto call = std::make_shared<Call>(this, index, request);
  {
    MutexLock lock(&mutex_);
    calls_.emplace(index, call);
  }
  call->Begin();  // without the lock: gRPC may call OnDone at once
  if (cancelled()) call->Cancel();
}

void LoadGenerator::OnDone(size_t index, RequestRecord record, const grpc::Status& status) {
  MutexLock lock(&mutex_);
  ++finished_;
  const bool interrupted = cancelled_ && status.error_code() == grpc::StatusCode::CANCELLED;
  if (!status.ok() && !interrupted) {
    ++failed_;
    last_error_ = connection_->Explain(status);
  }
  records_[index] = std::move(record);
  calls_.erase(index);
  changed_.NotifyAll();
}

void LoadGenerator::Wait(absl::Duration until) {
  if (Elapsed() >= next_report_) {
    ReportProgress();
    next_report_ = Elapsed() + kReportEvery;
  }
  changed_.WaitUntil(&mutex_, start_ + absl::ToChronoNanoseconds(std::min(until, next_report_)));
}

void LoadGenerator::ReportProgress() {
  on_progress_({finished_, failed_, static_cast<int64_t>(calls_.size()), tokens_, Elapsed()});
}

absl::Duration LoadGenerator::Elapsed() const {
  return absl::FromChrono(std::chrono::steady_clock::now() - start_);
}

void LoadGenerator::Cancel() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    for (const auto& [index, call] : calls_) calls.push_back(call);
    changed_.NotifyAll();
  }
  for (const auto& call : calls) call->Cancel();  // without the lock, as above
}

bool LoadGenerator::cancelled() const {
  MutexLock lock(&mutex_);
  return cancelled_;
}

std::string LoadGenerator::last_error() const {
  MutexLock lock(&mutex_);
  return last_error_;
}

}  // namespace skein::client
