// A line for each call of a client, once it is over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "coordinator/service/call_record.h"

namespace skein::coordinator {

// Of the process, as the log is. On by default.
void EnableAccessLog(bool enabled);

struct EndedCall {
  std::string_view protocol;  // "http" or "grpc"
  std::string_view method;    // "POST"
  std::string_view route;     // of few: never what a client has written
  std::string status;         // "200", or gRPC's "OK"
  bool aborted = false;       // the client did not wait for the end
  int64_t answer_bytes = 0;   // of the body
  absl::Duration total;
  bool is_routine = false;  // of programs that ask again and again: for the level debug
};

// Neither prompt nor answer, nor anything else that a client chose but the trace id.
void LogAccess(const EndedCall& call, const CallRecord& record);

}  // namespace skein::coordinator
