// Stands between clients and gRPC 1.51, which some frames of HTTP/2 make take all memory or all
// time (CVE-2023-33953, CVE-2023-44487). Owns the clients' connections: speaks TLS, where there are
// certificates, reads their frames (ClientFrames) and gives them to gRPC over a pair of sockets for
// each connection. Whoever exceeds a limit is cut off, which is told, or waits (ResetBudget).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/tls/mutual_tls.h"
#include "coordinator/http2_guard/client_frames.h"
#include "coordinator/http2_guard/reset_budget.h"

namespace skein::coordinator {

class Http2Guard {
 public:
  struct Options {
    ClientLimits limits;  // of each connection
    ResetBudget::Options resets;
    size_t connections = 4096;   // more are closed
    size_t open_streams = 4096;  // of all connections; beyond it the one that has the most ends
    absl::Duration opening_time = absl::Seconds(10);  // for TLS, and HTTP/2's first frame, to come
    int max_descriptors = 1024;                       // numbers of descriptors are below it
    std::optional<MutualTls> tls;                     // none: plain
    // Gets a connection that speaks HTTP/2, plain, and owns it. The name of its other end tells who
    // the client is (AddressIn).
    std::function<void(int fd)> on_connection;
    // Tells who was refused or cut off, and why: a reason of few kinds, and a line with the
    // address.
    std::function<void(const std::string& reason, const std::string& line)> on_refusal;
  };

  // Starts its thread, which calls both functions. InvalidArgument: the certificates are broken.
  static absl::StatusOr<std::unique_ptr<Http2Guard>> Start(Options options);
  ~Http2Guard();  // Stop(0)

  // A connection that was accepted, and does not block. Owns it. Any thread.
  void Add(int fd);
  // For connections to come; those that are there stay. After an error all is as before; without
  // TLS it does nothing. Any thread.
  absl::Status UseCertificates(const MutualTls& tls);
  // From its return on nobody is handed over; who was goes on.
  void StopTaking();
  // Waits for at most `grace` until all have ended, and have read the last of their answers.
  void Stop(absl::Duration grace);

 private:
  class Impl;
  explicit Http2Guard(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace skein::coordinator
