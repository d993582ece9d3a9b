// Serves many answers of one client over one call.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "coordinator/rpc/call_log.h"
#include "coordinator/rpc/message_writer.h"
#include "coordinator/service/call_record.h"
#include "coordinator/service/inference_service.h"
#include "proto/inference.pb.h"

namespace skein::coordinator {

// Begins and cancels requests as the client says, and writes the events of all of them. Events that
// are there at once share one message: what piles up during a write is the next message. Owns
// itself until gRPC is done with it.
class GenerateManyStream final
    : public grpc::ServerBidiReactor<v1::GenerateManyRequest, v1::GenerateManyResponse>,
      public std::enable_shared_from_this<GenerateManyStream> {
 public:
  // The service outlives the stream.
  static GenerateManyStream* Start(grpc::CallbackServerContext* context, InferenceService* service);

  // gRPC calls these, reads and writes apart, each one at a time.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;  // the client has gone, or the call's deadline has passed
  void OnDone() override;

 private:
  // A request is kept from its arrival until its last event is in a message.
  struct Request {
    std::shared_ptr<Generation> generation;  // unset while it is being admitted, and when refused
    absl::Status refusal;
    size_t unfinished = 0;  // answers
    bool ready = false;     // it is in ready_
    std::shared_ptr<CallRecord> record;
    absl::Time began;
    int64_t answer_bytes = 0;
  };

  GenerateManyStream(grpc::CallbackServerContext* context, InferenceService* service)
      : context_(context), service_(service), record_(RecordOf(*context)), began_(absl::Now()) {}

  // Does what a message asks for; an error ends the call.
  absl::Status Handle(const v1::GenerateManyRequest& message);
  absl::Status Begin(const v1::GenerateManyRequest& message);
  absl::StatusOr<std::shared_ptr<Generation>> Admit(const v1::GenerateManyRequest& message,
                                                    const std::shared_ptr<CallRecord>& record);
  void CancelRequest(uint64_t number);
  // The service calls it with its lock held: never calls back.
  void OnReady(uint64_t number, Generation::Ready ready);
  // Ends the call and cancels all that runs. The first end counts.
  void End(const grpc::Status& status);

  void MarkReady(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  NextWrite Next(v1::GenerateManyResponse& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fills `message` with the events of the requests that are ready.
  void TakeEvents(v1::GenerateManyResponse& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  enum class Taken { kAll, kLast, kSome };  // all that are there, the request's last one, or else
  static void Log(const Request& request, grpc::StatusCode code);
  Taken TakeEventsOf(uint64_t number, Request& request, v1::GenerateManyResponse& message,
                     size_t& bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::CallbackServerContext* const context_;
  InferenceService* const service_;
  // Of the call itself, which is told where it fails before it has a request.
  const std::shared_ptr<CallRecord> record_;
  const absl::Time began_;
  std::shared_ptr<GenerateManyStream> self_;
  v1::GenerateManyRequest incoming_;  // belongs to the reading side

  Mutex mutex_;
  std::map<uint64_t, Request> requests_ ABSL_GUARDED_BY(mutex_);  // by the client's number
  std::deque<uint64_t> ready_ ABSL_GUARDED_BY(mutex_);            // that may have events, each once
  bool has_begun_ ABSL_GUARDED_BY(mutex_) = false;                // a request
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
  MessageWriter<GenerateManyStream, v1::GenerateManyResponse> writer_ ABSL_GUARDED_BY(mutex_){this};
};

}  // namespace skein::coordinator
