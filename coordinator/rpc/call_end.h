// Tells when and why calls end before their answers do.
#pragma once

#include <grpcpp/server_context.h>

#include <chrono>

#include "absl/time/time.h"

namespace skein::coordinator {

inline absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return absl::FromChrono(deadline);
}

// Says why gRPC has cancelled a call.
inline grpc::Status WhyCancelled(const grpc::CallbackServerContext& context) {
  if (context.deadline() > std::chrono::system_clock::now()) return grpc::Status::CANCELLED;
  return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "the deadline passed");
}

}  // namespace skein::coordinator
