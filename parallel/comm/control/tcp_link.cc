#include "parallel/comm/control/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::comm {
namespace {

// Of bytes that wait in memory, per link and direction; beyond, the other side has to wait.
constexpr size_t kQueueBytes = 1 << 20;
// How long destruction waits until what was written has left.
constexpr absl::Duration kFlushTimeout = absl::Seconds(1);

// A queue of bytes, taken from the front.
class ByteQueue {
 public:
  size_t size() const { return bytes_.size() - begin_; }
  size_t room() const { return size() < kQueueBytes ? kQueueBytes - size() : 0; }
  std::string_view front() const { return std::string_view(bytes_).substr(begin_); }
  void Push(std::string_view bytes) { bytes_.append(bytes); }
  void Pop(size_t size) {
    begin_ += size;
    if (begin_ < bytes_.size() / 2) return;  // moves each byte once on average
    bytes_.erase(0, begin_);
    begin_ = 0;
  }

 private:
  std::string bytes_;
  size_t begin_ = 0;
};

// Wakes the thread of a set out of poll.
class Kick {
 public:
  Kick() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  int fd() const { return fd_.get(); }
  void Send() { eventfd_write(fd_.get(), 1); }
  void Clear() {
    eventfd_t count;
    eventfd_read(fd_.get(), &count);
  }

 private:
  OwnedFd fd_;
};

class TcpLink final : public Link {
 public:
  TcpLink(TcpLinkSet::Peer peer, Bell& bell, Kick& kick)
      : peer_(std::move(peer)), bell_(bell), kick_(kick) {
    MutexLock lock(&mutex_);
    Open();  // what came with the end of the handshake
  }

  absl::StatusOr<size_t> TryWrite(std::string_view first, std::string_view second) override;
  absl::StatusOr<size_t> TryRead(char* bytes, size_t size) override;
  void Close() override;

  // For the set's thread: what to wait for, and what to do when it came.
  pollfd Awaited();
  void OnEvents(short events);
  bool Flushed();

 private:
  void Fail(std::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Receive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes what has come whole; false where somebody has changed it.
  bool Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendQueued() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TcpLinkSet::Peer peer_;
  Bell& bell_;
  Kick& kick_;
  Mutex mutex_;
  ByteQueue in_ ABSL_GUARDED_BY(mutex_);
  ByteQueue out_ ABSL_GUARDED_BY(mutex_);  // sealed
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more comes
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;   // nothing more is sent
};

void TcpLink::Fail(std::string_view why) {
  if (!failure_.ok()) return;
  failure_ = absl::UnavailableError(absl::StrCat(peer_.name, " is gone: ", std::string(why)));
  ended_ = true;
}

absl::StatusOr<size_t> TcpLink::TryWrite(std::string_view first, std::string_view second) {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return failure_;
  // One record for both, where they are short.
  std::string text(first.substr(0, out_.room()));
  text += second.substr(0, out_.room() - text.size());
  if (text.empty()) return 0;
  if (const absl::Status sealed = peer_.connection.tls->Seal(text); !sealed.ok()) {
    Fail(std::string(sealed.message()));
    return failure_;
  }
  out_.Push(peer_.connection.tls->TakeOutgoing());
  SendQueued();
  if (!failure_.ok()) return failure_;
  if (out_.size() > 0) kick_.Send();  // the thread sends the rest
  return text.size();
}

absl::StatusOr<size_t> TcpLink::TryRead(char* bytes, size_t size) {
  MutexLock lock(&mutex_);
  const bool was_full = in_.room() == 0;
  size = std::min(size, in_.size());
  if (size == 0) {
    if (!failure_.ok()) return failure_;
    return 0;
  }
  std::memcpy(bytes, in_.front().data(), size);
  in_.Pop(size);
  if (was_full && in_.room() > 0) kick_.Send();
  return size;
}

void TcpLink::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  kick_.Send();
}

bool TcpLink::Flushed() {
  MutexLock lock(&mutex_);
  return shut_ || !failure_.ok();
}

pollfd TcpLink::Awaited() {
  MutexLock lock(&mutex_);
  short events = 0;
  if (!ended_ && in_.room() > 0) events |= POLLIN;
  if (failure_.ok() && out_.size() > 0) events |= POLLOUT;
  // No events: a broken connection would be reported again and again.
  return {events == 0 ? -1 : peer_.connection.socket.get(), events, 0};
}

void TcpLink::OnEvents(short events) {
  MutexLock lock(&mutex_);
  if (events != 0 && !ended_) Receive();
  if (failure_.ok() && out_.size() > 0) SendQueued();
  if (closed_ && !shut_ && out_.size() == 0) {
    shut_ = true;
    shutdown(peer_.connection.socket.get(), SHUT_WR);
  }
  if (events != 0) bell_.Ring();
}

void TcpLink::Receive() {
  char bytes[64 << 10];
  while (in_.room() > 0) {
    const ssize_t got =
        recv(peer_.connection.socket.get(), bytes, std::min(sizeof(bytes), in_.room()), 0);
    if (got > 0) {
      peer_.connection.tls->Feed({bytes, static_cast<size_t>(got)});
      if (!Open()) return;
    } else if (got == 0) {
      return Fail("it closed its connection");
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      return Fail(std::strerror(errno));
    }
  }
}

bool TcpLink::Open() {
  std::string text;
  const absl::Status opened = peer_.connection.tls->Open(text);
  in_.Push(text);
  if (!opened.ok()) Fail(std::string(opened.message()));
  return opened.ok();
}

void TcpLink::SendQueued() {
  const std::string_view bytes = out_.front();
  const ssize_t sent =
      send(peer_.connection.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent >= 0) {
    out_.Pop(sent);
  } else if (errno != EAGAIN && errno != EINTR) {
    Fail(std::strerror(errno));
  }
}

class TcpLinkSetImpl final : public TcpLinkSet {
 public:
  TcpLinkSetImpl(std::vector<Peer> peers, Bell& bell) {
    for (Peer& peer : peers) {
      links_.push_back(std::make_unique<TcpLink>(std::move(peer), bell, kick_));
    }
    thread_ = std::thread([this] { Run(); });
  }
  ~TcpLinkSetImpl() override {
    for (auto& link : links_) link->Close();
    ending_ = true;
    kick_.Send();
    thread_.join();
  }
  Link& link(int peer) override { return *links_[peer]; }

 private:
  void Run();

  Kick kick_;
  std::vector<std::unique_ptr<TcpLink>> links_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

void TcpLinkSetImpl::Run() {
  absl::Time end = absl::InfiniteFuture();
  std::vector<pollfd> waited;
  while (true) {
    if (ending_) {
      end = std::min(end, absl::Now() + kFlushTimeout);
      const bool flushed = std::all_of(links_.begin(), links_.end(),
                                       [](const auto& link) { return link->Flushed(); });
      if (flushed || absl::Now() >= end) return;
    }
    waited = {{kick_.fd(), POLLIN, 0}};
    for (auto& link : links_) waited.push_back(link->Awaited());
    poll(waited.data(), waited.size(), ending_ ? 100 : -1);
    kick_.Clear();
    // All of them, since a kick does not tell whose it was.
    for (size_t i = 0; i < links_.size(); ++i) links_[i]->OnEvents(waited[i + 1].revents);
  }
}

absl::Status Set(int fd, int level, int option, int value, std::string_view name) {
  if (setsockopt(fd, level, option, &value, sizeof(value)) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, name);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpLinkSet>> TcpLinkSet::Start(std::vector<Peer> peers, Bell& bell,
                                                              absl::Duration silence) {
  const int silence_ms = static_cast<int>(absl::ToInt64Milliseconds(silence));
  for (const Peer& peer : peers) {
    const int fd = peer.connection.socket.get();
    SKEIN_RETURN_IF_ERROR(Set(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
    // Asks every second; gives up after `silence`, also while bytes are on their way.
    SKEIN_RETURN_IF_ERROR(Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
    SKEIN_RETURN_IF_ERROR(Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1, "TCP_KEEPIDLE"));
    SKEIN_RETURN_IF_ERROR(Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1, "TCP_KEEPINTVL"));
    SKEIN_RETURN_IF_ERROR(Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, silence_ms, "TCP_USER_TIMEOUT"));
  }
  return std::make_unique<TcpLinkSetImpl>(std::move(peers), bell);
}

}  // namespace skein::comm
