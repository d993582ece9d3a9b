#include "client/load/generator.h"

#include <algorithm>
#include <utility>

namespace skein::client {
namespace {

constexpr absl::Duration kReportEvery = absl::Milliseconds(200);

RequestRecord RecordOf(const PlannedRequest& planned, absl::Duration now) {
  RequestRecord record = {.prompt_tokens = static_cast<int64_t>(planned.prompt.size()),
                          .answer_tokens = planned.answer_tokens,
                          .sent = now};
  record.tokens.reserve(static_cast<size_t>(planned.answer_tokens));
  return record;
}

}  // namespace

LoadGenerator::LoadGenerator(const Connection* connection, Calls calls,
                             std::function<void(const LoadProgress&)> on_progress)
    : connection_(connection),
      calls_(calls),
      stub_(v1::Inference::NewStub(connection->channel())),
      on_progress_(std::move(on_progress)) {}

std::shared_ptr<Sender> LoadGenerator::MakeSender() {
  return calls_ == Calls::kOne ? SendInOneCall(stub_.get(), this)
                               : SendInSeparateCalls(stub_.get(), this);
}

std::vector<RequestRecord> LoadGenerator::Run(absl::Span<const PlannedRequest> requests,
                                              int64_t concurrency) {
  start_ = std::chrono::steady_clock::now();
  const std::shared_ptr<Sender> sender = MakeSender();
  {
    MutexLock lock(&mutex_);
    sender_ = sender;
    finished_ = failed_ = tokens_ = 0;
    next_report_ = absl::ZeroDuration();
    records_.assign(requests.size(), {});
  }
  size_t begun = 0;
  for (; begun < requests.size(); ++begun) {
    const PlannedRequest& request = requests[begun];
    {
      MutexLock lock(&mutex_);
      while (!cancelled_ && !MayBegin(request, concurrency)) {
        Wait(concurrency > 0 ? absl::InfiniteDuration() : request.at);
      }
      if (cancelled_) break;
      records_[begun] = RecordOf(request, Elapsed());
      ++running_;
    }
    sender->Send(begun, request);
  }
  MutexLock lock(&mutex_);
  while (running_ > 0) Wait(absl::InfiniteDuration());
  ReportProgress();
  sender_ = nullptr;
  records_.resize(begun);
  return std::move(records_);
}

bool LoadGenerator::MayBegin(const PlannedRequest& request, int64_t concurrency) const {
  return concurrency > 0 ? running_ < concurrency : Elapsed() >= request.at;
}

void LoadGenerator::OnTokens(size_t index, size_t tokens) {
  MutexLock lock(&mutex_);
  RequestRecord& record = records_[index];
  record.tokens.insert(record.tokens.end(), tokens, Elapsed());
  tokens_ += static_cast<int64_t>(tokens);
}

void LoadGenerator::OnEnd(size_t index, const grpc::Status& status) {
  MutexLock lock(&mutex_);
  records_[index].ended = Elapsed();
  records_[index].code = CodeName(status.error_code());
  --running_;
  ++finished_;
  const bool interrupted = cancelled_ && status.error_code() == grpc::StatusCode::CANCELLED;
  if (!status.ok() && !interrupted) {
    ++failed_;
    last_error_ = connection_->Explain(status);
  }
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
  on_progress_({finished_, failed_, running_, tokens_, Elapsed()});
}

absl::Duration LoadGenerator::Elapsed() const {
  return absl::FromChrono(std::chrono::steady_clock::now() - start_);
}

void LoadGenerator::Cancel() {
  std::shared_ptr<Sender> sender;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    sender = sender_;
    changed_.NotifyAll();
  }
  if (sender != nullptr) sender->Cancel();
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
