// Turns absl::Status into gRPC's: the codes have the same numbers.
#pragma once

#include <grpcpp/support/status.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "base/printable.h"

namespace skein::coordinator {

// The message travels percent-encoded, which may triple it, in a header, and clients take 8 KiB of
// headers: a longer one would cost them the whole status.
inline constexpr size_t kMaxStatusBytes = 2048;

// The message is cut and printable.
inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      PrintableLines(std::string(status.message()), kMaxStatusBytes));
}

}  // namespace skein::coordinator
