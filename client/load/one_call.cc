#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "client/load/sender.h"

namespace skein::client {
namespace {

class OneCall final : public Sender {
 public:
  OneCall(v1::Inference::Stub* stub, Listener* listener)
      : listener_(listener),
        call_(stub->AsyncGenerateMany(&context_, &queue_, Tag(kStart))),
        thread_([this] { Receive(); }) {}

  ~OneCall() override {
    context_.TryCancel();
    thread_.join();
  }

  void Send(size_t index, const PlannedRequest& request) override {
    v1::GenerateManyRequest message;
    message.set_request(index);
    *message.mutable_generate() = MakeRequest(request);
    grpc::Status ended;
    {
      MutexLock lock(&mutex_);
      if (!ended_.has_value()) {
        running_.insert(index);
        outgoing_.push_back(std::move(message));
        return Write();
      }
      ended = *ended_;
    }
    listener_->OnEnd(index, ended);
  }

  void Cancel() override { context_.TryCancel(); }

 private:
  enum Operation : intptr_t { kStart, kWrite, kRead, kFinish };

  static void* Tag(Operation operation) { return reinterpret_cast<void*>(operation); }

  // Until the call has ended.
  void Receive() {
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
      switch (static_cast<Operation>(reinterpret_cast<intptr_t>(tag))) {
        case kStart:
          call_->Read(&incoming_, Tag(kRead));
          OnWritten();
          break;
        case kWrite:
          if (ok) OnWritten();
          break;
        case kRead:
          if (!ok) {
            call_->Finish(&status_, Tag(kFinish));
            break;
          }
          for (const v1::RequestEvent& event : incoming_.events()) OnEvent(event);
          call_->Read(&incoming_, Tag(kRead));
          break;
        case kFinish:
          OnFinished();
          queue_.Shutdown();
          break;
      }
    }
  }

  void OnWritten() {
    MutexLock lock(&mutex_);
    writing_ = false;
    Write();
  }

  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || outgoing_.empty()) return;
    writing_ = true;
    in_flight_ = std::move(outgoing_.front());
    outgoing_.pop_front();
    call_->Write(in_flight_, Tag(kWrite));
  }

  void OnEvent(const v1::RequestEvent& event) {
    switch (event.event().event_case()) {
      case v1::GenerateEvent::kTokens:
        return listener_->OnTokens(event.request(), event.event().tokens().tokens_size());
      case v1::GenerateEvent::kFinished:
        return OnEnd(event.request(), grpc::Status::OK);
      case v1::GenerateEvent::kError: {
        const v1::Error& error = event.event().error();
        return OnEnd(event.request(),
                     {static_cast<grpc::StatusCode>(error.code()), error.message()});
      }
      case v1::GenerateEvent::kAccepted:
      case v1::GenerateEvent::EVENT_NOT_SET:
        return;
    }
  }

  void OnEnd(size_t index, const grpc::Status& status) {
    {
      MutexLock lock(&mutex_);
      if (running_.erase(index) == 0) return;
    }
    listener_->OnEnd(index, status);
  }

  void OnFinished() {
    if (status_.ok())
      status_ = {grpc::StatusCode::INTERNAL, "the coordinator ended the call early"};
    std::set<size_t> running;
    {
      MutexLock lock(&mutex_);
      ended_ = status_;
      running = std::exchange(running_, {});
      outgoing_.clear();
    }
    for (const size_t index : running) listener_->OnEnd(index, status_);
  }

  Listener* const listener_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  const std::unique_ptr<
      grpc::ClientAsyncReaderWriter<v1::GenerateManyRequest, v1::GenerateManyResponse>>
      call_;
  // The receiving thread's.
  v1::GenerateManyResponse incoming_;
  grpc::Status status_;

  Mutex mutex_;
  std::set<size_t> running_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::GenerateManyRequest> outgoing_ ABSL_GUARDED_BY(mutex_);
  v1::GenerateManyRequest in_flight_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;  // the call begins
  std::optional<grpc::Status> ended_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses all the others
};

}  // namespace

std::unique_ptr<Sender> SendInOneCall(v1::Inference::Stub* stub, Sender::Listener* listener) {
  return std::make_unique<OneCall>(stub, listener);
}

}  // namespace skein::client
