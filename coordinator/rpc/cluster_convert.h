// Writes the state of jobs to proto/cluster.proto. What ranks and the coordinator tell each other
// has its codec in proto/convert/.
#pragma once

#include "coordinator/cluster/job.h"
#include "proto/cluster.pb.h"

namespace skein::coordinator {

cluster::v1::JobStatus ToProto(const JobStatus& status);

}  // namespace skein::coordinator
