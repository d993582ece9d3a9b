// What ranks say in proto/cluster.proto to coordinator/cluster's plain types, and the state of jobs
// to the wire. Requests and outputs: proto/convert/serving.h.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cluster/job.h"
#include "coordinator/cluster/messages.h"
#include "proto/cluster.pb.h"

namespace skein::coordinator {

// What GetJob asks for.
struct JobKey {
  std::string job_id;
  std::string secret_digest;
};

// Strings from ranks are bounded and printable (base/printable.h) on this side of the codec. Names
// that are too long are refused, messages are cut.

// InvalidArgument names the field.
absl::StatusOr<RankHello> FromProto(const cluster::v1::Hello& wire);
absl::StatusOr<JobKey> FromProto(const cluster::v1::GetJobRequest& wire);
RankReady FromProto(const cluster::v1::Ready& wire);
RankActivity FromProto(const cluster::v1::Heartbeat& wire);
absl::Status FromProto(const cluster::v1::Failure& wire);

cluster::v1::JobStatus ToProto(const JobStatus& status);

}  // namespace skein::coordinator
