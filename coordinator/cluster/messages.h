// What ranks tell the coordinator of themselves, as plain data: proto/cluster.proto without its
// types. Requests and what comes of them are in serving/.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "parallel/comm/call.h"
#include "parallel/plan/plan.h"
#include "topology/machine.h"

namespace skein::coordinator {

// Far beyond any mpirun, far below what memory minds.
inline constexpr int32_t kMaxJobSize = 65536;

struct RankHello {
  std::string version;
  std::string job_id;
  int32_t rank = 0;
  int32_t job_size = 0;
  int32_t pid = 0;
  topology::Node node;
  topology::Device device;
  std::string secret_digest;   // of the job's secret
  plan::LayoutRequest layout;  // of the job; nothing asked: the coordinator's
};

struct RankReady {
  std::string slice_key;
  std::string slice_digest;
  int64_t bytes_read = 0;
  absl::Duration load_time;
  std::string model_path;  // where the rank's node has the model
};

// A call between ranks that one of them has entered and not left.
struct OperationInProgress {
  std::string group;  // "tp of replica 0, stage 1"
  comm::Operation operation = comm::Operation::kBarrier;
  int64_t number = 0;           // of the group's collectives, or of the pair's messages
  int32_t peer = -1;            // rank: a message's other end, a broadcast's root
  std::vector<int32_t> others;  // ranks that take part, without this one
  absl::Duration elapsed;       // since it was entered
  absl::Duration deadline;      // after which it counts as hung
  absl::Duration still;         // since its thread entered it or last looked for the others
};

// The state of a rank, as its heartbeat tells it.
struct RankActivity {
  std::optional<OperationInProgress> operation;
  // The step that the operation belongs to; without one, the oldest step under way. Unset while the
  // rank waits for an order.
  std::optional<int64_t> step;
  std::map<std::string, int64_t> entered;  // by group: the last collective
  // Leaders: threads that schedule or wait, by name, and how long ago each last said that it lives.
  std::map<std::string, absl::Duration> threads;
  uint64_t messages_taken = 0;  // of those with RequestUpdates that were sent to it
  absl::Duration age;           // of the heartbeat
};

}  // namespace skein::coordinator
