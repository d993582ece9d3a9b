// A request that is answered while the test does something else.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "tests/cluster/cluster.h"

namespace skein::testing {

// Long enough to be running still when a fault comes.
inline constexpr int kLong = 900;  // tokens

// As ranks report it.
std::string HostName();

// In the middle of a greedy answer of kLong tokens, on a thread of its own.
class RunningAnswer {
 public:
  // Returns when a few tokens have come.
  explicit RunningAnswer(Cluster& cluster);
  ~RunningAnswer();

  // Waits for the end; the rest is valid from then on.
  void Join() { thread_.join(); }
  const grpc::Status& status() const { return answer_.status; }
  const std::string& error() const { return answer_.error; }  // of the last event
  const std::string& text() const { return answer_.text; }
  absl::Time done() const { return done_; }
  int tokens() const { return tokens_; }  // so far; at any time

 private:
  std::atomic<int> tokens_{0};
  Answer answer_;
  absl::Time done_;
  std::thread thread_;
};

}  // namespace skein::testing
