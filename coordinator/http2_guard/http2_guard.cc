#include "coordinator/http2_guard/http2_guard.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/steady_time.h"
#include "coordinator/http2_guard/client_socket.h"
#include "coordinator/http2_guard/guarded_connection.h"
#include "coordinator/http2_guard/held_updates.h"
#include "coordinator/http2_guard/peer_name.h"

namespace skein::coordinator {
namespace {

constexpr size_t kMovedAtOnce = 32 << 10;
constexpr int kEventsAtOnce = 64;
constexpr absl::Duration kDeadlinesEach = absl::Seconds(1);
// Resets are paid for in batches.
constexpr absl::Duration kLeastPause = absl::Milliseconds(5);
constexpr absl::Duration kBetweenLines = absl::Seconds(10);
constexpr uint64_t kWakeId = 0;

}  // namespace

class Http2Guard::Impl {
 public:
  explicit Impl(Options options)
      : options_(std::move(options)),
        shared_{.limits = options_.limits,
                .opening_time = options_.opening_time,
                .resets = ResetBudget(options_.resets),
                .input = std::vector<char>(kMovedAtOnce),
                .connect = [this](const std::string& address) { return Connect(address); },
                .on_refusal = options_.on_refusal} {}

  ~Impl() {
    Stop(absl::ZeroDuration());
    for (const int fd : added_) close(fd);
    if (wake_ >= 0) close(wake_);
    if (shared_.epoll >= 0) close(shared_.epoll);
  }

  absl::Status Start() {
    if (options_.tls.has_value()) SKEIN_RETURN_IF_ERROR(UseCertificates(*options_.tls));
    shared_.epoll = epoll_create1(EPOLL_CLOEXEC);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event event = {.events = EPOLLIN, .data = {.u64 = kWakeId}};
    if (shared_.epoll < 0 || wake_ < 0 ||
        epoll_ctl(shared_.epoll, EPOLL_CTL_ADD, wake_, &event) != 0) {
      return ErrnoStatus(errno, "epoll");
    }
    thread_ = std::thread([this] { Loop(); });
    return absl::OkStatus();
  }

  void Add(int fd) {
    MutexLock lock(&mutex_);
    if (!taking_) {
      close(fd);
      return;
    }
    added_.push_back(fd);
    Wake();
  }

  absl::Status UseCertificates(const MutualTls& tls) {
    if (!options_.tls.has_value()) return absl::OkStatus();
    SKEIN_ASSIGN_OR_RETURN(TlsContext context, NewHttp2Context(tls));
    MutexLock lock(&mutex_);
    tls_ = std::move(context);
    return absl::OkStatus();
  }

  void StopTaking() {
    if (!thread_.joinable()) return;
    MutexLock lock(&mutex_);
    taking_ = false;
    Wake();
    while (!has_stopped_taking_) stopped_.Wait(&mutex_);
  }

  void Stop(absl::Duration grace) {
    if (!thread_.joinable()) return;
    {
      MutexLock lock(&mutex_);
      taking_ = false;
      stop_by_ = std::min(stop_by_, SteadyNow() + grace);
      Wake();
    }
    thread_.join();
  }

 private:
  struct Member {
    std::unique_ptr<GuardedConnection> connection;
    bool waits = false;  // is in waiting_
    bool holds = false;  // is in holding_
  };

  struct Due {
    absl::Time due;
    uint64_t id = 0;
  };

  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof(one));
  }

  void Loop() {
    // OpenSSL writes to sockets that the other end has closed.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::array<epoll_event, kEventsAtOnce> events = {};
    shared_.now = SteadyNow();
    while (!TakeCommands()) {
      const int found = epoll_wait(shared_.epoll, events.data(), kEventsAtOnce, TimeoutMs());
      shared_.now = SteadyNow();
      has_shaken_hands_ = false;
      for (int i = 0; i < found; ++i) {
        OnEvent(events[static_cast<size_t>(i)]);
        BoundStreams();
      }
      ReleaseUpdates();
      PayForResets();
      LookAtDeadlines();
    }
    members_.clear();
  }

  // Whether it is over.
  bool TakeCommands() {
    if (!std::exchange(woken_, false) && stop_by_seen_ == absl::InfiniteFuture()) return false;
    std::vector<int> added;
    TlsContext tls;
    bool taking = true;
    absl::Time stop_by;
    {
      MutexLock lock(&mutex_);
      added.swap(added_);
      tls = tls_;
      taking = taking_;
      stop_by = stop_by_;
    }
    for (const int fd : added) Take(fd, tls);
    if (!taking && !has_cleared_) {
      has_cleared_ = true;
      absl::erase_if(members_, [](const auto& member) {
        return !member.second.connection->was_handed_over();
      });
      MutexLock lock(&mutex_);
      has_stopped_taking_ = true;
      stopped_.NotifyAll();
    }
    stop_by_seen_ = stop_by;
    return stop_by != absl::InfiniteFuture() && (members_.empty() || SteadyNow() >= stop_by);
  }

  void Take(int fd, const TlsContext& tls) {
    if (members_.size() >= options_.connections) {
      close(fd);
      options_.on_refusal("connections", absl::StrCat("a connection was refused: there are ",
                                                      options_.connections, " already"));
      return;
    }
    const uint64_t id = next_id_ += 2;
    members_[id].connection = std::make_unique<GuardedConnection>(fd, tls, id, &shared_);
    OnMember(id, [](const GuardedConnection& /*connection*/) {});
  }

  int TimeoutMs() const {
    absl::Time until = stop_by_seen_;
    if (has_timed_) until = std::min(until, next_deadlines_);
    if (!holding_.empty()) until = std::min(until, holding_.front().due);
    if (!waiting_.empty()) {
      until =
          std::min(until, std::max(shared_.resets.next(shared_.now), shared_.now + kLeastPause));
    }
    if (until == absl::InfiniteFuture()) return -1;
    const int64_t left = absl::ToInt64Milliseconds(until - shared_.now);
    return static_cast<int>(std::clamp<int64_t>(left + 1, 0, 1000));
  }

  void OnEvent(const epoll_event& event) {
    if (event.data.u64 == kWakeId) {
      uint64_t count = 0;
      (void)!read(wake_, &count, sizeof(count));
      woken_ = true;
      return;
    }
    const bool of_grpc = event.data.u64 % 2 == 1;
    OnMember(event.data.u64 - (of_grpc ? 1 : 0), [&](GuardedConnection& connection) {
      if (of_grpc) return connection.OnGrpc(event.events);
      // A step takes up to milliseconds: the others have their turn in between.
      if (connection.in_handshake() && std::exchange(has_shaken_hands_, true)) return;
      connection.OnClient(event.events);
    });
  }

  // Does something with a connection, if it is still there.
  template <typename Do>
  void OnMember(uint64_t id, const Do& what) {
    const auto found = members_.find(id);
    if (found == members_.end()) return;
    GuardedConnection& connection = *found->second.connection;
    what(connection);
    if (connection.ended()) {
      members_.erase(found);
      return;
    }
    if (connection.owes() && !std::exchange(found->second.waits, true)) {
      waiting_.push_back(id);
      shared_.somebody_waits = true;
    }
    if (connection.holds_updates() && !std::exchange(found->second.holds, true)) {
      holding_.push_back({shared_.now + HeldUpdates::kLongest, id});
    }
    has_timed_ = has_timed_ || connection.is_timed();
  }

  void ReleaseUpdates() {
    while (!holding_.empty() && holding_.front().due <= shared_.now) {
      const uint64_t id = holding_.front().id;
      holding_.pop_front();
      const auto found = members_.find(id);
      if (found == members_.end()) continue;
      found->second.holds = false;
      OnMember(id, [](GuardedConnection& connection) { connection.ReleaseUpdates(); });
    }
  }

  // In turn, so that who resets one stream does not wait for who resets thousands.
  void PayForResets() {
    while (!waiting_.empty() && shared_.resets.Pay(shared_.now)) {
      const uint64_t id = waiting_.front();
      waiting_.pop_front();
      const auto found = members_.find(id);
      if (found == members_.end()) continue;
      found->second.waits = false;
      shared_.somebody_waits = !waiting_.empty();
      OnMember(id, [](GuardedConnection& connection) { connection.OnPaid(); });
    }
    shared_.somebody_waits = !waiting_.empty();
    if (waiting_.empty() || shared_.now < next_line_) return;
    next_line_ = shared_.now + kBetweenLines;
    options_.on_refusal("resets", absl::StrCat("clients reset or leave streams faster than ",
                                               options_.resets.per_second, " a second: they wait (",
                                               waiting_.size(), ")"));
  }

  void BoundStreams() {
    while (shared_.open_streams > options_.open_streams) {
      const auto most = std::max_element(
          members_.begin(), members_.end(), [](const auto& one, const auto& other) {
            return one.second.connection->open_streams() < other.second.connection->open_streams();
          });
      OnMember(most->first, [](GuardedConnection& connection) { connection.EndForItsStreams(); });
    }
  }

  void LookAtDeadlines() {
    if (shared_.now < next_deadlines_) return;
    next_deadlines_ = shared_.now + kDeadlinesEach;
    std::vector<uint64_t> timed;
    for (const auto& [id, member] : members_) {
      if (member.connection->is_timed()) timed.push_back(id);
    }
    has_timed_ = false;
    for (const uint64_t id : timed) {
      OnMember(id, [](GuardedConnection& connection) { connection.CheckDeadline(); });
    }
  }

  int Connect(const std::string& address) {
    std::array<int, 2> ends = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0 ||
        std::max(ends[0], ends[1]) >= options_.max_descriptors) {
      for (const int end : ends) {
        if (end >= 0) close(end);
      }
      options_.on_refusal("descriptors",
                          absl::StrCat("a connection was refused: ", options_.max_descriptors,
                                       " file descriptors are in use; close idle connections, or "
                                       "raise the limit (ulimit -n) and start again"));
      return -1;
    }
    NameSocket(ends[0], address);
    options_.on_connection(ends[1]);
    return ends[0];
  }

  const Options options_;
  int wake_ = -1;

  Mutex mutex_;
  CondVar stopped_;
  std::vector<int> added_ ABSL_GUARDED_BY(mutex_);
  TlsContext tls_ ABSL_GUARDED_BY(mutex_);
  bool taking_ ABSL_GUARDED_BY(mutex_) = true;
  bool has_stopped_taking_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time stop_by_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();

  // These are the thread's.
  GuardShared shared_;
  absl::flat_hash_map<uint64_t, Member> members_;
  uint64_t next_id_ = kWakeId;
  std::deque<Due> holding_;       // they hold updates of windows, the first one the longest
  std::deque<uint64_t> waiting_;  // they wait for a reset to be paid, in their order
  bool has_timed_ = false;        // some connection may have a deadline
  absl::Time next_deadlines_ = absl::InfinitePast();
  absl::Time next_line_ = absl::InfinitePast();
  absl::Time stop_by_seen_ = absl::InfiniteFuture();
  bool woken_ = true;              // there may be commands
  bool has_shaken_hands_ = false;  // in this round
  bool has_cleared_ = false;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<Http2Guard>> Http2Guard::Start(Options options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  SKEIN_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Http2Guard>(new Http2Guard(std::move(impl)));
}

Http2Guard::Http2Guard(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Http2Guard::~Http2Guard() = default;

void Http2Guard::Add(int fd) { impl_->Add(fd); }
absl::Status Http2Guard::UseCertificates(const MutualTls& tls) {
  return impl_->UseCertificates(tls);
}
void Http2Guard::StopTaking() { impl_->StopTaking(); }
void Http2Guard::Stop(absl::Duration grace) { impl_->Stop(grace); }

}  // namespace skein::coordinator
