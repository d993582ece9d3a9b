// proto/cluster.proto to coordinator/cluster's plain types and back.
#pragma once

#include "absl/status/statusor.h"
#include "coordinator/cluster/job.h"
#include "coordinator/cluster/messages.h"
#include "proto/cluster.pb.h"

namespace skein::coordinator {

// InvalidArgument names the field.
absl::StatusOr<RankHello> FromProto(const cluster::v1::Hello& wire);
RankReady FromProto(const cluster::v1::Ready& wire);
RankActivity FromProto(const cluster::v1::Heartbeat& wire);
StepOutput FromProto(const cluster::v1::StepOutput& wire);
absl::Status FromProto(const cluster::v1::Failure& wire);

// Puts `input` behind what `wire` holds. A request that is cancelled before it left is dropped.
void AppendToProto(const StepInput& input, cluster::v1::StepInput& wire);
cluster::v1::JobStatus ToProto(const JobStatus& status);

}  // namespace skein::coordinator
