#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <map>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "client/load/sender.h"

namespace skein::client {
namespace {

// One request. It has one operation in progress at a time, whose end comes out of the queue.
class Call {
 public:
  Call(size_t index, const PlannedRequest& planned, Sender::Listener* listener)
      : index_(index), request_(MakeRequest(planned)), listener_(listener) {}

  void Begin(v1::Inference::Stub* stub, grpc::CompletionQueue* queue) {
    reader_ = stub->PrepareAsyncGenerate(&context_, request_, queue);
    reader_->StartCall(tag());
  }

  void Cancel() { context_.TryCancel(); }

  // The operation in progress has ended; begins the next one. False: it was the last.
  bool Advance(bool ok) {
    if (finishing_) {
      listener_->OnEnd(index_, status_);
      return false;
    }
    if (!ok) {
      finishing_ = true;
      reader_->Finish(&status_, tag());
      return true;
    }
    const auto tokens = static_cast<size_t>(event_.tokens().tokens_size());  // 0 at the start
    if (tokens > 0) listener_->OnTokens(index_, tokens);
    reader_->Read(&event_, tag());
    return true;
  }

 private:
  void* tag() const { return reinterpret_cast<void*>(index_); }

  const size_t index_;
  const v1::GenerateRequest request_;
  Sender::Listener* const listener_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateEvent>> reader_;
  v1::GenerateEvent event_;
  bool finishing_ = false;
  grpc::Status status_;
};

class SeparateCalls final : public Sender {
 public:
  SeparateCalls(v1::Inference::Stub* stub, Listener* listener)
      : stub_(stub), listener_(listener), thread_([this] { Receive(); }) {}

  ~SeparateCalls() override {
    queue_.Shutdown();
    thread_.join();
  }

  void Send(size_t index, const PlannedRequest& request) override {
    const auto call = std::make_shared<Call>(index, request, listener_);
    MutexLock lock(&mutex_);
    calls_.emplace(index, call);
    call->Begin(stub_, &queue_);
    if (cancelled_) call->Cancel();
  }

  void Cancel() override {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    for (const auto& [index, call] : calls_) call->Cancel();
  }

 private:
  void Receive() {
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
      const auto index = reinterpret_cast<size_t>(tag);
      if (Find(index)->Advance(ok)) continue;
      MutexLock lock(&mutex_);
      calls_.erase(index);
    }
  }

  std::shared_ptr<Call> Find(size_t index) {
    MutexLock lock(&mutex_);
    return calls_.at(index);
  }

  v1::Inference::Stub* const stub_;
  Listener* const listener_;
  grpc::CompletionQueue queue_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<size_t, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);  // that run, by index
  std::thread thread_;  // last: it uses all the others
};

}  // namespace

std::unique_ptr<Sender> SendInSeparateCalls(v1::Inference::Stub* stub, Sender::Listener* listener) {
  return std::make_unique<SeparateCalls>(stub, listener);
}

}  // namespace skein::client
