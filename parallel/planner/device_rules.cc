#include "parallel/planner/device_rules.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/ops/sizes.h"
#include "parallel/planner/kv_bytes.h"

namespace skein::plan {

absl::StatusOr<KvDType> ChooseKvDType(const std::optional<KvDType>& asked, DeviceKind device,
                                      DType weights) {
  if (device == DeviceKind::kCpu) return asked.value_or(KvDType::kF32);
  const KvDType own = KvAsComputed(kernels::ActivationDType(device, weights));
  const KvDType chosen = asked.value_or(own);
  if (chosen == own || chosen == KvDType::kInt8) return chosen;
  return absl::UnimplementedError(absl::StrCat(
      "--kv-dtype=", std::string(KvDTypeName(chosen)), ": GPUs keep keys and values in int8 or in ",
      std::string(KvDTypeName(own)), ", which GPUs compute this model in: its weights are ",
      std::string(DTypeName(weights))));
}

absl::Status CheckColumns(const model::ModelConfig& model, DeviceKind device) {
  if (device == DeviceKind::kCpu) return absl::OkStatus();
  constexpr int64_t kColumns = 128;  // 8 blocks of 16
  for (const int64_t columns : {model.num_heads * model.head_dim, model.intermediate_size}) {
    if (columns % kColumns == 0) continue;
    return absl::UnimplementedError(absl::StrCat("--deterministic: the model has a matrix of ",
                                                 columns, " columns; GPUs can do multiples of ",
                                                 kColumns));
  }
  return absl::OkStatus();
}

DType SumDType(DType dtype, bool deterministic) { return deterministic ? DType::kF32 : dtype; }

bool SumsByHosts(DeviceKind device, bool deterministic, int32_t tp_size) {
  return deterministic && device == DeviceKind::kCuda && tp_size > 2;
}

absl::Status SumsByHostsRefusal(int32_t tp_size) {
  return absl::FailedPreconditionError(absl::StrCat(
      "with --deterministic more than two GPUs add by way of the hosts' memory; it must be asked "
      "for by tp=",
      tp_size));
}

}  // namespace skein::plan
