// What devices can do for a job, whoever plans it. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/device_kind.h"
#include "base/dtype.h"
#include "model/config/model_config.h"
#include "parallel/plan/plan.h"

namespace skein::plan {

// What keys and values are kept in; where nothing is asked, what the device computes a model of
// `weights` in. Unimplemented for what GPUs do not keep.
absl::StatusOr<KvDType> ChooseKvDType(const std::optional<KvDType>& asked, DeviceKind device,
                                      DType weights);

// Of --deterministic. Unimplemented for models whose sums GPUs cannot add in blocks.
absl::Status CheckColumns(const model::ModelConfig& model, DeviceKind device);

// What shards add in where ranks pass `dtype` otherwise: deterministic sums are rounded behind.
DType SumDType(DType dtype, bool deterministic);

// Whether the shards of a stage add by way of the hosts' memory, which is slow, and must be asked
// for: SumsByHostsRefusal says so.
bool SumsByHosts(DeviceKind device, bool deterministic, int32_t tp_size);
absl::Status SumsByHostsRefusal(int32_t tp_size);

}  // namespace skein::plan
