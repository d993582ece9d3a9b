// Tells a coordinator that nobody will come back for an answer.
#pragma once

#include <grpcpp/client_context.h>

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/inference.grpc.pb.h"

namespace skein::client {

// Where answers are kept, the end of a call does not end them. Waits a second at most; a
// coordinator that does not hear it ends the answer by itself, later.
inline void DiscardAnswer(v1::Inference::Stub& stub, const std::string& request_id) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(1)));
  v1::DiscardRequest request;
  request.set_request_id(request_id);
  v1::DiscardResponse response;
  stub.Discard(&context, request, &response);
}

}  // namespace skein::client
