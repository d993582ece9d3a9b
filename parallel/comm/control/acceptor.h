// Takes the connections of those who know a key, and of nobody else.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/port_range.h"
#include "parallel/comm/control/tcp_socket.h"

namespace skein::comm {

// Listens from its making to its end, on a thread of its own: strangers who say nothing, or
// something else, hold up nobody. It is logged whom it refuses, and why.
class Acceptor {
 public:
  struct Options {
    std::string key;
    std::vector<std::string> identities;  // of those who may come, each once
    absl::Duration handshake = kHandshakeTimeout;
    std::optional<PortRange> ports;  // to listen at; none: any
  };
  static absl::StatusOr<std::unique_ptr<Acceptor>> Start(Options options);
  virtual ~Acceptor() = default;

  virtual int port() const = 0;
  // Waits until all of `identities` have come. DeadlineExceeded names one that has not.
  virtual absl::StatusOr<std::map<std::string, SecureSocket>> Take(
      const std::vector<std::string>& identities, absl::Time deadline) = 0;
};

}  // namespace skein::comm
