// Turns proto/inference.proto into coordinator/service's plain types and back.
#pragma once

#include "absl/time/time.h"
#include "coordinator/service/model_registry.h"
#include "coordinator/service/request.h"
#include "coordinator/service/served_model.h"
#include "proto/inference.pb.h"

namespace skein::coordinator {

// `deadline` is the call's.
GenerateRequest FromProto(const v1::GenerateRequest& wire, absl::Time deadline);
// `model`: may be null for an error.
v1::GenerateEvent ToProto(const Event& event, const ServedModel* model);
v1::Model ToProto(const HostedModel& hosted);

}  // namespace skein::coordinator
