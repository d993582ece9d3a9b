#include "supervisor/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/processes.h"
#include "base/steady_time.h"
#include "spdlog/spdlog.h"
#include "supervisor/commands.h"
#include "supervisor/connect_probe.h"
#include "supervisor/mailbox.h"
#include "supervisor/program.h"
#include "supervisor/watch.h"

namespace skein::supervisor {
namespace {

// A job that the coordinator has named is gone 6 s later at the latest: 1 s to hear of it, then
// this. mpirun takes 1 to 2 s to end a job by itself, or when it is asked.
constexpr Keeper::Pace kLost = {
    .grace = absl::Seconds(3), .patience = absl::Seconds(2), .lost = true};
// A drained job finalizes MPI, and says by its status that all went well.
constexpr Keeper::Pace kEnded = {.grace = absl::Seconds(6), .patience = absl::Seconds(2)};
constexpr Keeper::Pace kAsked = {.patience = absl::Seconds(10)};
constexpr Keeper::Pace kHurried = {.patience = absl::Seconds(2)};
constexpr Keeper::Pace kAtOnce = {};
constexpr Keeper::Pace kDrain = {.patience =
                                     absl::InfiniteDuration()};  // --drain-timeout bounds it
// After the coordinator's drain: the jobs know.
constexpr Keeper::Pace kDrained = {.grace = absl::Seconds(10), .patience = absl::Seconds(2)};

constexpr absl::Duration kAsk = absl::Seconds(1);
constexpr absl::Duration kAskBeforeService = absl::Milliseconds(250);  // its beginning counts
// For the coordinator to say what became of a job whose mpirun has ended with 0.
constexpr absl::Duration kLastWord = absl::Seconds(2);
constexpr absl::Duration kSilence = absl::Seconds(10);  // a coordinator misses no second otherwise
// Launchers like timeout(1) signal a process and then its group: so close together it is one
// signal.
constexpr absl::Duration kSameSignal = absl::Milliseconds(50);
constexpr absl::Duration kSweepPatience = absl::Seconds(5);

template <size_t kBytes>
std::string RandomHex() {
  std::array<char, kBytes> bytes;
  // Up to 256 bytes come whole, once the kernel has gathered randomness after its start.
  while (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
  }
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

JobKey NewKey() { return {.id = RandomHex<8>(), .secret = RandomHex<32>()}; }

// From the threads that ask.
struct Answer {
  enum class Kind { kJob, kCoordinator, kConnection };
  Kind kind;
  std::string id;  // of the job
  JobInfo info;
  absl::Time asked_at;
  bool connected = false;
};

struct Job {
  Job(Program::Options program, Scratch* scratch, LineWriter* output, absl::Time now)
      : program(std::move(program), scratch, output, now) {}

  JobKey key;  // of this start
  std::optional<JobWatch> watch;
  absl::Time ask_at = absl::InfiniteFuture();
  std::optional<absl::Time> ended_at;  // with 0; whether that was a drain is open
  Program program;
};

class Supervisor {
 public:
  Supervisor(const Options& options, JobInfoSource* source, Scratch* scratch, LineWriter* output);
  ~Supervisor();
  int Run();

 private:
  void AddCoordinator();
  void AddJob(int number);
  std::vector<Program*> Programs();

  void Ask();
  void TakeAnswers();
  void JudgeJob(Job& job, const JobInfo& info);
  void AwaitLastWord(Job& job);
  void TakeLastWord(Job& job, JobInfo::State word);
  void JudgeEnds();
  void SettleEnd(Job& job, bool drained);
  void JudgeCoordinator(std::optional<SilenceWatch>& watch, bool answered, const char* what);

  void TakeSignals();
  void ReapAll();
  void OnSignal(int signal);
  void EndAll(const Keeper::Pace& pace);
  void RequireStart();
  bool CoordinatorHasDrained() const;
  void FollowTheCoordinator();

  absl::Time NextTime();
  void Sleep();
  void Sweep();
  int Status();

  const Options options_;
  const std::string id_ = RandomHex<8>();
  JobInfoSource* const source_;
  Scratch* const scratch_;
  LineWriter* const output_;
  int signals_ = -1;
  std::set<pid_t> strangers_;  // children that were there before, and theirs: the guard, too
  // Outlives whoever posts to it.
  const std::shared_ptr<Mailbox<Answer>> answers_ = std::make_shared<Mailbox<Answer>>();
  absl::Time now_ = SteadyNow();

  std::unique_ptr<Program> coordinator_;
  std::unique_ptr<ConnectProbe> probe_;
  std::optional<SilenceWatch> calls_, connections_;
  absl::Time ask_coordinator_at_ = absl::InfiniteFuture();
  std::vector<std::unique_ptr<Job>> jobs_;

  std::optional<int> signalled_;
  absl::Time signalled_at_;
  bool misused_ = false;
  bool served_ = false;         // any job, ever
  bool never_started_ = false;  // see Options::require_start
  bool followed_ = false;       // the coordinator is over, and the jobs know
};

Supervisor::Supervisor(const Options& options, JobInfoSource* source, Scratch* scratch,
                       LineWriter* output)
    : options_(options), source_(source), scratch_(scratch), output_(output) {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&taken, signal);
  signals_ = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  for (const pid_t pid : FindStarted(getpid(), "")) {
    if (pid != getpid()) strangers_.insert(pid);
  }
  if (!options_.model.empty()) AddCoordinator();
  for (int number = 1; number <= options_.jobs; ++number) AddJob(number);
}

Supervisor::~Supervisor() { close(signals_); }

void Supervisor::AddCoordinator() {
  const auto command = [this](const std::string& folder) {
    calls_.emplace(kSilence, options_.start_timeout, now_);
    connections_.emplace(kSilence, options_.start_timeout, now_);
    ask_coordinator_at_ = now_;
    return CoordinatorCommand(options_, folder);
  };
  coordinator_ = std::make_unique<Program>(
      Program::Options{.name = "coordinator", .restart = options_.restart, .command = command},
      scratch_, output_, now_);
  if (const auto address = ParseHostPort(options_.coordinator); address.ok()) {
    probe_ = std::make_unique<ConnectProbe>(
        *address, kAsk, [answers = answers_](const absl::Status& status) {
          answers->Post({.kind = Answer::Kind::kConnection, .connected = status.ok()});
        });
  }
}

void Supervisor::AddJob(int number) {
  const auto command = [this, number](const std::string& folder) {
    Job& job = *jobs_[number - 1];
    job.key = NewKey();
    job.watch.emplace(options_.start_timeout);
    job.ask_at = now_;
    job.ended_at.reset();
    return JobCommand(options_, job.key, absl::StrCat(id_, ".", number), folder);
  };
  jobs_.push_back(std::make_unique<Job>(
      Program::Options{
          .name = absl::StrCat("job ", number), .restart = options_.restart, .command = command},
      scratch_, output_, now_));
}

std::vector<Program*> Supervisor::Programs() {
  std::vector<Program*> programs;
  if (coordinator_ != nullptr) programs.push_back(coordinator_.get());
  for (const auto& job : jobs_) programs.push_back(&job->program);
  return programs;
}

// --- The coordinator's answers ---

void Supervisor::Ask() {
  for (const auto& job : jobs_) {
    if (!job->program.running() || now_ < job->ask_at) continue;
    const bool steady = job->watch->serving() && !job->ended_at;
    job->ask_at = now_ + (steady ? kAsk : kAskBeforeService);
    source_->Query(job->key, kAsk,
                   [answers = answers_, id = job->key.id, asked_at = now_](JobInfo info) {
                     answers->Post({.kind = Answer::Kind::kJob,
                                    .id = id,
                                    .info = std::move(info),
                                    .asked_at = asked_at});
                   });
  }
  if (coordinator_ == nullptr || !coordinator_->running() || now_ < ask_coordinator_at_) return;
  ask_coordinator_at_ = now_ + kAsk;
  // Any answer will do.
  source_->Query(NewKey(), kAsk, [answers = answers_](JobInfo info) {
    answers->Post({.kind = Answer::Kind::kCoordinator, .info = std::move(info)});
  });
}

void Supervisor::TakeAnswers() {
  for (const Answer& answer : answers_->TakeAll()) {
    switch (answer.kind) {
      case Answer::Kind::kJob:
        for (const auto& job : jobs_) {
          if (job->key.id != answer.id || !job->program.running()) continue;
          JudgeJob(*job, answer.info);
          if (job->ended_at && answer.asked_at >= *job->ended_at) {
            TakeLastWord(*job, answer.info.state);
          }
        }
        break;
      case Answer::Kind::kCoordinator:
        JudgeCoordinator(calls_,
                         answer.info.state != JobInfo::State::kNoAnswer &&
                             answer.info.state != JobInfo::State::kGone,
                         "answered");
        break;
      case Answer::Kind::kConnection:
        JudgeCoordinator(connections_, answer.connected, "taken a connection");
        break;
    }
  }
}

void Supervisor::JudgeJob(Job& job, const JobInfo& info) {
  const bool served = job.watch->serving();
  const std::optional<std::string> why = job.watch->Observe(info, now_);
  if (job.watch->serving()) job.program.Serves(now_);
  served_ = served_ || job.watch->serving();
  if (job.watch->serving() && !served) {
    spdlog::info("{} serves, as job {} of the coordinator", job.program.name(), job.key.id);
  }
  if (!why) return;
  if (info.state == JobInfo::State::kEnded) {
    spdlog::info("{}: {}", job.program.name(), *why);
    return job.program.End(kEnded, now_);
  }
  spdlog::warn("{} is to end, by force in {}: {}", job.program.name(),
               absl::FormatDuration(kLost.grace), *why);
  job.program.End(kLost, now_);
}

void Supervisor::AwaitLastWord(Job& job) {
  job.ended_at = job.ask_at = now_;
  job.program.HoldEnd(absl::InfiniteFuture());
}

void Supervisor::TakeLastWord(Job& job, JobInfo::State word) {
  // An own coordinator's end is seen by itself.
  if (coordinator_ != nullptr && word == JobInfo::State::kGone) return;
  if (const std::optional<bool> drained = job.watch->Drained(word)) SettleEnd(job, *drained);
}

// Where the coordinator has said nothing, and where nothing needs to be said.
void Supervisor::JudgeEnds() {
  for (const auto& job : jobs_) {
    if (!job->ended_at) continue;
    if (CoordinatorHasDrained() || job->program.keeper().stopped()) {
      SettleEnd(*job, true);
    } else if (now_ - *job->ended_at >= kLastWord) {
      SettleEnd(*job, false);
    }
  }
}

void Supervisor::SettleEnd(Job& job, bool drained) {
  if (!drained) {
    spdlog::warn("{} ended with status 0, but was not drained, as far as the coordinator says",
                 job.program.name());
    job.program.End(kLost, now_);
  }
  job.program.HoldEnd(absl::InfinitePast());
  job.ended_at.reset();
}

void Supervisor::JudgeCoordinator(std::optional<SilenceWatch>& watch, bool answered,
                                  const char* what) {
  if (!coordinator_->running() || !watch) return;
  if (answered && &watch == &calls_) {
    coordinator_->Serves(now_);
    connections_->Started(now_);
  }
  const std::optional<absl::Duration> silence = watch->Observe(answered, now_);
  if (!silence) return;
  spdlog::error("the coordinator runs, but has not {} for {}: it is killed", what,
                absl::FormatDuration(absl::Trunc(*silence, absl::Milliseconds(100))));
  // One that was asked, and wakes up, would drain.
  coordinator_->End(kAtOnce, now_);
}

// --- Signals and ends ---

void Supervisor::TakeSignals() {
  signalfd_siginfo info{};
  while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) OnSignal(static_cast<int>(info.ssi_signo));
  }
}

void Supervisor::ReapAll() {
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const ExitStatus end = ExitStatus::FromWait(status);
    strangers_.erase(pid);
    if (pid == scratch_->guard()) {
      spdlog::error("the guard is gone: what runs would outlive a SIGKILL of this process");
    }
    if (coordinator_ != nullptr && coordinator_->TakeEnd(pid, end)) continue;
    for (const auto& job : jobs_) {
      if (!job->program.TakeEnd(pid, end)) continue;
      if (end.Drained()) AwaitLastWord(*job);
      break;
    }
  }
}

void Supervisor::OnSignal(int signal) {
  if (!signalled_) {
    signalled_ = signal;
    signalled_at_ = now_;
    if (coordinator_ == nullptr || !coordinator_->running()) return EndAll(kAsked);
    spdlog::info("draining; a second signal ends all at once");
    for (Program* const program : Programs()) program->Stop();
    coordinator_->End(kDrain, now_);
  } else if (signal != *signalled_ || now_ - signalled_at_ > kSameSignal) {
    signalled_ = signal;
    EndAll(kHurried);
  }
}

void Supervisor::EndAll(const Keeper::Pace& pace) {
  for (Program* const program : Programs()) {
    program->Stop();
    program->End(pace, now_);
  }
}

void Supervisor::RequireStart() {
  if (!options_.require_start || served_ || never_started_ || signalled_) return;
  for (Program* const program : Programs()) {
    const auto& end = program->keeper().last_end();
    if (!end || end->Drained()) continue;
    spdlog::error("{} has failed before any job served: all ends", program->name());
    never_started_ = true;
    return EndAll(kAsked);
  }
}

// Also when it was asked to.
bool Supervisor::CoordinatorHasDrained() const {
  if (coordinator_ == nullptr || !coordinator_->over()) return false;
  const auto& end = coordinator_->keeper().last_end();
  return end && end->Drained();
}

// Jobs that no drain has reached are ended; the others know by themselves.
void Supervisor::FollowTheCoordinator() {
  if (followed_ || coordinator_ == nullptr || !coordinator_->over()) return;
  followed_ = true;
  EndAll(CoordinatorHasDrained() ? kDrained : kAsked);
}

// --- The loop ---

absl::Time Supervisor::NextTime() {
  absl::Time next = absl::InfiniteFuture();
  for (Program* const program : Programs()) next = std::min(next, program->NextTime());
  for (const auto& job : jobs_) {
    if (job->program.running()) next = std::min(next, job->ask_at);
    if (job->ended_at) next = std::min(next, *job->ended_at + kLastWord);
  }
  if (coordinator_ != nullptr && coordinator_->running())
    next = std::min(next, ask_coordinator_at_);
  return next;
}

void Supervisor::Sleep() {
  std::vector<pollfd> fds = {{.fd = signals_, .events = POLLIN},
                             {.fd = answers_->fd(), .events = POLLIN}};
  const std::vector<Program*> programs = Programs();
  for (const Program* const program : programs) {
    fds.push_back({.fd = program->output(), .events = POLLIN});  // -1 is passed over
  }
  const absl::Duration wait = absl::Ceil(NextTime() - now_, absl::Milliseconds(1));
  const int64_t wait_ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(wait), 0, 1'000'000);
  poll(fds.data(), fds.size(), static_cast<int>(wait_ms));
  now_ = SteadyNow();
  for (size_t i = 0; i < programs.size(); ++i) {
    if (fds[i + 2].revents != 0) programs[i]->PassOn();
  }
}

int Supervisor::Run() {
  while (true) {
    JudgeEnds();
    for (Program* const program : Programs()) program->Advance(now_);
    for (Program* const program : Programs()) {
      if (misused_ || !program->keeper().misused()) continue;
      misused_ = true;
      EndAll(kAsked);
    }
    RequireStart();
    FollowTheCoordinator();
    const std::vector<Program*> programs = Programs();
    if (std::all_of(programs.begin(), programs.end(), [](Program* one) { return one->over(); })) {
      break;
    }
    Ask();
    Sleep();
    TakeSignals();
    ReapAll();
    TakeAnswers();
  }
  Sweep();
  return Status();
}

// Whatever still descends from this process, but for the guard and for what did when it began: a
// shell that becomes this program leaves it the reader of its output.
void Supervisor::Sweep() {
  const absl::Time deadline = SteadyNow() + kSweepPatience;
  while (SteadyNow() < deadline) {
    bool left = false;
    // One look for both: what a stranger starts meanwhile is not to be taken for ours.
    for (const pid_t pid : FindStarted(getpid(), "", strangers_)) {
      if (pid == getpid()) continue;
      left = true;
      kill(pid, SIGKILL);
    }
    if (!left) return;
    poll(nullptr, 0, 5);
    ReapAll();
  }
}

int Supervisor::Status() {
  if (misused_) return 2;
  if (signalled_) return 128 + *signalled_;
  for (const auto& job : jobs_) {
    if (!job->program.keeper().drained()) return 1;
  }
  return 0;
}

}  // namespace

int Supervise(const Options& options, JobInfoSource* jobs, Scratch* scratch, LineWriter* output) {
  return Supervisor(options, jobs, scratch, output).Run();
}

}  // namespace skein::supervisor
