#include "coordinator/rpc/generate_many_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/rpc/call_end.h"
#include "coordinator/rpc/grpc_status.h"
#include "coordinator/rpc/inference_convert.h"

namespace skein::coordinator {
namespace {

constexpr size_t kMaxRequests = 4096;
// A message of more bytes takes no further event: clients take 4 MiB by default, and one event has
// well below half of that.
constexpr size_t kFullMessageBytes = 1 << 20;

}  // namespace

GenerateManyStream* GenerateManyStream::Start(grpc::CallbackServerContext* context,
                                              InferenceService* service) {
  std::shared_ptr<GenerateManyStream> stream(new GenerateManyStream(context, service));
  stream->self_ = stream;
  stream->StartRead(&stream->incoming_);
  return stream.get();
}

// ---- What the client says ----

void GenerateManyStream::OnReadDone(bool ok) {
  if (ok) {
    if (const absl::Status handled = Handle(incoming_); !handled.ok()) return End(ToGrpc(handled));
  }
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
  {
    MutexLock lock(&mutex_);
    if (!requests_.try_emplace(message.request()).second) {
      return absl::InvalidArgumentError(absl::StrCat("request ", message.request(),
                                                     ": the one of this number has not ended yet"));
    }
  }
  // Tokens may come before Generate returns, and after gRPC has let go of this stream.
  const auto generation = Admit(message, [weak = weak_from_this()] {
    if (const auto stream = weak.lock()) stream->OnEvent();
  });
  bool late = false;
  {
    MutexLock lock(&mutex_);
    Request& request = requests_.at(message.request());
    if (generation.ok()) {
      request.generation = *generation;
      request.unfinished = (*generation)->request().samples.size();
      late = end_.has_value();
    } else {
      request.refusal = generation.status();
    }
  }
  if (late) service_->Cancel(**generation);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Generation>> GenerateManyStream::Admit(
    const v1::GenerateManyRequest& message, std::function<void()> on_ready) {
  absl::Time deadline = DeadlineOf(*context_);
  if (message.has_timeout_seconds()) {
    if (!(message.timeout_seconds() > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("timeout_seconds: ", message.timeout_seconds(), " is not above 0"));
    }
    deadline = std::min(deadline, absl::Now() + absl::Seconds(message.timeout_seconds()));
  }
  return service_->Generate(FromProto(message.generate(), deadline), std::move(on_ready));
}

void GenerateManyStream::CancelRequest(uint64_t name) {
  std::shared_ptr<Generation> generation;
  {
    MutexLock lock(&mutex_);
    const auto found = requests_.find(name);
    if (found == requests_.end() || found->second.generation == nullptr) return;
    generation = found->second.generation;
  }
  service_->Cancel(*generation);
  generation->Fail(absl::CancelledError("the client cancelled the request"));
}

void GenerateManyStream::OnCancel() { End(WhyCancelled(*context_)); }

void GenerateManyStream::End(const grpc::Status& status) {
  std::vector<std::shared_ptr<Generation>> running;
  {
    MutexLock lock(&mutex_);
    if (!end_.has_value()) end_ = status;
    for (const auto& [name, request] : requests_) {
      if (request.generation != nullptr) running.push_back(request.generation);
    }
    Advance();
  }
  for (const auto& generation : running) service_->Cancel(*generation);
}

// ---- What it is told ----

void GenerateManyStream::OnEvent() {
  MutexLock lock(&mutex_);
  Advance();
}

void GenerateManyStream::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (ok) return Advance();
  }
  End(grpc::Status::CANCELLED);
}

void GenerateManyStream::Advance() {
  if (finished_) return;
  if (!writing_ && !end_.has_value()) {
    TakeEvents();
    writing_ = in_flight_.events_size() > 0;
    if (writing_) {
      StartWrite(&in_flight_);
    } else if (half_closed_ && requests_.empty()) {
      end_ = grpc::Status::OK;
    }
  }
  if (!writing_ && end_.has_value()) {
    finished_ = true;
    return Finish(*end_);
  }
  if (reading_ || half_closed_ || end_.has_value() || requests_.size() >= kMaxRequests) return;
  reading_ = true;
  StartRead(&incoming_);
}

void GenerateManyStream::TakeEvents() {
  in_flight_.Clear();
  size_t bytes = 0;
  // In turn, so that no request's many events keep back the others'.
  auto next = requests_.upper_bound(last_);
  for (size_t left = requests_.size(); left > 0 && bytes < kFullMessageBytes; --left) {
    if (next == requests_.end()) next = requests_.begin();
    last_ = next->first;
    const bool ended = TakeEventsOf(next->first, next->second, bytes);
    next = ended ? requests_.erase(next) : std::next(next);
  }
}

bool GenerateManyStream::TakeEventsOf(uint64_t name, Request& request, size_t& bytes) {
  const auto add = [&](const Event& event) {
    v1::RequestEvent& out = *in_flight_.add_events();
    out.set_request(name);
    *out.mutable_event() = ToProto(event, service_->model());
    bytes += out.ByteSizeLong();
  };
  if (!request.refusal.ok()) {
    add(request.refusal);
    return true;
  }
  while (request.generation != nullptr && bytes < kFullMessageBytes) {
    const std::optional<Event> event = request.generation->Next();
    if (!event.has_value()) return false;
    add(*event);
    if (std::holds_alternative<absl::Status>(*event)) return true;
    if (std::holds_alternative<Finished>(*event) && --request.unfinished == 0) return true;
  }
  return false;
}

void GenerateManyStream::OnDone() {
  const std::shared_ptr<GenerateManyStream> last = std::move(self_);  // may delete this on return
}

}  // namespace skein::coordinator
