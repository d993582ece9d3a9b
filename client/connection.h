// The way to a coordinator.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "client/endpoint.h"

namespace skein::client {

// "UNAVAILABLE"
std::string CodeName(grpc::StatusCode code);

class Connection {
 public:
  explicit Connection(Endpoint coordinator);

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // As far as calls and waits have found out.
  bool answers() const;
  // Sleeps before somebody asks again: so long, or until the first answer of a coordinator that had
  // none yet. gRPC looks at a connection that it makes only once in 5 s while nobody waits for it.
  void Pause(absl::Duration most) const;
  // What failed, for a person: when nobody listens, how to start a coordinator; when TLS is what
  // the two ends may not agree on, that.
  std::string Explain(const grpc::Status& status) const;

 private:
  const Endpoint coordinator_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace skein::client
