// A worker for tests: one rank stops for good at a call that was chosen, before the call is known
// to heartbeats or inside of it, while its other threads go on; or all ranks take their time, so
// that an answer is sure to be in its middle when something happens to it.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/flags/flags.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/comm/tracked_communicator.h"
#include "parallel/plan/plan.h"
#include "worker/rank.h"

namespace skein::testing {
namespace {

using comm::Operation;

struct Fault {
  std::string group;
  int rank = -1;  // of the job
  bool inside = false;
  // "all-reduce 12", "send 3": collectives by their number, messages of a kind as they are counted.
  std::string call;
};

// Calls `before` on the way into each call of `inner`, with the call's number: collectives count
// together, messages by kind.
class HookedCommunicator final : public comm::Communicator {
 public:
  using Hook = std::function<void(Operation operation, int64_t number)>;

  HookedCommunicator(std::unique_ptr<comm::Communicator> inner, Hook before)
      : inner_(std::move(inner)), before_(std::move(before)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }
  void set_timeout(absl::Duration timeout) override { inner_->set_timeout(timeout); }
  void set_pulse(comm::Pulse* pulse) override { inner_->set_pulse(pulse); }
  int64_t calls() const override { return inner_->calls(); }
  void Abort(absl::Status why) override { inner_->Abort(std::move(why)); }
  absl::Status Progress() override { return inner_->Progress(); }
  absl::Status Flush(int to) override { return inner_->Flush(to); }

  absl::Status AllReduce(absl::Span<float> data, Stream stream) override {
    Reach(Operation::kAllReduce);
    return inner_->AllReduce(data, stream);
  }
  absl::Status AllGather(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                         Stream stream) override {
    Reach(Operation::kAllGather);
    return inner_->AllGather(in, out, stream);
  }
  absl::Status ReduceScatter(absl::Span<const float> in, absl::Span<float> out,
                             Stream stream) override {
    Reach(Operation::kReduceScatter);
    return inner_->ReduceScatter(in, out, stream);
  }
  absl::Status Broadcast(absl::Span<std::byte> data, int root, Stream stream) override {
    Reach(Operation::kBroadcast);
    return inner_->Broadcast(data, root, stream);
  }
  absl::Status Barrier(Stream stream) override {
    Reach(Operation::kBarrier);
    return inner_->Barrier(stream);
  }
  absl::Status Send(absl::Span<const std::byte> data, int to, Stream stream) override {
    Reach(Operation::kSend);
    return inner_->Send(data, to, stream);
  }
  absl::Status Receive(absl::Span<std::byte> data, int from, Stream stream) override {
    Reach(Operation::kReceive);
    return inner_->Receive(data, from, stream);
  }

 private:
  void Reach(Operation operation) {
    before_(operation, IsMessage(operation) ? ++messages_[operation] : inner_->calls() + 1);
  }

  const std::unique_ptr<comm::Communicator> inner_;
  const Hook before_;
  std::map<Operation, int64_t> messages_;
};

HookedCommunicator::Hook StopAt(const std::string& call) {
  return [call](Operation operation, int64_t number) {
    if (absl::StrCat(std::string(OperationName(operation)), " ", number) != call) return;
    spdlog::info("stopped at {}", call);
    while (true) pause();
  };
}

// A step has one or both of these.
HookedCommunicator::Hook SlowSteps(absl::Duration pause) {
  return [pause](Operation operation, int64_t) {
    if (operation == Operation::kAllGather || operation == Operation::kSend) absl::SleepFor(pause);
  };
}

// "GROUP:RANK:before|inside:CALL"
bool Parse(const std::string& text, Fault* fault) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() != 4 || !absl::SimpleAtoi(parts[1], &fault->rank)) return false;
  if (parts[2] != "before" && parts[2] != "inside") return false;
  fault->group = parts[0];
  fault->inside = parts[2] == "inside";
  fault->call = parts[3];
  return true;
}

std::unique_ptr<comm::Communicator> Hooked(std::unique_ptr<comm::Communicator> group,
                                           HookedCommunicator::Hook hook) {
  return std::make_unique<HookedCommunicator>(std::move(group), std::move(hook));
}

std::unique_ptr<comm::Communicator> TrackFaulty(const Fault& fault, int rank,
                                                std::unique_ptr<comm::Communicator> group,
                                                comm::OperationTracker::Group* line) {
  if (rank != fault.rank || group->name() != fault.group) {
    return comm::Track(std::move(group), line);
  }
  if (fault.inside) return comm::Track(Hooked(std::move(group), StopAt(fault.call)), line);
  return Hooked(comm::Track(std::move(group), line), StopAt(fault.call));
}

int Main(int argc, char** argv) {
  CLI::App app("A worker with a fault.");
  worker::RankOptions options;
  std::string text;
  absl::Duration slow;
  AddAddress(app, "--coordinator", options.coordinator, "where the coordinator listens");
  AddDuration(app, "--orphan-timeout", options.orphan_timeout, "as of the worker");
  AddParsed(app, "--layout", options.layout, plan::ParseLayoutRequest, "as of the worker");
  AddDuration(app, "--step-timeout", options.step_timeout, "as of the worker",
              absl::Milliseconds(1));
  app.add_flag("--overlap,!--no-overlap", options.overlap, "as of the worker");
  app.add_option("--fault", text, "GROUP:RANK:before|inside:CALL");
  AddDuration(app, "--slow", slow, "every all-gather and every message waits for so long before");
  CLI11_PARSE(app, argc, argv);
  Fault fault;
  if (!text.empty() && !Parse(text, &fault)) {
    std::fprintf(stderr, "--fault: '%s' is not GROUP:RANK:before|inside:CALL\n", text.c_str());
    return 2;
  }
  auto mpi = comm::MpiRuntime::Create();
  if (!mpi.ok()) {
    std::fprintf(stderr, "faulty_worker: %s\n", mpi.status().ToString().c_str());
    return 1;
  }
  options.track = [&, rank = (*mpi)->rank()](auto group, auto* line) {
    return Hooked(TrackFaulty(fault, rank, std::move(group), line), SlowSteps(slow));
  };
  const absl::Status status = worker::RunRank(options, **mpi);
  if (status.ok()) return 0;
  spdlog::error("{}", status.ToString());
  _exit(1);  // like the worker: finalizing MPI would wait for ranks that are stuck
}

}  // namespace
}  // namespace skein::testing

int main(int argc, char** argv) { return skein::testing::Main(argc, argv); }
