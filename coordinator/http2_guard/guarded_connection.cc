#include "coordinator/http2_guard/guarded_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/http2_guard/peer_name.h"

namespace skein::coordinator {
namespace {

// For a client to read the last of its answers.
constexpr absl::Duration kClosingTime = absl::Seconds(5);
// Then for the client to close, too: what it still sends would otherwise be answered by a reset of
// the connection, and the client's system throw away what was not read.
constexpr absl::Duration kLingeringTime = absl::Seconds(1);
// Then others have their turn: the system tells again of what is left. OpenSSL keeps nothing, since
// a record is shorter than what is read at once.
constexpr int kReadsAtOnce = 8;

// Of a client that goes: as many as it has of them where each further one waits. Those cannot keep
// others waiting, whoever comes and goes again and again.
constexpr size_t kFreeStreams = 2;

std::string Goaway(uint32_t last_stream, Http2Error code) {
  std::string frame;
  AppendFrameHeader({.length = 8, .kind = FrameKind::kGoaway}, frame);
  AppendNumber(last_stream, frame);
  AppendNumber(static_cast<uint32_t>(code), frame);
  return frame;
}

// Behind the family, for people.
std::string_view Plain(const std::string& address) {
  return std::string_view(address).substr(address.find(':') + 1);
}

}  // namespace

GuardedConnection::GuardedConnection(int fd, const TlsContext& tls, uint64_t id,
                                     GuardShared* shared)
    : id_(id),
      shared_(shared),
      address_(AddressOfPeer(fd)),
      client_(fd, tls),
      requests_(shared->limits, &streams_),
      deadline_(shared->now + shared->opening_time) {
  Watch();
}

GuardedConnection::~GuardedConnection() {
  shared_->open_streams -= counted_streams_;
  if (streams_.size() > kFreeStreams) {
    shared_->resets.Owe(streams_.size() - kFreeStreams, shared_->now);
  }
  if (grpc_ >= 0) close(grpc_);
}

void GuardedConnection::OnClient(uint32_t events) {
  if (client_.in_handshake()) {
    const Moved::Then then = client_.Handshake();
    if (then == Moved::Then::kBroken) {
      if (const std::string& reason = client_.refusal(); !reason.empty()) {
        shared_->on_refusal(
            reason, absl::StrCat("a connection was refused, its TLS failed: ", reason, " (from ",
                                 std::string(Plain(address_)), ")"));
      }
      return End();
    }
    if (then == Moved::Then::kWait) return Watch();
  }
  if ((events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0) return End();
  if (!to_client_.empty()) {
    WriteToClient({});
    if (to_client_.empty() && grpc_ >= 0) ReadGrpc(/*to_the_end=*/false);
  }
  if (was_handed_over_ && grpc_ < 0) {
    if ((events & EPOLLIN) != 0) ReadOver();
  } else if ((events & EPOLLIN) != 0 || client_.read_waits_to_write()) {
    ReadClient();
  }
  Watch();
}

void GuardedConnection::OnGrpc(uint32_t events) {
  if (grpc_ < 0) return;
  const bool waited = !to_grpc_.empty();
  if (waited && (events & EPOLLOUT) != 0) WriteToGrpc({});
  // It has closed its end: what it said before is all that comes, and nobody waits for more room.
  ReadGrpc(/*to_the_end=*/(events & (EPOLLERR | EPOLLHUP)) != 0);
  if (waited) ReadClient();
  Watch();
}

void GuardedConnection::OnPaid() {
  streams_.PayForReset();
  ReadClient();
  Watch();
}

void GuardedConnection::ReleaseUpdates() {
  std::string& output = shared_->output;
  output.clear();
  requests_.updates().Release(output);
  if (!output.empty() && grpc_ >= 0) WriteToGrpc(output);
  output.clear();
  answers_.updates().Release(output);
  if (!output.empty() && grpc_ >= 0) WriteToClient(output);  // else the last was said
  Watch();
}

void GuardedConnection::CheckDeadline() {
  if (shared_->now >= deadline_) End();
}

void GuardedConnection::EndForItsStreams() {
  CutOff({Http2Error::kEnhanceYourCalm, "has the most streams, while all have too many"});
}

void GuardedConnection::ReadClient() {
  for (int reads = 0; reads < kReadsAtOnce; ++reads) {
    if (ended_ || client_is_over_ || owes() || !to_grpc_.empty()) return;
    if (!unread_.empty()) {
      const std::string unread = std::exchange(unread_, {});
      Forward(unread);
      continue;
    }
    std::vector<char>& input = shared_->input;
    const Moved read = client_.Read(input.data(), input.size());
    if (read.then == Moved::Then::kBroken) return End();
    if (read.then == Moved::Then::kEnd) {
      client_is_over_ = has_client_ended_ = true;
      if (grpc_ < 0) return End();
      shutdown(grpc_, SHUT_WR);
      return;
    }
    if (read.bytes == 0) return;
    Forward({input.data(), read.bytes});
    if (read.then == Moved::Then::kWait) return;
  }
}

void GuardedConnection::Forward(std::string_view bytes) {
  std::string& output = shared_->output;
  output.clear();
  while (true) {
    streams_.ChargeForBegun(shared_->resets.InDebt(shared_->now));
    const ClientFrames::Taken taken = requests_.Take(bytes, shared_->now, output);
    bytes.remove_prefix(taken.bytes);
    if (taken.violation) return CutOff(taken.violation);
    if (!owes()) break;
    Pay();
    if (!owes()) continue;
    unread_ = bytes;
    break;
  }
  CountStreams();
  if (!output.empty()) WriteToGrpc(output);
  if (grpc_ < 0) return;
  if (!requests_.in_header_block()) {
    deadline_ = absl::InfiniteFuture();
  } else if (!is_timed()) {
    deadline_ = shared_->now + shared_->opening_time;
  }
}

void GuardedConnection::Pay() {
  while (owes() && !shared_->somebody_waits && shared_->resets.Pay(shared_->now)) {
    streams_.PayForReset();
  }
}

void GuardedConnection::CountStreams() {
  shared_->open_streams += streams_.size() - counted_streams_;
  counted_streams_ = streams_.size();
}

void GuardedConnection::WriteToGrpc(std::string_view bytes) {
  if (!was_handed_over_) {
    was_handed_over_ = true;
    deadline_ = absl::InfiniteFuture();
    grpc_ = shared_->connect(address_);
  }
  if (grpc_ < 0) return End();
  const std::string before = std::exchange(to_grpc_, {});
  for (const std::string_view part : {std::string_view(before), bytes}) {
    const Moved written = to_grpc_.empty() ? WriteTo(grpc_, part) : Moved{};
    if (written.then == Moved::Then::kBroken) {
      // gRPC may still have said why: that is read when the system tells that it is gone.
      client_is_over_ = true;
      to_grpc_.clear();
      return;
    }
    to_grpc_.append(part.substr(written.bytes));
  }
}

void GuardedConnection::WriteToClient(std::string_view bytes) {
  if (was_handed_over_ && grpc_ < 0) deadline_ = shared_->now + kClosingTime;
  if (!to_client_.empty()) {
    const Moved written = client_.Write(to_client_);
    if (written.then == Moved::Then::kBroken) return End();
    to_client_.erase(0, written.bytes);
  }
  if (!bytes.empty()) {
    const Moved written = to_client_.empty() ? client_.Write(bytes) : Moved{};
    if (written.then == Moved::Then::kBroken) return End();
    to_client_.append(bytes.substr(written.bytes));
  }
  if (!to_client_.empty()) return;
  if (to_client_.capacity() > shared_->input.size()) to_client_.shrink_to_fit();
  if (was_handed_over_ && grpc_ < 0) SayNoMore();
}

void GuardedConnection::SayNoMore() {
  if (has_client_ended_) return End();
  client_.SayNoMore();
  deadline_ = shared_->now + kLingeringTime;
}

void GuardedConnection::ReadOver() {
  for (int reads = 0; reads < kReadsAtOnce; ++reads) {
    const Moved read = ReadFrom(client_.fd(), shared_->input.data(), shared_->input.size());
    if (read.then == Moved::Then::kEnd || read.then == Moved::Then::kBroken) return End();
    if (read.then == Moved::Then::kWait) return;
  }
}

void GuardedConnection::ReadGrpc(bool to_the_end) {
  for (int reads = 0; to_the_end || reads < kReadsAtOnce; ++reads) {
    if (ended_ || grpc_ < 0 || (!to_the_end && !to_client_.empty())) break;
    std::vector<char>& input = shared_->input;
    const Moved read = ReadFrom(grpc_, input.data(), input.size());
    if (read.bytes > 0) {
      const std::string_view bytes(input.data(), read.bytes);
      std::string& output = shared_->output;
      output.clear();
      answers_.Take(bytes, output);
      if (!output.empty()) WriteToClient(output);
    }
    if (read.then == Moved::Then::kEnd || read.then == Moved::Then::kBroken) CloseGrpc();
    if (read.then == Moved::Then::kWait && !to_the_end) break;
    if (read.then == Moved::Then::kWait && read.bytes == 0) break;
  }
  CountStreams();
}

void GuardedConnection::CloseGrpc() {
  close(std::exchange(grpc_, -1));
  grpc_watched_.reset();
  client_is_over_ = true;
  deadline_ = shared_->now + kClosingTime;
  if (to_client_.empty()) SayNoMore();
}

void GuardedConnection::CutOff(const Violation& violation) {
  const std::string why(violation.why);
  shared_->on_refusal(why, absl::StrCat("a client was cut off: it ", why, " (from ",
                                        std::string(Plain(address_)), ")"));
  if (to_client_.empty() && answers_.between_frames() && !client_.in_handshake()) {
    std::string last;
    // A server's first frame is SETTINGS.
    if (!was_handed_over_) AppendFrameHeader({.kind = FrameKind::kSettings}, last);
    client_.Write(last + Goaway(streams_.last(), violation.code));
  }
  End();
}

void GuardedConnection::Watch() {
  if (ended_) return;
  uint32_t events = 0;
  if (client_.in_handshake()) {
    events = client_.wants_to_write() ? EPOLLOUT : EPOLLIN;
  } else {
    const bool is_read = !client_is_over_ && !owes() && to_grpc_.empty();
    const bool waits_to_write = client_.read_waits_to_write();
    // What a client sent that does not wait for its turn is worth nothing to it.
    if (owes()) events |= EPOLLRDHUP;
    const bool is_read_over = was_handed_over_ && grpc_ < 0;
    if ((is_read && !waits_to_write) || is_read_over) events |= EPOLLIN;
    if (!to_client_.empty() || (is_read && waits_to_write)) events |= EPOLLOUT;
  }
  WatchOne(client_.fd(), id_, events, client_watched_);
  if (grpc_ < 0) return;
  events = to_client_.empty() ? EPOLLIN : 0;
  if (!to_grpc_.empty()) events |= EPOLLOUT;
  WatchOne(grpc_, id_ + 1, events, grpc_watched_);
}

void GuardedConnection::WatchOne(int fd, uint64_t id, uint32_t events,
                                 std::optional<uint32_t>& watched) {
  if (watched == events) return;
  epoll_event event = {.events = events, .data = {.u64 = id}};
  const int operation = watched.has_value() ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(shared_->epoll, operation, fd, &event) != 0) return End();
  watched = events;
}

}  // namespace skein::coordinator
