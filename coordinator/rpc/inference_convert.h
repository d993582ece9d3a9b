// proto/inference.proto to coordinator/service's plain types and back.
#pragma once

#include "coordinator/service/request.h"
#include "coordinator/service/served_model.h"
#include "proto/inference.pb.h"

namespace skein::coordinator {

GenerateRequest FromProto(const v1::GenerateRequest& wire);
v1::GenerateEvent ToProto(const Event& event, const ServedModel& model);
v1::Model ToProto(const ServedModel& model, bool ready);

}  // namespace skein::coordinator
