#include "kernels/ops/device_kernels.h"

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "kernels/packing/layout.h"

namespace skein::kernels {
namespace {

// What of an operation GPUs have no kernel for; empty: nothing.
template <typename T>
std::string MissingOnGpus(const Program&, const T&) {
  return "";
}
std::string MissingOnGpus(const Program& program, const RopeAppendKvOp& op) {
  const int64_t rotated = 2 * program.weights[op.inverse_frequencies].spec.cols;
  if (rotated != op.head_dim) {
    return absl::StrCat("rotations of ", rotated, " of a head's ", op.head_dim, " dimensions");
  }
  return op.magnitude == 1 ? "" : absl::StrCat("rotations with a magnitude of ", op.magnitude);
}
std::string MissingOnGpus(const Program&, const AttentionOp& op) {
  return op.softcap == 0 ? "" : "soft caps of attention";
}
std::string MissingOnGpus(const Program&, const GluOp& op) {
  return op.activation == GateActivation::kSilu ? "" : "gates with GELU";
}
std::string MissingOnGpus(const Program&, const RouteOp&) { return "experts"; }
std::string MissingOnGpus(const Program&, const ScaleOp&) { return "scaled activations"; }
std::string MissingOnGpus(const Program&, const SoftCapOp&) { return "soft caps of logits"; }

}  // namespace

absl::Status CheckDeviceKernels(DeviceKind kind, const Program& program) {
  if (kind == DeviceKind::kCpu) return absl::OkStatus();
  for (const auto& [name, spec] : program.weights) {
    for (const WeightSpec::Part& part : PartsOf(spec)) {
      if (!IsQuantized(part.dtype)) continue;
      return absl::UnimplementedError(
          absl::StrCat(name, " is of ", std::string(DTypeName(part.dtype)),
                       ", by which GPUs do not multiply yet: compute on cores with --device=cpu, "
                       "or take the model in BF16 or F16"));
    }
  }
  for (const Op& op : program.ops) {
    const std::string missing =
        std::visit([&](const auto& o) { return MissingOnGpus(program, o); }, op);
    if (missing.empty()) continue;
    return absl::UnimplementedError(
        absl::StrCat("the model has ", missing,
                     ", which GPUs do not compute yet: compute on cores with --device=cpu"));
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels
