#include "client/live_topology.h"

#include <grpcpp/client_context.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/connection.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/convert/machines.h"

namespace skein::client {

namespace {

// "rank 3"; with several jobs "24157a rank 3", by the begin of its job's id.
std::vector<topology::RankLabel> LabelsOf(const topology::v1::Topology& wire) {
  constexpr size_t kShortId = 6;
  std::set<std::string> jobs;
  for (const topology::v1::PlacedRank& rank : wire.ranks()) jobs.insert(rank.job_id());
  std::map<std::pair<std::string, int32_t>, int32_t> replicas;
  std::vector<topology::RankLabel> labels;
  for (const topology::v1::PlacedRank& rank : wire.ranks()) {
    const auto next = static_cast<int32_t>(replicas.size());
    const int32_t group =
        replicas.emplace(std::pair(rank.job_id(), rank.replica()), next).first->second;
    const std::string of_job =
        jobs.size() > 1 ? absl::StrCat(rank.job_id().substr(0, kShortId), " ") : "";
    labels.push_back({rank.host(), rank.gpu(), absl::StrCat(of_job, "rank ", rank.rank()), group});
  }
  return labels;
}

}  // namespace

absl::StatusOr<LiveTopology> FetchTopology(const Endpoint& coordinator) {
  const Connection connection(coordinator);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  topology::v1::Topology wire;
  const grpc::Status result =
      cluster::v1::Cluster::NewStub(connection.channel())->GetTopology(&context, {}, &wire);
  if (!result.ok()) return absl::UnavailableError(connection.Explain(result));
  LiveTopology live;
  SKEIN_ASSIGN_OR_RETURN(live.topology, convert::FromProto(wire));
  live.ranks = LabelsOf(wire);
  return live;
}

}  // namespace skein::client
