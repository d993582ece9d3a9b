#include "coordinator/rpc/generate_many_stream.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/rpc/call_end.h"
#include "coordinator/rpc/call_log.h"
#include "coordinator/rpc/grpc_status.h"
#include "coordinator/rpc/inference_convert.h"

namespace skein::coordinator {
namespace {

constexpr size_t kMaxRequests = 16'384;
// A message of more bytes takes no further event: clients take 4 MiB by default, and one event has
// well below half of that.
constexpr size_t kFullMessageBytes = 1 << 20;
// This number stays in a message that was never read. gRPC reports the end of the client's messages
// and one that cannot be parsed alike, but the latter has been cleared.
constexpr uint64_t kNothingRead = std::numeric_limits<uint64_t>::max();

}  // namespace

GenerateManyStream* GenerateManyStream::Start(grpc::CallbackServerContext* context,
                                              InferenceService* service) {
  std::shared_ptr<GenerateManyStream> stream(new GenerateManyStream(context, service));
  stream->self_ = stream;
  MutexLock lock(&stream->mutex_);
  stream->Read();
  return stream.get();
}

// ---- What the client says ----

void GenerateManyStream::OnReadDone(bool ok) {
  absl::Status handled;
  if (ok) {
    handled = Handle(incoming_);
  } else if (incoming_.request() != kNothingRead) {
    handled = absl::InvalidArgumentError("a message is no GenerateManyRequest");
  }
  if (!handled.ok()) return End(ToGrpc(handled));
  MutexLock lock(&mutex_);
  reading_ = false;
  half_closed_ = !ok;
  Advance();
}

absl::Status GenerateManyStream::Handle(const v1::GenerateManyRequest& message) {
  switch (message.action_case()) {
    case v1::GenerateManyRequest::kGenerate:
      return Begin(message);
    case v1::GenerateManyRequest::kCancel:
      CancelRequest(message.request());
      return absl::OkStatus();
    case v1::GenerateManyRequest::ACTION_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("request ", message.request(), ": neither generate nor cancel"));
}

absl::Status GenerateManyStream::Begin(const v1::GenerateManyRequest& message) {
  const uint64_t number = message.request();
  const std::shared_ptr<CallRecord> record = RecordOf(*context_);
  {
    MutexLock lock(&mutex_);
    const auto [request, is_new] = requests_.try_emplace(number);
    if (is_new) {
      has_begun_ = true;
      request->second.record = record;
      request->second.began = absl::Now();
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("request ", number, ": the one of this number has not ended yet"));
    }
  }
  const auto generation = Admit(message, record);
  bool call_has_ended = false;
  {
    MutexLock lock(&mutex_);
    Request& request = requests_.at(number);
    if (generation.ok()) {
      request.generation = *generation;
      request.unfinished = (*generation)->request().answers.size();
      call_has_ended = end_.has_value();
    } else {
      request.refusal = generation.status();
    }
    MarkReady(number);
  }
  if (call_has_ended) service_->Cancel({*generation});
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Generation>> GenerateManyStream::Admit(
    const v1::GenerateManyRequest& message, const std::shared_ptr<CallRecord>& record) {
  const CallRecord::Scope scope(record);
  absl::Time deadline = DeadlineOf(*context_);
  if (message.has_timeout_seconds()) {
    if (!(message.timeout_seconds() > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("timeout_seconds: ", message.timeout_seconds(), " is not above 0"));
    }
    deadline = std::min(deadline, absl::Now() + absl::Seconds(message.timeout_seconds()));
  }
  // Tokens may come before Generate returns, and after gRPC has let go of this stream.
  return service_->Generate(
      FromProto(message.generate(), deadline),
      [weak = weak_from_this(), number = message.request()](Generation::Ready ready) {
        if (const auto stream = weak.lock()) stream->OnReady(number, ready);
      });
}

void GenerateManyStream::CancelRequest(uint64_t number) {
  std::shared_ptr<Generation> generation;
  {
    MutexLock lock(&mutex_);
    const auto found = requests_.find(number);
    if (found == requests_.end() || found->second.generation == nullptr) return;
    generation = found->second.generation;
  }
  service_->Cancel({generation});
  generation->Fail(absl::CancelledError("the client cancelled the request"));
}

void GenerateManyStream::OnCancel() { End(WhyCancelled(*context_)); }

void GenerateManyStream::End(const grpc::Status& status) {
  std::vector<std::shared_ptr<Generation>> running;
  {
    MutexLock lock(&mutex_);
    if (!end_.has_value()) end_ = status;
    for (const auto& [number, request] : requests_) {
      if (request.generation != nullptr) running.push_back(request.generation);
    }
    Advance();
  }
  service_->Cancel(running);
}

// ---- What it is told ----

void GenerateManyStream::OnReady(uint64_t number, Generation::Ready ready) {
  MutexLock lock(&mutex_);
  MarkReady(number);
  if (ready == Generation::Ready::kAll) Advance();
}

void GenerateManyStream::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    writer_.OnWriteDone();
    if (ok) return Advance();
    if (!end_.has_value()) end_ = WhyCancelled(*context_);  // nothing more is written
  }
  End(WhyCancelled(*context_));
}

void GenerateManyStream::MarkReady(uint64_t number) {
  const auto found = requests_.find(number);
  if (found == requests_.end() || std::exchange(found->second.ready, true)) return;
  ready_.push_back(number);
}

void GenerateManyStream::Advance() {
  writer_.Advance([this](v1::GenerateManyResponse& message)
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Next(message); });
  if (!reading_ && !half_closed_ && !end_.has_value() && requests_.size() < kMaxRequests) Read();
}

NextWrite GenerateManyStream::Next(v1::GenerateManyResponse& message) {
  if (end_.has_value()) return {.end = end_};
  TakeEvents(message);
  if (message.events_size() > 0) return {.has_message = true};
  if (!half_closed_ || !requests_.empty()) return {};
  end_ = grpc::Status::OK;
  return {.end = end_};
}

void GenerateManyStream::Read() {
  reading_ = true;
  incoming_.Clear();
  incoming_.set_request(kNothingRead);
  StartRead(&incoming_);
}

void GenerateManyStream::TakeEvents(v1::GenerateManyResponse& message) {
  size_t bytes = 0;
  while (!ready_.empty() && bytes < kFullMessageBytes) {
    const auto next = requests_.find(ready_.front());
    ready_.pop_front();
    next->second.ready = false;
    switch (TakeEventsOf(next->first, next->second, message, bytes)) {
      case Taken::kAll:
        break;
      case Taken::kLast:
        requests_.erase(next);
        break;
      case Taken::kSome:
        MarkReady(next->first);  // after the others, which it is not to hold up
        break;
    }
  }
}

GenerateManyStream::Taken GenerateManyStream::TakeEventsOf(uint64_t number, Request& request,
                                                           v1::GenerateManyResponse& message,
                                                           size_t& bytes) {
  const auto add = [&](const Event& event) {
    v1::RequestEvent& out = *message.add_events();
    out.set_request(number);
    *out.mutable_event() =
        ToProto(event, request.generation == nullptr ? nullptr : &request.generation->model());
    const size_t size = out.ByteSizeLong();
    bytes += size;
    request.answer_bytes += static_cast<int64_t>(size);
  };
  if (!request.refusal.ok()) {
    add(request.refusal);
    Log(request, ToGrpc(request.refusal).error_code());
    return Taken::kLast;
  }
  if (request.generation == nullptr) return Taken::kAll;
  while (bytes < kFullMessageBytes) {
    const std::optional<Event> event = request.generation->Next();
    if (!event.has_value()) return Taken::kAll;
    add(*event);
    const auto* const error = std::get_if<absl::Status>(&*event);
    const bool whole = std::holds_alternative<Finished>(*event) && --request.unfinished == 0;
    if (error == nullptr && !whole) continue;
    Log(request, error == nullptr ? grpc::StatusCode::OK : ToGrpc(*error).error_code());
    return Taken::kLast;
  }
  return Taken::kSome;
}

void GenerateManyStream::Log(const Request& request, grpc::StatusCode code) {
  LogCall({.route = "/skein.v1.Inference/GenerateMany",
           .code = code,
           .aborted = code == grpc::StatusCode::CANCELLED,
           .answer_bytes = request.answer_bytes,
           .began = request.began},
          *request.record);
}

void GenerateManyStream::OnDone() {
  {
    MutexLock lock(&mutex_);
    const grpc::StatusCode code = end_.value_or(grpc::Status::CANCELLED).error_code();
    for (const auto& [number, request] : requests_) Log(request, code);
    if (!has_begun_ && code != grpc::StatusCode::OK) {
      Request call;
      call.record = record_;
      call.began = began_;
      Log(call, code);
    }
  }
  const std::shared_ptr<GenerateManyStream> last = std::move(self_);  // may delete this on return
}

}  // namespace skein::coordinator
