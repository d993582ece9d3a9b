#include "coordinator/client/load/generator.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_stream.h>

#include <algorithm>
#include <thread>
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

// One request. It has one operation in progress at a time, whose end comes out of the queue.
class LoadGenerator::Call {
 public:
  Call(LoadGenerator* generator, size_t index, const PlannedRequest& planned)
      : generator_(generator), index_(index), request_(MakeRequest(planned)) {
    record_.prompt_tokens = static_cast<int64_t>(planned.prompt.size());
    record_.answer_tokens = planned.answer_tokens;
    record_.tokens.reserve(static_cast<size_t>(planned.answer_tokens));
  }

  void Begin(grpc::CompletionQueue* queue) {
    reader_ = generator_->stub_->PrepareAsyncGenerate(&context_, request_, queue);
    record_.sent = generator_->Elapsed();
    reader_->StartCall(this);
  }

  void Cancel() { context_.TryCancel(); }

  // The operation in progress has ended; begins the next one. After the last one `this` is gone.
  void Advance(bool ok) {
    if (finishing_) {
      record_.ended = generator_->Elapsed();
      record_.code = CodeName(status_.error_code());
      generator_->OnDone(index_, std::move(record_), status_);
    } else if (!ok) {
      finishing_ = true;
      reader_->Finish(&status_, this);
    } else {
      const auto tokens = static_cast<size_t>(event_.tokens().tokens_size());  // 0 at the start
      record_.tokens.insert(record_.tokens.end(), tokens, generator_->Elapsed());
      generator_->tokens_ += static_cast<int64_t>(tokens);
      reader_->Read(&event_, this);
    }
  }

 private:
  LoadGenerator* const generator_;
  const size_t index_;
  const v1::GenerateRequest request_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateEvent>> reader_;
  v1::GenerateEvent event_;
  bool finishing_ = false;
  grpc::Status status_;
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
  // One thread: the load leaves the machine to what it measures.
  grpc::CompletionQueue queue;
  std::thread reader([&queue] {
    void* call = nullptr;
    for (bool ok = false; queue.Next(&call, &ok);) static_cast<Call*>(call)->Advance(ok);
  });
  for (; begun < requests.size(); ++begun) {
    const PlannedRequest& request = requests[begun];
    {
      MutexLock lock(&mutex_);
      while (!cancelled_ && !MayBegin(request, concurrency)) {
        Wait(concurrency > 0 ? absl::InfiniteDuration() : request.at);
      }
      if (cancelled_) break;
    }
    Begin(begun, request, &queue);
  }
  {
    MutexLock lock(&mutex_);
    while (!calls_.empty()) Wait(absl::InfiniteDuration());
  }
  queue.Shutdown();
  reader.join();
  MutexLock lock(&mutex_);
  ReportProgress();
  records_.resize(begun);
  return std::move(records_);
}

bool LoadGenerator::MayBegin(const PlannedRequest& request, int64_t concurrency) const {
  if (concurrency > 0) return static_cast<int64_t>(calls_.size()) < concurrency;
  return Elapsed() >= request.at;
}

void LoadGenerator::Begin(size_t index, const PlannedRequest& request,
                          grpc::CompletionQueue* queue) {
  const auto call = std::make_shared<Call>(this, index, request);
  {
    MutexLock lock(&mutex_);
    calls_.emplace(index, call);
  }
  call->Begin(queue);
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
