// A client's connection, from the handshake of TLS to its end: what the client sends goes through
// ClientFrames to gRPC, at the other end of a pair of sockets, and what gRPC answers goes back.
// What one end does not take is not read from the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/http2_guard/client_frames.h"
#include "coordinator/http2_guard/client_socket.h"
#include "coordinator/http2_guard/open_streams.h"
#include "coordinator/http2_guard/reset_budget.h"
#include "coordinator/http2_guard/server_frames.h"

namespace skein::coordinator {

// What all connections of a guard have in common; used by its thread alone.
struct GuardShared {
  ClientLimits limits;
  absl::Duration opening_time;
  ResetBudget resets;
  bool somebody_waits = false;  // for resets to be paid: whoever comes now stands behind
  int epoll = -1;
  absl::Time now;           // of this round of the guard's loop
  size_t open_streams = 0;  // of all connections
  std::vector<char> input;  // what is being moved
  std::string output;
  // Gives gRPC one end of a pair of sockets, and returns the other; -1 where there is none.
  std::function<int(const std::string& address)> connect;
  // Tells who was refused, or cut off, and why: a reason of few kinds, and the whole line.
  std::function<void(const std::string& reason, const std::string& line)> on_refusal;
};

class GuardedConnection {
 public:
  // Owns the descriptor, and is told of its events by `id`, and of those of the other one by
  // id + 1. `shared` outlives it.
  GuardedConnection(int fd, const TlsContext& tls, uint64_t id, GuardShared* shared);
  ~GuardedConnection();
  GuardedConnection(const GuardedConnection&) = delete;
  GuardedConnection& operator=(const GuardedConnection&) = delete;

  // Events of epoll.
  void OnClient(uint32_t events);
  void OnGrpc(uint32_t events);
  // A reset was paid for.
  void OnPaid();
  // Sends on the updates of windows that it has held back.
  void ReleaseUpdates();
  // Ends it where its time is over.
  void CheckDeadline();
  // Too many streams of all clients are open, and it has the most.
  void EndForItsStreams();

  bool ended() const { return ended_; }
  bool in_handshake() const { return client_.in_handshake(); }
  bool was_handed_over() const { return was_handed_over_; }
  // Has a deadline: it is not handed over yet, or gRPC has closed it.
  bool is_timed() const { return deadline_ != absl::InfiniteFuture(); }
  bool owes() const { return streams_.unpaid_resets() > 0; }
  bool holds_updates() { return !requests_.updates().empty() || !answers_.updates().empty(); }
  size_t open_streams() const { return streams_.size(); }

 private:
  void ReadClient();
  void ReadGrpc(bool to_the_end);
  // Takes bytes of the client on to gRPC.
  void Forward(std::string_view bytes);
  void WriteToGrpc(std::string_view bytes);
  void WriteToClient(std::string_view bytes);
  void CloseGrpc();
  // All that gRPC said is written.
  void SayNoMore();
  // What the client sends when gRPC is gone.
  void ReadOver();
  void CutOff(const Violation& violation);
  void Pay();
  void CountStreams();
  void End() { ended_ = true; }
  // Tells epoll what it waits for.
  void Watch();
  void WatchOne(int fd, uint64_t id, uint32_t events, std::optional<uint32_t>& watched);

  const uint64_t id_;
  GuardShared* const shared_;
  const std::string address_;
  ClientSocket client_;
  OpenStreams streams_;
  ClientFrames requests_;
  ServerFrames answers_{&streams_};
  int grpc_ = -1;
  bool was_handed_over_ = false;
  bool ended_ = false;
  bool client_is_over_ = false;  // nothing more is read from it for gRPC
  bool has_client_ended_ = false;
  size_t counted_streams_ = 0;
  std::string unread_;     // what the client sent behind a reset that is not paid for
  std::string to_grpc_;    // what it did not take yet
  std::string to_client_;  // likewise
  absl::Time deadline_;
  std::optional<uint32_t> client_watched_;
  std::optional<uint32_t> grpc_watched_;
};

}  // namespace skein::coordinator
