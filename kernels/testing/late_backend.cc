#include "kernels/testing/late_backend.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/stream.h"
#include "base/view.h"

namespace skein::kernels {
namespace {

class LateExecutable final : public Executable {
 public:
  // `meets` is called in WarmUp; may be null.
  LateExecutable(std::unique_ptr<Executable> inner, LateOptions options, Collectives* meets)
      : inner_(std::move(inner)),
        options_(std::move(options)),
        meets_(meets),
        thread_([this] { Work(); }) {}
  ~LateExecutable() override {
    Abort(absl::CancelledError("the executable is gone"));
    thread_.join();
  }

  absl::Status WarmUp() override {
    SKEIN_RETURN_IF_ERROR(inner_->WarmUp());
    if (meets_ != nullptr) {
      float one = 1;
      SKEIN_RETURN_IF_ERROR(meets_->AllReduce(View{&one, DType::kF32, 1, 1}, kHostStream));
    }
    return options_.on_warm_up ? options_.on_warm_up() : absl::OkStatus();
  }
  Batch& batch(int i) override { return inner_->batch(i); }
  Stream port_stream(BufferId id) const override { return inner_->port_stream(id); }
  View port(BufferId id, int i) override { return inner_->port(id, i); }
  const BatchResult& result(int i) const override { return inner_->result(i); }
  void After(int i, Stream stream) override { inner_->After(i, stream); }

  absl::StatusOr<Ticket> Enqueue(int i) override {
    if (options_.on_enqueue) options_.on_enqueue();
    MutexLock lock(&mutex_);
    SKEIN_RETURN_IF_ERROR(failed_);
    Push({.batch = i, .ticket = ++tickets_});
    return tickets_;
  }

  absl::StatusOr<bool> Wait(Ticket ticket, Stream, absl::Time deadline) override {
    MutexLock lock(&mutex_);
    if (deadline == absl::InfiniteFuture() && ticket > waited_for_) {
      waited_for_ = ticket;
      changed_.NotifyAll();
    }
    while (failed_.ok() && done_ < ticket) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitUntil(&mutex_, std::chrono::steady_clock::now() +
                                      absl::ToChronoNanoseconds(std::min(left, absl::Seconds(1))));
    }
    if (done_ >= ticket) return true;
    return failed_;
  }

  void SetTokens(absl::Span<const int32_t> slots, absl::Span<const int32_t> tokens) override {
    MutexLock lock(&mutex_);
    Push({.slots = {slots.begin(), slots.end()}, .tokens = {tokens.begin(), tokens.end()}});
  }

  void SetMask(int i, int32_t slot, absl::Span<const uint32_t> bits) override {
    inner_->SetMask(i, slot, bits);
  }

  void Abort(const absl::Status& why) override {
    inner_->Abort(why);
    MutexLock lock(&mutex_);
    Fail(why);
  }
  absl::Status Health() const override {
    MutexLock lock(&mutex_);
    return failed_;
  }

 private:
  // A batch, or tokens to set.
  struct Job {
    int batch = -1;
    Ticket ticket = 0;
    std::vector<int32_t> slots, tokens;
    std::chrono::steady_clock::time_point enqueued;
  };

  void Push(Job job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    job.enqueued = std::chrono::steady_clock::now();
    jobs_.push_back(std::move(job));
    changed_.NotifyAll();
  }
  void Fail(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (failed_.ok()) failed_ = why;
    changed_.NotifyAll();
  }

  // Takes the oldest job, late; false after a failure.
  bool Take(Job& job) {
    MutexLock lock(&mutex_);
    while (failed_.ok() && jobs_.empty()) changed_.Wait(&mutex_);
    if (!failed_.ok()) return false;
    job = std::move(jobs_.front());
    jobs_.pop_front();
    const auto begin = job.enqueued + absl::ToChronoNanoseconds(options_.delay);
    while (failed_.ok() && job.ticket > waited_for_) {
      if (!changed_.WaitUntil(&mutex_, begin)) break;
    }
    return failed_.ok();
  }

  void Work() {
    Job job;
    while (Take(job)) {
      if (job.batch < 0) {
        inner_->SetTokens(job.slots, job.tokens);
        continue;
      }
      if (options_.before_batch) options_.before_batch(inner_->batch(job.batch));
      absl::Status status;
      if (options_.fault) status = options_.fault(inner_->batch(job.batch));
      if (status.ok()) status = inner_->Enqueue(job.batch).status();
      MutexLock lock(&mutex_);
      if (!status.ok()) return Fail(status);
      done_ = job.ticket;
      changed_.NotifyAll();
    }
  }

  const std::unique_ptr<Executable> inner_;
  const LateOptions options_;
  Collectives* const meets_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  Ticket tickets_ ABSL_GUARDED_BY(mutex_) = 0;
  Ticket done_ ABSL_GUARDED_BY(mutex_) = 0;
  Ticket waited_for_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // the last one: it uses the others
};

class LateBackend final : public Backend {
 public:
  LateBackend(std::unique_ptr<Backend> inner, LateOptions options)
      : inner_(std::move(inner)), options_(std::move(options)) {}

  std::string_view name() const override { return "late"; }
  absl::StatusOr<std::unique_ptr<Weights>> AllocateWeights(const Program& program) override {
    return inner_->AllocateWeights(program);
  }
  absl::StatusOr<std::unique_ptr<KvCache>> AllocateKv(const KvSpec& spec) override {
    return inner_->AllocateKv(spec);
  }
  absl::StatusOr<std::unique_ptr<KvCache>> AllocateSwap(const KvSpec& spec) override {
    return inner_->AllocateSwap(spec);
  }
  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Program& program, const Limits& limits,
                                                      const Bindings& bindings) override {
    SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<Executable> inner,
                           inner_->Compile(program, limits, bindings));
    const bool sums = absl::c_any_of(
        program.ops, [](const Op& op) { return std::holds_alternative<AllReduceOp>(op); });
    return std::make_unique<LateExecutable>(std::move(inner), options_,
                                            sums ? bindings.collectives : nullptr);
  }

 private:
  const std::unique_ptr<Backend> inner_;
  const LateOptions options_;
};

}  // namespace

std::unique_ptr<Executable> MakeLateExecutable(std::unique_ptr<Executable> inner,
                                               LateOptions options) {
  return std::make_unique<LateExecutable>(std::move(inner), std::move(options), nullptr);
}

std::unique_ptr<Backend> MakeLateBackend(std::unique_ptr<Backend> inner, LateOptions options) {
  return std::make_unique<LateBackend>(std::move(inner), std::move(options));
}

}  // namespace skein::kernels
