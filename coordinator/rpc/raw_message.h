// Takes messages as bytes. Methods whose requests gRPC parses answer unreadable ones with
// UNIMPLEMENTED and no word; those that parse for themselves can say what is wrong.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/rpc/call_log.h"
#include "coordinator/rpc/grpc_status.h"

namespace skein::coordinator {

// InvalidArgument names the message's type.
template <typename Message>
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, Message& message) {
  // Deserialize empties its argument.
  grpc::ByteBuffer copy = bytes;
  if (grpc::SerializationTraits<Message>::Deserialize(&copy, &message).ok()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the message cannot be read as ", Message::descriptor()->full_name()));
}

template <typename Message>
grpc::ByteBuffer SerializeMessage(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own_buffer = false;
  // Fails for messages of 2 GiB, of which there are none.
  (void)grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own_buffer);
  return bytes;
}

struct Route {
  std::string_view name;
  bool is_routine = false;  // programs make such calls again and again
};

// Answers a call of one message each way: `handle(request, response)` fills the answer or says why
// not.
template <typename Request, typename Response, typename Handle>
grpc::ServerUnaryReactor* AnswerUnary(grpc::CallbackServerContext* context, const Route& route,
                                      const grpc::ByteBuffer& request_bytes,
                                      grpc::ByteBuffer* response_bytes, const Handle& handle) {
  const absl::Time began = absl::Now();
  Request request;
  Response response;
  absl::Status status = ParseMessage(request_bytes, request);
  if (status.ok()) status = handle(request, response);
  if (status.ok()) *response_bytes = SerializeMessage(response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const grpc::Status end = ToGrpc(status);
  LogCall({.route = route.name,
           .code = end.error_code(),
           .answer_bytes = static_cast<int64_t>(response_bytes->Length()),
           .began = began,
           .is_routine = route.is_routine},
          *RecordOf(*context));
  reactor->Finish(end);
  return reactor;
}

}  // namespace skein::coordinator
