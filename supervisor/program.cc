#include "supervisor/program.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_util.h"
#include "spdlog/spdlog.h"

namespace skein::supervisor {
namespace {

// At a time, so that one that says much does not keep the others waiting.
constexpr int kReadsAtATime = 16;

constexpr absl::Duration kLook = absl::Milliseconds(10);
// Killed processes are gone in milliseconds; one that a dead disk holds is not waited for, unless
// it leads the others.
constexpr absl::Duration kGiveUp = absl::Seconds(5);

std::string Seconds(absl::Duration duration) {
  return fmt::format("{:.3f} s", absl::ToDoubleSeconds(duration));
}

}  // namespace

Program::Program(Options options, Scratch* scratch, LineWriter* output, absl::Time now)
    : options_(std::move(options)),
      scratch_(scratch),
      output_(output),
      keeper_(options_.restart, now),
      lines_([this](std::string_view line) {
        // A line of JSON names its program itself, and stays one.
        const bool json = line.starts_with("{\"");
        output_->Write(json ? std::string(line)
                            : absl::StrCat(options_.name, ": ", std::string(line)));
      }) {}

void Program::Advance(absl::Time now) {
  if (child_ != nullptr && child_->end() && now >= look_at_) {
    if (!give_up_at_) give_up_at_ = now + kGiveUp;
    const bool left = child_->AnythingLeft();
    if (left && now < *give_up_at_) {
      child_->Kill();
      look_at_ = now + kLook;
    } else {
      if (left) spdlog::error("{}: killed processes of it are still there", name());
      Ended(*child_->end(), now);
    }
  }
  if (child_ != nullptr && child_->end()) return;  // it has ended by itself
  for (Keeper::Step step; (step = keeper_.Next(now)) != Keeper::Step::kNone;) {
    switch (step) {
      case Keeper::Step::kStart:
        // One that cannot start may be due again at once: the others come first.
        return Start(now);
      case Keeper::Step::kTerminate:
        spdlog::info("{} is asked to end", name());
        if (child_ != nullptr) child_->Terminate();
        break;
      case Keeper::Step::kKill:
        spdlog::warn("{} is killed", name());
        if (child_ != nullptr) child_->Kill();
        break;
      case Keeper::Step::kNone:
        break;
    }
  }
}

absl::Time Program::NextTime() const {
  if (child_ != nullptr && child_->end()) return look_at_;
  return keeper_.NextTime();
}

void Program::Start(absl::Time now) {
  spdlog::info("{} starts", name());
  absl::StatusOr<std::string> folder = scratch_->MakeFolder();
  absl::Status status = folder.status();
  if (status.ok()) {
    folder_ = *folder;
    Child::Options command = options_.command(folder_);
    // No folder's path with a slash begins another one's.
    command.mark = folder_ + "/";
    absl::StatusOr<std::unique_ptr<Child>> child = Child::Start(command);
    status = child.status();
    if (child.ok()) {
      child_ = *std::move(child);
      readable_ = true;
      return;
    }
  }
  spdlog::error("{} cannot start: {}", name(), std::string(status.message()));
  Ended({.code = 127}, now);  // as a shell has it
}

void Program::PassOn() {
  std::array<char, 16384> bytes;
  for (int i = 0; readable_ && i < kReadsAtATime; ++i) {
    const ssize_t count = read(child_->output(), bytes.data(), bytes.size());
    if (count > 0) {
      lines_.Add({bytes.data(), static_cast<size_t>(count)});
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
      readable_ = false;
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

bool Program::TakeEnd(pid_t pid, const ExitStatus& end) {
  if (child_ == nullptr || child_->pid() != pid || child_->end()) return false;
  child_->Reaped(end);
  look_at_ = absl::InfinitePast();
  give_up_at_.reset();
  return true;
}

void Program::Ended(ExitStatus end, absl::Time now) {
  if (child_ != nullptr) {
    PassOn();  // its last words
    lines_.Finish();
    child_.reset();
    readable_ = false;
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  const Keeper::Aftermath after = keeper_.Ended(end, now);
  if (!after.wait) {
    spdlog::info("{} {}", name(), end.ToString());
    return;
  }
  const std::string how =
      end.signal == 0 ? absl::StrCat("died with status ", end.code) : end.ToString();
  spdlog::warn("{} {} after {} of service; starts again in {}", name(), how, Seconds(after.served),
               Seconds(*after.wait));
}

}  // namespace skein::supervisor
