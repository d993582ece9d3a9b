// Two processes as the ranks of groups over NCCL and peer memory. Each has a GPU of its own where
// there are two; else they share one, tell NCCL that they are two hosts, and talk over sockets:
// slowly, since they take turns.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/device_events.h"
#include "base/dtype.h"
#include "base/stream.h"
#include "base/view.h"
#include "kernels/cuda/resources.h"
#include "kernels/ops/backend.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/comm/p2p/crossover.h"

namespace skein::comm {

inline constexpr absl::Duration kMeet = absl::Seconds(30);
inline constexpr absl::Duration kSoon = absl::Seconds(10);

// One of two ranks, in its own process.
struct Rank {
  Communicator& host;  // over which groups meet
  const int device;
  const pid_t peer;  // rank 1's process, for rank 0

  int number() const { return host.rank(); }
};

// Runs `body` as both ranks. `network`: over sockets, though each may have a GPU.
void OnRanks(const std::function<void(Rank&)>& body, bool network = false);

// A group whose calls are all made by devices.
class Group final : public Communicator {
 public:
  // How small sums go over memory, which processes share: all that can, or those that are measured.
  enum class Peers : uint8_t { kNone, kAll, kMeasured };

  // A call of both ranks.
  Group(Rank& rank, std::string name, Peers peers = Peers::kNone);

  // Waits for the stream as a back end does.
  absl::Status Finish();
  // Whether the device comes to the end of the stream, whatever has become of its calls.
  bool Ends();

  OperationTracker tracker;
  std::shared_ptr<DeviceEvents> events;
  kernels::cuda::OwnedStream stream;
  int64_t most_peer_bytes = 0;
  std::vector<SumTimes> times;

 private:
  static absl::Status None() { return absl::UnimplementedError("of the device alone"); }
  bool DoSumsAsTree() const override { return true; }
  absl::Status DoAllReduce(const Call&, View, Stream) override { return None(); }
  absl::Status DoAllGather(const Call&, ConstView, View, Stream) override { return None(); }
  absl::Status DoBroadcast(const Call&, View, Stream) override { return None(); }
  absl::Status DoBarrier(const Call&, Stream) override { return None(); }
  absl::Status DoSend(const Call&, ConstView, Stream) override { return None(); }
  absl::Status DoReceive(const Call&, View, Stream) override { return None(); }
};

// Sums over a group, which count those that kernels of the back end make.
class GroupSums final : public kernels::Collectives {
 public:
  explicit GroupSums(Group& group) : group_(group) {}
  void BeginBatch(const kernels::Batch& batch) override;
  bool RunOnDevice() const override { return true; }
  absl::Status AllReduce(View data, Stream stream) override {
    return group_.AllReduce(data, stream);
  }
  absl::Status AllGather(ConstView, View, Stream) override {
    return absl::UnimplementedError("no test gathers");
  }
  absl::Status CaptureAllReduce(View data, Stream stream) override {
    return group_.CaptureAllReduce(data, stream);
  }
  const PeerMemory* PeersOf(const View& data) const override { return group_.PeersOf(data); }
  absl::Status AllReduceBy(View data, Stream stream,
                           absl::FunctionRef<absl::Status()> give) override {
    ++fused;
    return group_.AllReduceBy(data, stream, give);
  }
  absl::Status Replay(int64_t sums, Stream stream,
                      absl::FunctionRef<absl::Status()> launch) override {
    return group_.Replay(sums, stream, launch);
  }
  absl::Status Check() override { return group_.Check(); }

  int fused = 0;
  uint32_t order = 0;  // of batches from now on

 private:
  Group& group_;
};

// What a rank has in a dtype: of both signs and many magnitudes.
std::vector<float> Input(int rank, int64_t count, DType dtype);

// A graph of two sums, captured as a back end captures.
kernels::cuda::OwnedGraph CaptureTwo(Group& group, View view);

}  // namespace skein::comm
