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

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/device_events.h"
#include "base/dtype.h"
#include "base/view.h"
#include "kernels/cuda/resources.h"
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

// What a rank has in a dtype: of both signs and many magnitudes.
std::vector<float> Input(int rank, int64_t count, DType dtype);

// A graph of two sums, captured as a back end captures.
kernels::cuda::OwnedGraph CaptureTwo(Group& group, View view);

}  // namespace skein::comm
