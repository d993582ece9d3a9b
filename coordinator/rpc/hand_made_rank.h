// A rank whose every word a test chooses.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/tls/job_key.h"
#include "coordinator/rpc/test_coordinator.h"
#include "parallel/attach/protocol.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/convert/attach.h"

namespace skein::coordinator {

inline constexpr char kSecret[] = "a secret of the job";  // FakeJob's, too

// Of the first rank of a job of `size`, of TestOptions' version.
inline cluster::v1::WorkerMessage HelloOf(const std::string& job_id, int32_t size = 1) {
  cluster::v1::WorkerMessage message;
  cluster::v1::Hello& hello = *message.mutable_hello();
  hello.set_version("test");
  *hello.mutable_protocols() = convert::ToProto(attach::kProtocols);
  hello.set_job_id(job_id);
  hello.set_job_key(PublicJobKey(kSecret));
  hello.set_job_size(size);
  hello.mutable_node()->set_host("host0");
  hello.mutable_node()->set_cores(1);
  hello.mutable_node()->set_memory_bytes(1 << 30);
  hello.mutable_device()->set_kind("cpu");
  hello.mutable_device()->set_name("a CPU");
  return message;
}

// Proves what the rank of `hello` claims by `secret`.
inline cluster::v1::WorkerMessage ProofOf(const cluster::v1::WorkerMessage& hello,
                                          const std::string& nonce,
                                          const std::string& secret = kSecret) {
  cluster::v1::WorkerMessage message;
  message.mutable_proof()->set_signature(
      ProveClaim(secret, {.nonce = nonce,
                          .job_id = hello.hello().job_id(),
                          .rank = hello.hello().rank(),
                          .job_size = hello.hello().job_size()}));
  return message;
}

class HandMadeRank {
 public:
  using Stream =
      grpc::ClientReaderWriter<cluster::v1::WorkerMessage, cluster::v1::CoordinatorMessage>;

  explicit HandMadeRank(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(cluster::v1::Cluster::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    stream_ = stub_->Attach(&context_);
  }
  explicit HandMadeRank(const TestCoordinator& coordinator) : HandMadeRank(coordinator.channel()) {}

  Stream& stream() { return *stream_; }
  void Say(const cluster::v1::WorkerMessage& message) { stream_->Write(message); }
  // The next word, which is to be Welcome. None where the stream ends.
  cluster::v1::Welcome Hear() {
    cluster::v1::CoordinatorMessage message;
    stream_->Read(&message);
    return message.welcome();
  }
  // Says Hello and Proof, as a rank of the job does.
  void Introduce(const cluster::v1::WorkerMessage& hello) {
    Say(hello);
    Say(ProofOf(hello, Hear().nonce()));
  }
  // Returns how the coordinator ends it.
  grpc::Status End() {
    for (cluster::v1::CoordinatorMessage message; stream_->Read(&message);) {
    }
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<cluster::v1::Cluster::Stub> stub_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace skein::coordinator
