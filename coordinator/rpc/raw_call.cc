#include "coordinator/rpc/raw_call.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>

namespace skein::coordinator {

std::string RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                    const std::string& request) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  const auto next = [&] { return queue.Next(&tag, &ok) && ok; };

  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  if (!next()) return "";
  const grpc::Slice slice(request);
  const grpc::ByteBuffer message(&slice, 1);
  call->WriteLast(message, grpc::WriteOptions(), nullptr);
  if (!next()) return "";
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  const bool answered = next();
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  grpc::Slice bytes;
  if (!answered || !answer.DumpToSingleSlice(&bytes).ok()) return "";
  return std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
}

}  // namespace skein::coordinator
