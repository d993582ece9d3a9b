#include "coordinator/rpc/raw_call.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <optional>

namespace skein::coordinator {

namespace {

struct Outcome {
  std::optional<grpc::ByteBuffer> answer;
  grpc::Status status = grpc::Status(grpc::StatusCode::UNKNOWN, "the call did not begin");
};

Outcome Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
             const std::string& request) {
  Outcome outcome;
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  const auto next = [&] { return queue.Next(&tag, &ok) && ok; };

  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  if (!next()) return outcome;
  const grpc::Slice slice(request);
  const grpc::ByteBuffer message(&slice, 1);
  call->WriteLast(message, grpc::WriteOptions(), nullptr);
  if (next()) {
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    if (next()) outcome.answer = answer;
  }
  call->Finish(&outcome.status, nullptr);
  next();
  return outcome;
}

}  // namespace

std::string RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                    const std::string& request) {
  const Outcome outcome = Call(channel, method, request);
  grpc::Slice bytes;
  if (!outcome.answer.has_value() || !outcome.answer->DumpToSingleSlice(&bytes).ok()) return "";
  return std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
}

grpc::Status RawStatus(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                       const std::string& request) {
  return Call(channel, method, request).status;
}

}  // namespace skein::coordinator
