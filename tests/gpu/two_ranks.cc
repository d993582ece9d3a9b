#include "tests/gpu/two_ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/device_timer.h"
#include "base/status_macros.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_events.h"
#include "kernels/cuda/cuda_peer_sums.h"
#include "kernels/cuda/cuda_timer.h"
#include "kernels/cuda/device_testing.h"
#include "parallel/comm/control/fork_group.h"
#include "parallel/comm/nccl/nccl_transport.h"
#include "parallel/comm/p2p/peer_transport.h"

namespace skein::comm {

using kernels::cuda::OwnedGraph;
using kernels::cuda::OwnedStream;

namespace {

constexpr unsigned kCaseSeconds = 60;

// Runs `body` in a process of its own, since no process can fork once it has used CUDA, and gives
// its exit status; -1 where it crashed.
int RunApart(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kCaseSeconds);
    const int code = body();
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int CountGpus() {
  return RunApart([] {
    const absl::StatusOr<std::vector<std::string>> gpus = kernels::ListCudaDevices();
    if (!gpus.ok()) std::printf("%s\n", gpus.status().ToString().c_str());
    return gpus.ok() ? static_cast<int>(gpus->size()) : 255;
  });
}

void UseNetwork(int number) {
  setenv("NCCL_HOSTID", number == 0 ? "a" : "b", 1);
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
  setenv("NCCL_NET", "Socket", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
}

// A process that forks rank 1 and is rank 0. Its status is 0 if both are well.
int BeRanks(const std::function<void(Rank&)>& body, int gpus, bool network) {
  std::vector<pid_t> children;
  const std::unique_ptr<Communicator> host = ForkGroup::Fork(2, 0, &children);
  const int number = host->rank();
  alarm(kCaseSeconds);
  for (const auto& [name, value] : NcclEnvironment()) setenv(name, value, 1);
  if (gpus == 1 || network) UseNetwork(number);
  Rank rank = {.host = *host, .device = gpus == 1 ? 0 : number, .peer = children[1]};
  SKEIN_EXPECT_OK((*kernels::MakeCudaEvents(rank.device))->Select());
  body(rank);
  if (number == 0) {
    int status = 0;
    waitpid(rank.peer, &status, 0);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;  // by a case
    EXPECT_TRUE(killed || status == 0) << "rank 1 ended with status " << status;
  }
  std::fflush(nullptr);
  // Threads may still abort.
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

void OnRanks(const std::function<void(Rank&)>& body, bool network) {
  const int gpus = CountGpus();
  ASSERT_GE(gpus, 0);
  ASSERT_LT(gpus, 255);
  if (gpus == 0) GTEST_SKIP() << "no GPU";
  EXPECT_EQ(RunApart([&] { return BeRanks(body, gpus, network); }), 0);
}

Group::Group(Rank& rank, std::string name, Peers peers)
    : Communicator(std::move(name), rank.number(), 2) {
  Track(tracker.AddGroup(this->name(), {0, 1}, rank.number()));
  events = *kernels::MakeCudaEvents(rank.device);
  auto transport = MakeNcclTransport(
      rank.host, absl::StrCat("rank ", rank.number(), " on host-", rank.number()), events, kMeet);
  kernels::cuda::Require(transport.status());
  if (peers != Peers::kNone) {
    std::unique_ptr<DeviceTimer> timer;
    if (peers == Peers::kMeasured) timer = *kernels::MakeCudaTimer(rank.device);
    auto made =
        MakePeerTransport(rank.host,
                          {.self = absl::StrCat("rank ", rank.number(), " on host-", rank.number()),
                           .host = "one host",
                           .sums = kernels::MakeCudaPeerSums(rank.device, rank.number(), 2),
                           .timer = timer.get(),
                           .timeout = kSoon},
                          *std::move(transport));
    kernels::cuda::Require(made.status());
    most_peer_bytes = made->most_bytes;
    times = made->times;
    if (peers == Peers::kAll) EXPECT_EQ(made->why_not, "");
    transport = std::move(made->transport);
  }
  UseDevice(*std::move(transport), events);
  stream = *OwnedStream::Create();
  set_timeout(kSoon);
}

absl::Status Group::Finish() {
  SKEIN_ASSIGN_OR_RETURN(const int event, events->Record(stream.get()));
  while (true) {
    SKEIN_ASSIGN_OR_RETURN(const bool done, events->Done(event));
    SKEIN_RETURN_IF_ERROR(Check());
    if (done) return absl::OkStatus();
    absl::SleepFor(absl::Microseconds(100));
  }
}
bool Group::Ends() {
  const absl::Time deadline = absl::Now() + kSoon;
  const absl::StatusOr<int> event = events->Record(stream.get());
  while (event.ok() && absl::Now() < deadline) {
    const absl::StatusOr<bool> done = events->Done(*event);
    if (!done.ok()) return false;
    if (*done) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return false;
}

void GroupSums::BeginBatch(const kernels::Batch& batch) { group_.set_step(batch.step, order); }

std::vector<float> Input(int rank, int64_t count, DType dtype) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const auto mixed = static_cast<uint32_t>(i * 2 + rank + 1) * 2654435761u;
    const float fraction = static_cast<float>(mixed >> 8) / 0x1000000 - 0.5f;
    values[i] = std::ldexp(fraction, static_cast<int>(mixed & 15) - 8);
  }
  return kernels::cuda::Decoded(dtype, kernels::cuda::Encoded(dtype, values));
}

OwnedGraph CaptureTwo(Group& group, View view) {
  // Once for nobody.
  SKEIN_EXPECT_OK(group.AllReduce(view, group.stream.get()));
  SKEIN_EXPECT_OK(group.Finish());
  absl::StatusOr<OwnedGraph> graph = OwnedGraph::Capture(group.stream.get(), [&]() -> absl::Status {
    SKEIN_RETURN_IF_ERROR(group.CaptureAllReduce(view, group.stream.get()));
    return group.CaptureAllReduce(view, group.stream.get());
  });
  kernels::cuda::Require(graph.status());
  return *std::move(graph);
}

}  // namespace skein::comm
