#include "client/live_topology.h"

#include <grpcpp/client_context.h>

#include <chrono>

#include "absl/status/status.h"
#include "client/connection.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/convert/machines.h"

namespace skein::client {

absl::StatusOr<topology::Topology> FetchTopology(const Endpoint& coordinator) {
  const Connection connection(coordinator);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  topology::v1::Topology wire;
  const grpc::Status result =
      cluster::v1::Cluster::NewStub(connection.channel())->GetTopology(&context, {}, &wire);
  if (!result.ok()) return absl::UnavailableError(connection.Explain(result));
  return convert::FromProto(wire);
}

}  // namespace skein::client
