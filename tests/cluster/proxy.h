// A network that can fail in one direction.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace skein::testing {

// Passes bytes on between whoever connects to it and a server, both ways, until it is told to hold
// those of the server back; nobody hears of that.
class Proxy {
 public:
  explicit Proxy(const std::string& server);  // HOST:PORT, IPv4
  ~Proxy();                                   // breaks the connections

  const std::string& address() const { return address_; }
  // From the server, from now on.
  void HoldBack() { held_ = true; }

 private:
  void Accept();
  // One direction of a connection, until it ends.
  void Pump(int from, int to, bool can_be_held);

  const std::string server_;
  std::string address_;
  int listener_ = -1;
  std::atomic<bool> held_ = false;
  std::atomic<bool> ended_ = false;
  Mutex mutex_;
  std::vector<int> sockets_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> pumps_ ABSL_GUARDED_BY(mutex_);
  std::thread accept_;
};

}  // namespace skein::testing
