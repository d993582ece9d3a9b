#include "client/connection.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace skein::client {
namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& coordinator) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // the coordinator is trusted
  // Who waits for a coordinator notices it soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return grpc::CreateCustomChannel(coordinator, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

std::string CodeName(grpc::StatusCode code) {
  constexpr std::array<const char*, 17> kNames = {"OK",
                                                  "CANCELLED",
                                                  "UNKNOWN",
                                                  "INVALID_ARGUMENT",
                                                  "DEADLINE_EXCEEDED",
                                                  "NOT_FOUND",
                                                  "ALREADY_EXISTS",
                                                  "PERMISSION_DENIED",
                                                  "RESOURCE_EXHAUSTED",
                                                  "FAILED_PRECONDITION",
                                                  "ABORTED",
                                                  "OUT_OF_RANGE",
                                                  "UNIMPLEMENTED",
                                                  "INTERNAL",
                                                  "UNAVAILABLE",
                                                  "DATA_LOSS",
                                                  "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < kNames.size() ? kNames[index] : absl::StrCat("code ", index);
}

Connection::Connection(const std::string& coordinator)
    : coordinator_(coordinator), channel_(MakeChannel(coordinator)) {}

bool Connection::answers() const {
  return channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
}

void Connection::Pause(absl::Duration most) const {
  if (answers()) return absl::SleepFor(most);
  constexpr absl::Duration kLeast = absl::Milliseconds(20);  // of who answers, and then breaks off
  if (channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + most))) absl::SleepFor(kLeast);
}

std::string Connection::Explain(const grpc::Status& status) const {
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && !answers()) {
    return absl::StrCat("no coordinator answers at ", coordinator_, " (", status.error_message(),
                        ")\nStart one with: coordinator --model=checkpoints/bard\n"
                        "or name another address with --coordinator HOST:PORT");
  }
  return absl::StrCat(CodeName(status.error_code()), ": ", status.error_message());
}

}  // namespace skein::client
