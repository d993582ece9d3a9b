// Calls a method whose messages have no generated types here: one message goes out, one comes back.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>

namespace skein::coordinator {

// `request` and the result are encoded messages. Returns "" when the call fails.
std::string RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                    const std::string& request);

// Returns how the call ends after this message.
grpc::Status RawStatus(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                       const std::string& request);

}  // namespace skein::coordinator
