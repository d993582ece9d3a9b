// Owns the coordinator's port. Connections are accepted here and handed to gRPC, whose own listener
// stops for good once it finds no free file descriptor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/host_port.h"

namespace skein::coordinator {

class Listener {
 public:
  // Gets a connection that was accepted and owns it from then on.
  using OnConnection = std::function<void(int fd)>;

  // Listens on the address, port 0 taking a free one, and takes nobody yet. Unavailable names the
  // address and what the system says.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const HostPort& address);
  ~Listener();  // see Stop

  // Has the port that was taken.
  const HostPort& address() const { return address_; }

  // Accepts on a thread of its own, as long as there are fewer than `max_descriptors` file
  // descriptors in use: beyond that a connection is closed at once, which is logged, so that the
  // others, and what opens a file meanwhile, go on. Call it once.
  void Start(int max_descriptors, OnConnection on_connection);
  // Closes the port and joins the thread. A second call does nothing.
  void Stop();

 private:
  Listener(HostPort address, std::vector<int> sockets, int wake);

  void AcceptLoop();
  // Accepts everybody who waits at one socket.
  void AcceptFrom(int socket);
  void Refuse();

  const HostPort address_;
  std::vector<int> sockets_;
  const int wake_;    // an eventfd that ends the loop
  int reserve_ = -1;  // is given up to accept and refuse when there is no other descriptor
  int max_descriptors_ = 0;
  OnConnection on_connection_;
  int64_t refused_ = 0;  // since the last line in the log
  absl::Time next_line_ = absl::InfinitePast();
  std::thread thread_;
};

// Checks whether the address can be listened on: tries to, without keeping it. Errors are Open's.
absl::Status CheckListenAddress(const HostPort& address);

// Returns how many descriptors a process that is allowed so many may use for connections: a reserve
// stays for files, threads' needs and connections to oneself.
int MaxDescriptors(int64_t limit);

}  // namespace skein::coordinator
