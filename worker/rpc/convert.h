// What ranks tell of themselves, to the wire. Requests and outputs: proto/convert/serving.h.
#pragma once

#include "parallel/comm/operation_tracker.h"
#include "proto/cluster.pb.h"

namespace skein::worker {

cluster::v1::Heartbeat ToProto(const comm::Progress& progress);

}  // namespace skein::worker
