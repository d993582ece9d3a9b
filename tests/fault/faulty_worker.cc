// A worker for tests: one rank stops for good at a call that was chosen, before the call is known
// to heartbeats or inside of it, while its other threads go on; or all ranks take their time, so
// that an answer is sure to be in its middle when something happens to it; or all compute out of
// step with the host, on a back end that must be warm, or that fails as a device does.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/flags/flags.h"
#include "base/flags/parse_device_kind.h"
#include "base/log/log.h"
#include "kernels/ops/backend.h"
#include "kernels/testing/late_backend.h"
#include "parallel/comm/call.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/plan/plan.h"
#include "worker/device.h"
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

using Hook = comm::Communicator::Hook;

bool IsFlush(const comm::Call& call) { return call.bytes < 0; }

Hook StopAt(const std::string& at) {
  return [at, messages = std::map<Operation, int64_t>()](const comm::Call& call) mutable {
    if (IsFlush(call)) return;
    const int64_t number = IsMessage(call.operation) ? ++messages[call.operation] : call.number;
    if (absl::StrCat(std::string(OperationName(call.operation)), " ", number) != at) return;
    spdlog::info("stopped at {}", at);
    while (true) pause();
  };
}

// A step has one or both of these. Between exchanges: for others the rank computes.
Hook SlowSteps(absl::Duration pause) {
  return [pause](const comm::Call& call) {
    const bool slow = call.operation == Operation::kAllGather || call.operation == Operation::kSend;
    if (slow && !IsFlush(call)) absl::SleepFor(pause);
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

// `slow` is of all ranks, or of `slow_rank` alone.
void AddHooks(comm::Communicator& group, int rank, const Fault& fault, absl::Duration slow,
              std::optional<int> slow_rank) {
  Hook before = SlowSteps(rank == slow_rank.value_or(rank) ? slow : absl::ZeroDuration());
  Hook inside;
  if (rank == fault.rank && group.name() == fault.group) {
    if (fault.inside) {
      inside = StopAt(fault.call);
    } else {
      before = [slowly = before, stop = StopAt(fault.call)](const comm::Call& call) mutable {
        slowly(call);
        stop(call);
      };
    }
  }
  group.set_hooks(std::move(before), std::move(inside));
}

// What a GPU does to the back end of one rank.
struct DeviceFault {
  int rank = -1;
  int64_t step = 0;  // from this one on; kWarmUp: before the first
  std::string says;
};
constexpr int64_t kWarmUp = -1;

// "RANK:STEP:TEXT"
bool Parse(const std::string& text, DeviceFault* fault) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 2));
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &fault->rank)) return false;
  fault->says = parts[2];
  return absl::SimpleAtoi(parts[1], &fault->step);
}

// Computes late. Where there is a `gate`, it is not warm before that file is there.
std::unique_ptr<kernels::Backend> Late(std::unique_ptr<kernels::Backend> inner,
                                       const std::string& gate, const DeviceFault& fault) {
  kernels::LateOptions late;
  if (!gate.empty()) {
    late.on_warm_up = [gate] {
      spdlog::info("warming up");
      while (!std::filesystem::exists(gate)) absl::SleepFor(absl::Milliseconds(10));
      return absl::OkStatus();
    };
  }
  if (!fault.says.empty() && fault.step == kWarmUp) {
    late.on_warm_up = [fault] { return absl::InternalError(fault.says); };
  } else if (!fault.says.empty()) {
    late.fault = [fault](const kernels::Batch& batch) -> absl::Status {
      if (batch.step < fault.step) return absl::OkStatus();
      return absl::InternalError(absl::StrCat("step ", batch.step, ": ", fault.says));
    };
  }
  return kernels::MakeLateBackend(std::move(inner), late);
}

int Main(int argc, char** argv) {
  CLI::App app("A worker with a fault.");
  worker::RankOptions options;
  std::string text;
  absl::Duration slow;
  AddAddress(app, "--coordinator", options.coordinator, "where the coordinator listens");
  AddDuration(app, "--orphan-timeout", options.orphan_timeout, "as of the worker");
  AddParsed(app, "--device", options.device, ParseDeviceKind, "as of the worker");
  app.add_flag("--oversubscribe-devices", options.oversubscribe_devices, "as of the worker");
  app.add_option("--model", options.model, "as of the worker");
  AddParsed(app, "--layout", options.layout, plan::ParseLayoutRequest, "as of the worker");
  AddParsed(app, "--decode", options.decode, worker::ParseDecodeForm, "as of the worker");
  AddDuration(app, "--step-timeout", options.step_timeout, "as of the worker",
              absl::Milliseconds(1));
  app.add_flag("--overlap,!--no-overlap", options.overlap, "as of the worker");
  app.add_option("--fault", text, "GROUP:RANK:before|inside:CALL");
  AddDuration(app, "--slow", slow, "every all-gather and every message waits for so long before");
  std::optional<int> slow_rank;
  app.add_option("--slow-rank", slow_rank, "--slow is of this rank alone");
  std::string gate;
  app.add_option("--warm-up", gate, "late; warming up ends once this file is there");
  AddDuration(app, "--warm-up-timeout", options.warm_up_timeout, "instead of the worker's");
  std::string fails;
  app.add_option("--device-fault", fails,
                 "RANK:STEP:TEXT: the rank's batches fail from a step on; -1: it never gets warm");
  CLI11_PARSE(app, argc, argv);
  Fault fault;
  if (!text.empty() && !Parse(text, &fault)) {
    std::fprintf(stderr, "--fault: '%s' is not GROUP:RANK:before|inside:CALL\n", text.c_str());
    return 2;
  }
  DeviceFault device_fault;
  if (!fails.empty() && !Parse(fails, &device_fault)) {
    std::fprintf(stderr, "--device-fault: '%s' is not RANK:STEP:TEXT\n", fails.c_str());
    return 2;
  }
  auto mpi = comm::MpiRuntime::Create();
  if (!mpi.ok()) {
    std::fprintf(stderr, "faulty_worker: %s\n", mpi.status().ToString().c_str());
    return 1;
  }
  options.on_group = [&, rank = (*mpi)->rank()](comm::Communicator& group) {
    AddHooks(group, rank, fault, slow, slow_rank);
  };
  // Ranks are late all or none, since they meet as they warm up.
  if (!gate.empty() || !fails.empty()) {
    if (device_fault.rank != (*mpi)->rank()) device_fault.says.clear();
    options.wrap_backend = [&](std::unique_ptr<kernels::Backend> inner) {
      return Late(std::move(inner), gate, device_fault);
    };
  }
  const absl::Status status = worker::RunRank(options, **mpi);
  if (status.ok()) return 0;
  spdlog::error("{}", status.ToString());
  FlushLog();
  _exit(1);  // like the worker: finalizing MPI would wait for ranks that are stuck
}

}  // namespace
}  // namespace skein::testing

int main(int argc, char** argv) { return skein::testing::Main(argc, argv); }
