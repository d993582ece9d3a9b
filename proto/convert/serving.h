// The request contract (serving/) to proto/cluster.proto and back: the one codec of both sides.
#pragma once

#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "serving/output.h"
#include "serving/request.h"

namespace skein::convert {

// Clocks of nodes differ: of a deadline the time that is left at `now`, this side's, travels.
void ToProto(const serving::Request& request, absl::Time now, cluster::v1::Request& out);
serving::Request FromProto(const cluster::v1::Request& wire, absl::Time now);

// Puts `updates` behind those that `wire` holds. A request that is cancelled before it left is
// dropped.
void AppendToProto(const serving::RequestUpdates& updates, absl::Time now,
                   cluster::v1::RequestUpdates& wire);
serving::RequestUpdates FromProto(const cluster::v1::RequestUpdates& wire, absl::Time now);

cluster::v1::ReplicaLoad ToProto(const serving::ReplicaLoad& load);
serving::ReplicaLoad FromProto(const cluster::v1::ReplicaLoad& wire);

cluster::v1::StepOutput ToProto(const serving::StepOutput& output);
// Errors, which are a stranger's words, are bounded and printable (base/printable.h).
serving::StepOutput FromProto(const cluster::v1::StepOutput& wire);

}  // namespace skein::convert
