#include "client/chat.h"

#include <grpcpp/client_context.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/flags/flags.h"
#include "base/mutex.h"
#include "client/connection.h"
#include "client/discard.h"
#include "client/interrupt.h"
#include "client/sampling_flags.h"
#include "proto/inference.grpc.pb.h"

namespace skein::client {
namespace {

constexpr char kHelp[] =
    "/clear forgets the conversation, /quit or Ctrl-D ends, Ctrl-C ends an answer.\n";

// What Ctrl-C ends: the answer that streams, or else the wait for a line. Thread-safe.
class Interruption {
 public:
  Interruption() : fd_(eventfd(0, EFD_CLOEXEC)) {}
  ~Interruption() { close(fd_); }
  Interruption(const Interruption&) = delete;

  void Come() {
    MutexLock lock(&mutex_);
    if (call_ == nullptr) {
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
    } else {
      call_->TryCancel();
      cancelled_ = true;
    }
  }
  // Null: no answer streams. Whether the one before was cancelled.
  bool SetCall(grpc::ClientContext* call) {
    MutexLock lock(&mutex_);
    call_ = call;
    return std::exchange(cancelled_, false);
  }
  int fd() const { return fd_; }  // readable once it came between answers

 private:
  const int fd_;
  Mutex mutex_;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

// Standard input, by lines.
class Lines {
 public:
  explicit Lines(int interrupted) : interrupted_(interrupted) {}

  // None at the end, or when it is interrupted.
  std::optional<std::string> Next() {
    size_t end = 0;
    while ((end = buffer_.find('\n')) == std::string::npos) {
      pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                      {.fd = interrupted_, .events = POLLIN}};
      if (poll(fds, std::size(fds), -1) < 0) continue;
      if (fds[1].revents != 0) return std::nullopt;
      char bytes[4096];
      const ssize_t count = read(STDIN_FILENO, bytes, sizeof(bytes));
      if (count <= 0)
        return buffer_.empty() ? std::nullopt : std::optional(std::exchange(buffer_, ""));
      buffer_.append(bytes, static_cast<size_t>(count));
    }
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return line;
  }

 private:
  const int interrupted_;
  std::string buffer_;
};

class Conversation {
 public:
  Conversation(const Endpoint& coordinator, const ChatFlags& flags, Interruption* interruption)
      : flags_(flags),
        connection_(coordinator),
        stub_(v1::Inference::NewStub(connection_.channel())),
        interruption_(interruption) {
    Clear();
  }

  void Clear() {
    request_ = flags_.request;
    v1::Chat& chat = *request_.mutable_chat();
    if (flags_.system.has_value()) Add(chat, "system", *flags_.system);
  }

  // False: it failed; the message is forgotten.
  bool Answer(const std::string& message) {
    v1::Chat& chat = *request_.mutable_chat();
    Add(chat, "user", message);
    std::string text;
    bool cancelled = false;
    const grpc::Status status = Stream(text, cancelled);
    if (text.empty() || text.back() != '\n') std::fputs("\n", stdout);
    std::fflush(stdout);
    if (cancelled) {
      std::fputs("(interrupted)\n", stderr);
    } else if (!status.ok()) {
      absl::FPrintF(stderr, "skein: %s\n", connection_.Explain(status));
    }
    const bool answered = status.ok() || (cancelled && !text.empty());
    if (answered) {
      Add(chat, "assistant", text);
    } else {
      chat.mutable_messages()->RemoveLast();
    }
    return answered || cancelled;
  }

 private:
  static void Add(v1::Chat& chat, const char* role, const std::string& content) {
    v1::ChatMessage& message = *chat.add_messages();
    message.set_role(role);
    message.set_content(content);
  }

  grpc::Status Stream(std::string& text, bool& cancelled) {
    grpc::ClientContext context;
    interruption_->SetCall(&context);
    const auto stream = stub_->Generate(&context, request_);
    v1::Accepted accepted;
    v1::GenerateEvent event;
    while (stream->Read(&event)) {
      if (event.has_accepted()) accepted = event.accepted();
      const std::string& piece = event.tokens().text();
      text += piece;
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    }
    const grpc::Status status = stream->Finish();
    cancelled = interruption_->SetCall(nullptr);  // before the context goes
    if (cancelled && accepted.resume_window_seconds() > 0) {
      DiscardAnswer(*stub_, accepted.request_id());
    }
    return status;
  }

  const ChatFlags& flags_;
  const Connection connection_;
  const std::unique_ptr<v1::Inference::Stub> stub_;
  Interruption* const interruption_;
  v1::GenerateRequest request_;
};

}  // namespace

void DeclareChat(CLI::App& command, ChatFlags& flags) {
  v1::GenerateRequest& request = flags.request;
  command.add_option("--system", flags.system, "What the system says before the conversation");
  DeclareModelAndLength(command, request);
  v1::Sampling& sampling = *request.mutable_sampling();
  command
      .add_option_function<float>(
          "--temperature,-t", [&](float value) { sampling.set_temperature(value); },
          "0 takes the most likely token; default: the model's")
      ->check(InRange<float>());
  command
      .add_option_function<int32_t>(
          "--top-k", [&](int32_t value) { sampling.set_top_k(value); },
          "Draw from so many most likely tokens; 0: from all")
      ->check(InRange<int32_t>());
  command
      .add_option_function<float>(
          "--top-p", [&](float value) { sampling.set_top_p(value); },
          "Draw from the most likely tokens that have this probability together")
      ->check(InRange<float>());
  command
      .add_option_function<uint64_t>(
          "--seed", [&](uint64_t value) { sampling.set_seed(value); },
          "Of each answer's draws; default: random")
      ->check(InRange<uint64_t>());
  command.footer(absl::StrCat("A line is a message. ", kHelp));
}

int Chat(const Endpoint& coordinator, const ChatFlags& flags) {
  const bool terminal = isatty(STDIN_FILENO) == 1;
  Interruption interruption;
  const InterruptGuard guard([&interruption] { interruption.Come(); });  // before gRPC's threads
  Conversation conversation(coordinator, flags, &interruption);
  Lines lines(interruption.fd());
  if (terminal) std::fputs(kHelp, stderr);
  bool failed = false;
  while (true) {
    if (terminal) std::fputs("> ", stderr);
    const std::optional<std::string> line = lines.Next();
    if (!line.has_value() || *line == "/quit") break;
    if (line->empty()) continue;
    if (*line == "/clear") {
      conversation.Clear();
    } else if (line->front() == '/') {
      absl::FPrintF(stderr, "%s", kHelp);
    } else if (!conversation.Answer(*line)) {
      failed = true;
      if (!terminal) break;
    }
  }
  if (terminal) std::fputs("\n", stderr);
  return failed && !terminal ? kExitError : kExitOk;
}

}  // namespace skein::client
