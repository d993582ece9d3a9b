#include "client/connection.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/version.h"
#include "proto/credentials/credentials.h"

namespace skein::client {
namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const Endpoint& coordinator) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // the coordinator is trusted
  // Who waits for a coordinator notices it soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return grpc::CreateCustomChannel(coordinator.address, ChannelCredentialsOf(coordinator.tls),
                                   arguments);
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

Connection::Connection(Endpoint coordinator)
    : coordinator_(std::move(coordinator)), channel_(MakeChannel(coordinator_)) {}

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
    const std::string what = absl::StrCat("no coordinator answers at ", coordinator_.address, " (",
                                          status.error_message(), ")\n");
    const std::string hint = TlsHint(status.error_message(), coordinator_.tls.has_value());
    if (!hint.empty()) return absl::StrCat(what, "Something listens there: ", hint);
    return absl::StrCat(what,
                        "Start one with: coordinator --model=checkpoints/bard\n"
                        "or name another address with --coordinator HOST:PORT");
  }
  const std::string what =
      absl::StrCat(CodeName(status.error_code()), ": ", status.error_message());
  if (status.error_code() != grpc::StatusCode::UNIMPLEMENTED) return what;
  return absl::StrCat(what, "\nThe coordinator at ", coordinator_.address,
                      " has no such call: it is of another version than this skein, ",
                      std::string(kVersion));
}

}  // namespace skein::client
