#include "coordinator/rpc/generate_stream.h"

#include <optional>
#include <utility>
#include <variant>

#include "base/status_macros.h"
#include "coordinator/rpc/call_end.h"
#include "coordinator/rpc/grpc_status.h"
#include "coordinator/rpc/inference_convert.h"
#include "coordinator/rpc/raw_message.h"

namespace skein::coordinator {

GenerateStream* GenerateStream::Start(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer& request, InferenceService* service) {
  std::shared_ptr<GenerateStream> stream(new GenerateStream(context, service));
  stream->self_ = stream;
  stream->Begin(request);
  return stream.get();
}

absl::StatusOr<std::shared_ptr<Generation>> GenerateStream::Admit(const grpc::ByteBuffer& bytes) {
  v1::GenerateRequest request;
  SKEIN_RETURN_IF_ERROR(ParseMessage(bytes, request));
  // Tokens may come before Generate returns, and after gRPC has let go of this stream.
  return service_->Generate(FromProto(request, DeadlineOf(*context_)),
                            [weak = weak_from_this()](Generation::Ready ready) {
                              if (ready == Generation::Ready::kMore) return;
                              if (const auto stream = weak.lock()) stream->OnEvent();
                            });
}

void GenerateStream::Begin(const grpc::ByteBuffer& request) {
  absl::StatusOr<std::shared_ptr<Generation>> generation = Admit(request);
  MutexLock lock(&mutex_);
  begun_ = true;
  if (generation.ok()) {
    generation_ = *std::move(generation);
    unfinished_ = generation_->request().answers.size();
  } else {
    refusal_ = generation.status();
  }
  Advance();
}

void GenerateStream::OnEvent() {
  MutexLock lock(&mutex_);
  Advance();
}

void GenerateStream::Advance() {
  if (!begun_) return;
  writer_.Advance([this](grpc::ByteBuffer& message)
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Next(message); });
}

NextWrite GenerateStream::Next(grpc::ByteBuffer& message) {
  if (!refusal_.ok()) return {.end = ToGrpc(refusal_)};
  if (cancelled_) return {.end = WhyCancelled(*context_)};
  const std::optional<Event> event = generation_->Next();
  if (!event.has_value()) return {};
  message = SerializeMessage(ToProto(*event, &generation_->model()));
  NextWrite write{.has_message = true};
  if (std::holds_alternative<Finished>(*event) && --unfinished_ == 0) {
    write.end = grpc::Status::OK;
  } else if (const auto* error = std::get_if<absl::Status>(&*event)) {
    write.end = ToGrpc(*error);
  }
  return write;
}

void GenerateStream::OnWriteDone(bool ok) {
  if (!ok) service_->Cancel({generation_});
  MutexLock lock(&mutex_);
  writer_.OnWriteDone();
  cancelled_ |= !ok;
  Advance();
}

void GenerateStream::OnCancel() {
  if (generation_ == nullptr) return;  // refused
  service_->Cancel({generation_});
  MutexLock lock(&mutex_);
  cancelled_ = true;
  Advance();
}

void GenerateStream::OnDone() {
  const std::shared_ptr<GenerateStream> last = std::move(self_);  // may delete this on return
}

}  // namespace skein::coordinator
