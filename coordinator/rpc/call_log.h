// Calls over gRPC, as the log tells of them.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/rpc/peer.h"
#include "coordinator/service/access_log.h"
#include "coordinator/service/call_record.h"
#include "coordinator/service/trace_id.h"

namespace skein::coordinator {

// Of a call that is in several traces, none.
inline std::string TraceOf(const grpc::CallbackServerContext& context) {
  const auto [first, last] = context.client_metadata().equal_range("traceparent");
  if (first == last || std::next(first) != last) return "";
  return std::string(TraceIdOf({first->second.data(), first->second.size()}));
}

inline std::shared_ptr<CallRecord> RecordOf(const grpc::CallbackServerContext& context) {
  const std::string peer = PeerOf(context);  // "ipv4:127.0.0.1:40000"
  absl::string_view client = peer;
  if (!absl::ConsumePrefix(&client, "ipv4:")) absl::ConsumePrefix(&client, "ipv6:");
  return std::make_shared<CallRecord>(
      CallRecord::Caller{.trace_id = TraceOf(context), .client = std::string(client), .key = ""});
}

struct EndOfCall {
  std::string_view route;
  grpc::StatusCode code = grpc::StatusCode::OK;
  bool aborted = false;
  int64_t answer_bytes = 0;
  absl::Time began;
  bool is_routine = false;
};

inline void LogCall(const EndOfCall& end, const CallRecord& record) {
  LogAccess({.protocol = "grpc",
             .method = "POST",
             .route = end.route,
             .status = absl::StatusCodeToString(static_cast<absl::StatusCode>(end.code)),
             .aborted = end.aborted,
             .answer_bytes = end.answer_bytes,
             .total = absl::Now() - end.began,
             .is_routine = end.is_routine},
            record);
}

}  // namespace skein::coordinator
