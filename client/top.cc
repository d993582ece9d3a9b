#include "client/top.h"

#include <grpcpp/client_context.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/flags/flags.h"
#include "base/mutex.h"
#include "client/connection.h"
#include "client/terminal.h"
#include "client/top_screen.h"
#include "proto/cluster.grpc.pb.h"

namespace skein::client {
namespace {

using cluster::v1::ClusterStatus;

constexpr absl::Duration kLeastInterval = absl::Milliseconds(100);
// A coordinator that hangs is told after so long.
constexpr absl::Duration kCallTimeout = absl::Seconds(3);

std::chrono::system_clock::time_point Deadline() {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kCallTimeout);
}

// One call at a time, which nobody waits for. Owned by one thread.
class Asker {
 public:
  struct Answer {
    grpc::Status result;
    ClusterStatus status;
  };

  explicit Asker(const Connection& connection)
      : stub_(cluster::v1::Cluster::NewStub(connection.channel())),
        fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Asker() {
    if (context_ != nullptr) context_->TryCancel();
    {
      MutexLock lock(&mutex_);
      while (context_ != nullptr && !done_) changed_.Wait(&mutex_);
    }
    close(fd_);
  }
  Asker(const Asker&) = delete;

  int fd() const { return fd_; }  // readable once an answer is there
  bool asking() const { return context_ != nullptr; }
  void Ask() {
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_deadline(Deadline());
    answer_ = {};
    {
      MutexLock lock(&mutex_);
      done_ = false;
    }
    stub_->async()->GetStatus(context_.get(), &request_, &answer_.status, [this](auto result) {
      MutexLock lock(&mutex_);
      answer_.result = std::move(result);
      done_ = true;
      const uint64_t one = 1;
      // It cannot be full.
      if (write(fd_, &one, sizeof(one)) < 0) std::perror("skein: eventfd");
      changed_.NotifyAll();
    });
  }
  std::optional<Answer> Take() {
    uint64_t count;
    if (read(fd_, &count, sizeof(count)) < 0) return std::nullopt;
    MutexLock lock(&mutex_);
    context_ = nullptr;
    return std::move(answer_);
  }

 private:
  const std::unique_ptr<cluster::v1::Cluster::Stub> stub_;
  const int fd_;
  const cluster::v1::GetStatusRequest request_;
  std::unique_ptr<grpc::ClientContext> context_;  // of the call under way
  Answer answer_;                                 // the callback's until it is done
  Mutex mutex_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

int PrintOnce(const Connection& connection) {
  const auto stub = cluster::v1::Cluster::NewStub(connection.channel());
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  ClusterStatus status;
  const grpc::Status result = stub->GetStatus(&context, {}, &status);
  if (!result.ok()) {
    absl::FPrintF(stderr, "skein: %s\n", connection.Explain(result));
    return kExitError;
  }
  ScreenOptions options;
  if (isatty(STDOUT_FILENO) == 1) options.columns = SizeOfTerminal().columns;
  for (const std::string& line : Screen(status, "", options)) absl::PrintF("%s\n", line);
  return kExitOk;
}

// What is known of the coordinator, and since when it is lost.
struct View {
  ClusterStatus status;  // the last one; none before the first
  std::string why;       // it did not answer the last time
  absl::Time heard = absl::Now();

  std::vector<std::string> Lines() const {
    const TerminalSize size = SizeOfTerminal();
    std::string lost;
    if (!why.empty()) {
      lost = absl::StrCat(why, " (for ", Span(absl::Now() - heard), "; asking again",
                          status.version().empty() ? ")" : "; what is shown is old)");
    }
    return Screen(status, lost, {.columns = size.columns, .rows = size.rows, .colours = true});
  }
};

int Watch(const Endpoint& coordinator, absl::Duration interval) {
  Terminal terminal;  // before gRPC's threads
  const Connection connection(coordinator);
  Asker asker(connection);
  View view;
  absl::Time next = absl::Now();
  while (true) {
    const absl::Time now = absl::Now();
    if (!asker.asking() && now >= next) {
      asker.Ask();
      next = std::max(next + interval, now);
    }
    const absl::Duration most = asker.asking() ? absl::Hours(1) : next - now;
    const Terminal::Event event = terminal.Wait(asker.fd(), most);
    if (event == Terminal::Event::kQuit) return kExitOk;
    if (event == Terminal::Event::kWoken) {
      std::optional<Asker::Answer> answer = asker.Take();
      if (!answer.has_value()) continue;
      if (answer->result.ok()) {
        view = {.status = std::move(answer->status)};
      } else {
        view.why = connection.Explain(answer->result);
      }
    } else if (event == Terminal::Event::kNone) {
      continue;
    }
    terminal.Show(view.Lines());
  }
}

}  // namespace

void DeclareTop(CLI::App& command, TopFlags& flags) {
  AddDuration(command, "--interval", flags.interval, "Ask so often; 100ms or more", kLeastInterval);
  command.add_flag("--once", flags.once,
                   "Print it once, without colours, as where the output is no terminal");
  command.footer("q or Ctrl-C ends it.");
}

int Top(const Endpoint& coordinator, const TopFlags& flags) {
  if (flags.once || isatty(STDOUT_FILENO) != 1) return PrintOnce(Connection(coordinator));
  return Watch(coordinator, flags.interval);
}

}  // namespace skein::client
