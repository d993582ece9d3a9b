// The engine's plain types to and from the wire.
#pragma once

#include <vector>

#include "parallel/comm/operation_tracker.h"
#include "proto/cluster.pb.h"
#include "worker/engine/inbox.h"
#include "worker/engine/request.h"

namespace skein::worker {

GenerationRequest FromProto(const cluster::v1::NewRequest& request);
cluster::v1::StepOutput ToProto(const StepReport& report);
cluster::v1::Heartbeat ToProto(const comm::Progress& progress);

}  // namespace skein::worker
