// The plan on the wire and back.
#pragma once

#include "absl/status/statusor.h"
#include "parallel/plan/plan.h"
#include "proto/plan.pb.h"

namespace skein::convert {

plan::v1::Plan ToProto(const plan::Plan& plan);

// InvalidArgument for a plan that CheckPlan refuses. Whether it fits the model is for ValidatePlan.
absl::StatusOr<plan::Plan> FromProto(const plan::v1::Plan& wire);

}  // namespace skein::convert
