// The attach protocol's contract: what ranks tell the coordinator of themselves, as plain data for
// both sides. Requests and what comes of them are in serving/.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/expert_load.h"
#include "parallel/attach/protocol.h"
#include "parallel/comm/progress.h"
#include "parallel/comm/rank_times.h"
#include "parallel/plan/plan.h"
#include "topology/machine.h"
#include "topology/topology.h"

namespace skein::attach {

// Far beyond any mpirun, far below what memory minds.
inline constexpr int32_t kMaxJobSize = 65536;

struct Hello {
  std::string version;      // of the rank's program
  ProtocolRange protocols;  // that it speaks
  std::string job_id;
  std::string job_key;  // the public half of the key that follows from the job's secret
  int32_t rank = 0;
  int32_t job_size = 0;
  int32_t pid = 0;
  topology::Node node;
  topology::Device device;
  plan::LayoutRequest layout;  // the job's; nothing asked: the coordinator's
  // Of one rank of each host: that host alone, as it was found and measured; RankReport's.
  std::optional<topology::Topology> told = std::nullopt;
  std::string model =
      "";  // that the job serves, by one of its names; empty: the coordinator's choice
};

// What a coordinator answers to Hello.
struct Welcome {
  std::string version;
  ProtocolRange protocols;
  int32_t protocol = 0;  // the one to speak
  std::string nonce;
};

// The rank's shard is loaded. The coordinator compares digests between replicas.
struct Ready {
  std::string slice_key;
  std::string slice_digest;
  std::string model_path;  // where the rank's node has the model
  int64_t bytes_read = 0;
  absl::Duration load_time;
};

struct Heartbeat {
  comm::Progress progress;
  // Leaders list threads that schedule or wait, by name, with the time since each last said that it
  // lives.
  std::map<std::string, absl::Duration> threads;
  uint64_t messages_taken = 0;           // of those with RequestUpdates that were sent to the rank
  std::optional<ExpertLoad> experts;     // of the rank's layers, where rows have chosen some
  std::optional<comm::RankTimes> times;  // since it was ready for steps
};

}  // namespace skein::attach
