#include "parallel/comm/control/acceptor.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "spdlog/spdlog.h"

namespace skein::comm {
namespace {

constexpr size_t kMostAtOnce = 256;  // handshakes; of more, the oldest one has to go
constexpr int kMostLines = 10;       // of the log; setting up takes seconds

// A connection that has not shown yet whose it is.
struct Guest {
  SecureSocket connection;
  std::string address;
  absl::Time until;
};

class AcceptorImpl final : public Acceptor {
 public:
  AcceptorImpl(Options options, Listener listener)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        kick_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        thread_([this] { Run(); }) {}

  ~AcceptorImpl() override {
    ending_ = true;
    eventfd_write(kick_.get(), 1);
    thread_.join();
    if (refused_ > kMostLines) {
      spdlog::warn("control channel: {} more connections were refused", refused_ - kMostLines);
    }
  }

  int port() const override { return listener_.port; }

  absl::StatusOr<std::map<std::string, SecureSocket>> Take(
      const std::vector<std::string>& identities, absl::Time deadline) override {
    MutexLock lock(&mutex_);
    while (true) {
      const auto absent = std::find_if(identities.begin(), identities.end(),
                                       [&](const auto& name) { return !here_.contains(name); });
      if (absent == identities.end()) return std::exchange(here_, {});
      if (absl::Now() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat(*absent, " has not connected to port ", listener_.port, " in time"));
      }
      changed_.WaitUntil(&mutex_, std::chrono::steady_clock::now() +
                                      absl::ToChronoNanoseconds(deadline - absl::Now()));
    }
  }

 private:
  void Run();
  void Accept();
  // False when the guest is to go: it has become one of those who are here, or was refused.
  bool Serve(Guest& guest, short events);
  bool Refuse(const Guest& guest, const absl::Status& why);

  const Options options_;
  const Listener listener_;
  const OwnedFd kick_;
  std::atomic<bool> ending_ = false;
  std::list<Guest> guests_;  // the thread's, the oldest first
  int refused_ = 0;          // the thread's
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, SecureSocket> here_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // the last to be made
};

void AcceptorImpl::Run() {
  std::vector<pollfd> waited;
  while (!ending_) {
    waited = {{kick_.get(), POLLIN, 0}, {listener_.socket.get(), POLLIN, 0}};
    absl::Time next = absl::InfiniteFuture();
    for (const Guest& guest : guests_) {
      waited.push_back({guest.connection.socket.get(), POLLIN, 0});
      next = std::min(next, guest.until);
    }
    const absl::Duration left =
        std::clamp(next - absl::Now(), absl::ZeroDuration(), absl::Hours(1));
    poll(waited.data(), waited.size(), static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    size_t at = 2;
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      const bool stays = Serve(*guest, waited[at++].revents);
      guest = stays ? std::next(guest) : guests_.erase(guest);
    }
    if (waited[1].revents != 0) Accept();
  }
}

void AcceptorImpl::Accept() {
  sockaddr_storage from = {};
  socklen_t size = sizeof(from);
  OwnedFd socket(accept4(listener_.socket.get(), reinterpret_cast<sockaddr*>(&from), &size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.get() < 0) return;  // it has gone already
  absl::StatusOr<std::unique_ptr<SharedKeyTls>> tls = SharedKeyTls::Server(options_.key);
  if (!tls.ok()) return spdlog::error("control channel: {}", tls.status().ToString());
  if (guests_.size() == kMostAtOnce) {
    Refuse(guests_.front(), absl::ResourceExhaustedError("too many others came after it"));
    guests_.pop_front();
  }
  guests_.push_back({{std::move(socket), *std::move(tls)},
                     AddressText(from, size),
                     absl::Now() + options_.handshake});
}

bool AcceptorImpl::Serve(Guest& guest, short events) {
  SecureSocket& connection = guest.connection;
  if (events != 0) {
    const absl::StatusOr<bool> over = AdvanceHandshake(connection);
    if (!over.ok()) return Refuse(guest, over.status());
    if (*over) {
      const std::string name = connection.tls->identity();
      const auto& known = options_.identities;
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        return Refuse(guest, absl::PermissionDeniedError(
                                 absl::StrCat("nobody waits for '", Printable(name), "'")));
      }
      MutexLock lock(&mutex_);
      if (here_.contains(name)) {
        return Refuse(guest, absl::AlreadyExistsError(name + " is connected already"));
      }
      here_.emplace(name, std::move(connection));
      changed_.NotifyAll();
      return false;
    }
  }
  if (absl::Now() < guest.until) return true;
  return Refuse(guest, absl::DeadlineExceededError("it has not said in time who it is"));
}

bool AcceptorImpl::Refuse(const Guest& guest, const absl::Status& why) {
  if (++refused_ <= kMostLines) {
    spdlog::warn("control channel: a connection from {} is refused: {}", guest.address,
                 std::string(why.message()));
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Start(Options options) {
  SKEIN_ASSIGN_OR_RETURN(Listener listener, Listen(SOMAXCONN, options.ports));
  return std::make_unique<AcceptorImpl>(std::move(options), std::move(listener));
}

}  // namespace skein::comm
