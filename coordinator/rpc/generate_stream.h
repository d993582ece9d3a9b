// Serves one client's answer.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "coordinator/rpc/call_log.h"
#include "coordinator/rpc/message_writer.h"
#include "coordinator/service/call_record.h"
#include "coordinator/service/inference_service.h"
#include "coordinator/service/kept_answer.h"

namespace skein::coordinator {

// Writes a generation's events, one at a time: what piles up during a write is the next event.
// Where answers are kept, the events are those of the journal, and the answer goes on when this
// goes. Nothing is sent, headers included, before the request is admitted. Owns itself until gRPC
// is done with it.
class GenerateStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                             public std::enable_shared_from_this<GenerateStream> {
 public:
  // The service outlives the stream.
  static GenerateStream* Start(grpc::CallbackServerContext* context,
                               const grpc::ByteBuffer& request, InferenceService* service);
  // The rest of a kept answer: `request` is a ResumeRequest.
  static GenerateStream* Resume(grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer& request, InferenceService* service);

  // gRPC calls these.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;  // the client has gone, or its deadline has passed
  void OnDone() override;

 private:
  GenerateStream(grpc::CallbackServerContext* context, InferenceService* service,
                 std::string_view route)
      : context_(context), service_(service), route_(route), record_(RecordOf(*context)) {}

  // What brings the events: one of the two.
  struct Source {
    std::shared_ptr<Generation> generation;
    std::unique_ptr<KeptReader> reader;
  };

  static GenerateStream* Start(grpc::CallbackServerContext* context, InferenceService* service,
                               std::string_view route,
                               const std::function<absl::StatusOr<Source>(GenerateStream&)>& open);
  absl::StatusOr<Source> Admit(const grpc::ByteBuffer& bytes);
  absl::StatusOr<Source> Return(const grpc::ByteBuffer& bytes);
  std::function<void()> WakeUp();
  void Cancel();
  void OnEvent();  // the service calls it with its lock held: never calls back
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  NextWrite Next(grpc::ByteBuffer& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  NextWrite NextKept(grpc::ByteBuffer& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::CallbackServerContext* const context_;
  InferenceService* const service_;
  const std::string_view route_;
  const std::shared_ptr<CallRecord> record_;
  const absl::Time began_ = absl::Now();
  std::shared_ptr<GenerateStream> self_;

  Mutex mutex_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  Source source_ ABSL_GUARDED_BY(mutex_);  // from then on
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  size_t unfinished_ ABSL_GUARDED_BY(mutex_) = 0;  // answers
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t answer_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::StatusCode code_ ABSL_GUARDED_BY(mutex_) = grpc::StatusCode::CANCELLED;  // at the end
  MessageWriter<GenerateStream, grpc::ByteBuffer> writer_ ABSL_GUARDED_BY(mutex_){this};
};

}  // namespace skein::coordinator
