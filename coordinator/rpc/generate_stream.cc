#include "coordinator/rpc/generate_stream.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/rpc/call_end.h"
#include "coordinator/rpc/grpc_status.h"
#include "coordinator/rpc/inference_convert.h"
#include "coordinator/rpc/raw_message.h"
#include "coordinator/service/kept_answers.h"
#include "coordinator/service/response_id.h"

namespace skein::coordinator {

GenerateStream* GenerateStream::Start(
    grpc::CallbackServerContext* context, InferenceService* service, std::string_view route,
    const std::function<absl::StatusOr<Source>(GenerateStream&)>& open) {
  std::shared_ptr<GenerateStream> stream(new GenerateStream(context, service, route));
  stream->self_ = stream;
  const CallRecord::Scope scope(stream->record_);
  absl::StatusOr<Source> source = open(*stream);
  MutexLock lock(&stream->mutex_);
  stream->begun_ = true;
  if (source.ok()) {
    stream->source_ = *std::move(source);
    const Generation* const generation = stream->source_.generation.get();
    if (generation != nullptr) stream->unfinished_ = generation->request().answers.size();
  } else {
    stream->refusal_ = source.status();
  }
  stream->Advance();
  return stream.get();
}

GenerateStream* GenerateStream::Start(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer& request, InferenceService* service) {
  return Start(context, service, "/skein.v1.Inference/Generate",
               [&](GenerateStream& stream) { return stream.Admit(request); });
}

GenerateStream* GenerateStream::Resume(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer& request, InferenceService* service) {
  return Start(context, service, "/skein.v1.Inference/Resume",
               [&](GenerateStream& stream) { return stream.Return(request); });
}

absl::StatusOr<GenerateStream::Source> GenerateStream::Admit(const grpc::ByteBuffer& bytes) {
  v1::GenerateRequest request;
  SKEIN_RETURN_IF_ERROR(ParseMessage(bytes, request));
  const GenerateRequest asked = FromProto(request, DeadlineOf(*context_));
  Source source;
  // An embedding comes at once or not at all: nobody waits for its rest.
  KeptAnswers* const kept = asked.embedding.has_value() ? nullptr : service_->kept();
  if (kept != nullptr && kept->CanKeep()) {
    KeptHead head;
    head.id = NewResponseId("req-");
    SKEIN_ASSIGN_OR_RETURN(source.reader,
                           kept->Begin(service_, {asked}, std::move(head), WakeUp()));
    return source;
  }
  SKEIN_ASSIGN_OR_RETURN(source.generation,
                         service_->Generate(asked, [wake = WakeUp()](Generation::Ready ready) {
                           if (ready == Generation::Ready::kAll) wake();
                         }));
  return source;
}

absl::StatusOr<GenerateStream::Source> GenerateStream::Return(const grpc::ByteBuffer& bytes) {
  v1::ResumeRequest request;
  SKEIN_RETURN_IF_ERROR(ParseMessage(bytes, request));
  SKEIN_ASSIGN_OR_RETURN(const std::shared_ptr<KeptAnswer> answer,
                         FindKept(*service_, request.request_id()));
  record_->Concerns(LoggedId(request.request_id()));
  if (answer->model() == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model '", answer->head().model,
                     "' that began this answer is not served any more, or has changed"));
  }
  Source source;
  SKEIN_ASSIGN_OR_RETURN(source.reader,
                         answer->Read(static_cast<int64_t>(request.events()), WakeUp()));
  return source;
}

// Tokens may come before the request is admitted, and after gRPC has let go of this stream.
std::function<void()> GenerateStream::WakeUp() {
  return [weak = weak_from_this()] {
    if (const auto stream = weak.lock()) stream->OnEvent();
  };
}

void GenerateStream::OnEvent() {
  MutexLock lock(&mutex_);
  Advance();
}

void GenerateStream::Advance() {
  if (!begun_) return;
  writer_.Advance([this](grpc::ByteBuffer& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    NextWrite write = Next(message);
    if (write.has_message) answer_bytes_ += static_cast<int64_t>(message.Length());
    if (write.end.has_value()) code_ = write.end->error_code();
    return write;
  });
}

NextWrite GenerateStream::Next(grpc::ByteBuffer& message) {
  if (!refusal_.ok()) return {.end = ToGrpc(refusal_)};
  if (cancelled_) return {.end = WhyCancelled(*context_)};
  if (source_.reader != nullptr) return NextKept(message);
  const std::optional<Event> event = source_.generation->Next();
  if (!event.has_value()) return {};
  message = SerializeMessage(ToProto(*event, &source_.generation->model()));
  NextWrite write{.has_message = true};
  if (std::holds_alternative<Finished>(*event) && --unfinished_ == 0) {
    write.end = grpc::Status::OK;
  } else if (const auto* error = std::get_if<absl::Status>(&*event)) {
    write.end = ToGrpc(*error);
  }
  return write;
}

NextWrite GenerateStream::NextKept(grpc::ByteBuffer& message) {
  const KeptReader::Told told = source_.reader->Next();
  NextWrite write;
  if (told.event.has_value()) {
    message = SerializeMessage(
        ToProto(told.event->event, source_.reader->shared_answer()->model().get()));
    write.has_message = true;
  }
  if (told.over) write.end = ToGrpc(told.why);
  return write;
}

void GenerateStream::OnWriteDone(bool ok) {
  if (!ok) Cancel();
  MutexLock lock(&mutex_);
  writer_.OnWriteDone();
  Advance();
}

void GenerateStream::OnCancel() {
  Cancel();
  MutexLock lock(&mutex_);
  Advance();
}

void GenerateStream::Cancel() {
  std::shared_ptr<Generation> generation;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    generation = source_.generation;
  }
  if (generation != nullptr) service_->Cancel({generation});
}

void GenerateStream::OnDone() {
  {
    MutexLock lock(&mutex_);
    LogCall({.route = route_,
             .code = code_,
             .aborted = cancelled_,
             .answer_bytes = answer_bytes_,
             .began = began_},
            *record_);
  }
  const std::shared_ptr<GenerateStream> last = std::move(self_);  // may delete this on return
}

}  // namespace skein::coordinator
