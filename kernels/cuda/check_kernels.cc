#include "kernels/cuda/check_kernels.h"

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "kernels/cuda/decode_sizes.h"
#include "kernels/ops/device_kernels.h"

namespace skein::kernels::cuda {
namespace {

template <typename... Args>
absl::Status None(const Args&... args) {
  return absl::UnimplementedError(absl::StrCat(args...));
}

std::string Name(DType dtype) { return std::string(DTypeName(dtype)); }

// Each operation has an overload of Check.
class Checker {
 public:
  explicit Checker(const Program& program) : program_(program), dtype_(DTypeOfMatrices(program)) {}

  // All is of one dtype of 16 bits, what is of F32 aside.
  absl::Status OneDType(const KvSpec* kv) const {
    const std::string computes = absl::StrCat("; GPUs compute this Program in ", Name(dtype_));
    for (const BufferSpec& buffer : program_.buffers) {
      if (buffer.dtype == dtype_ || buffer.dtype == DType::kF32) continue;
      return None("buffer ", buffer.name, " is of ", Name(buffer.dtype), computes);
    }
    const KvDType own = dtype_ == DType::kF16 ? KvDType::kF16 : KvDType::kBF16;
    if (kv != nullptr && kv->dtype != own && kv->dtype != KvDType::kInt8) {
      return None(
          "the cache is neither of int8 nor of the activations' dtype, as --kv-dtype has it",
          computes);
    }
    return absl::OkStatus();
  }
  absl::Status Ports() const {
    if (program_.logits >= 0 && Of(program_.logits) != DType::kF32) {
      return None("logits of other than F32");
    }
    for (const BufferId port : {program_.input, program_.output}) {
      if (port < 0 || Of(port) == program_.hop_dtype) continue;
      return None("hops of ", Name(program_.hop_dtype), " with activations of ", Name(Of(port)),
                  "; on GPUs they are equal");
    }
    return absl::OkStatus();
  }

  absl::Status Check(const EmbedOp&) const { return absl::OkStatus(); }
  absl::Status Check(const RmsNormOp& op) const { return Need16Bits(op.out); }
  absl::Status Check(const AddRmsNormOp& op) const { return Need16Bits(op.out); }
  absl::Status Check(const AddOp& op) const { return SameDType(op.residual, op.out); }
  absl::Status Check(const MatMulOp& op) const {
    const auto& [name, spec] = program_.weights[op.weight];
    if (spec.rows % 8 != 0 || spec.cols % 8 != 0) {
      return None("weight ", name, " is ", spec.rows, " by ", spec.cols,
                  "; GPUs multiply multiples of 8");
    }
    return Need16Bits(op.in);
  }
  absl::Status Check(const AddBiasOp& op) const {
    const BufferSpec& buffer = program_.buffers[op.buffer];
    if (buffer.cols % 8 == 0) return absl::OkStatus();
    return None("a bias of ", buffer.cols, " columns, as of ", buffer.name,
                "; GPUs add multiples of 8");
  }
  absl::Status Check(const QkNormOp& op) const {
    if (op.head_dim % 4 != 0 || op.head_dim > 128) {
      return None("norms of heads of ", op.head_dim, "; GPUs do multiples of 4, up to 128");
    }
    return Need16Bits(op.qkv);
  }
  absl::Status Check(const ScaleOp&) const { return absl::OkStatus(); }
  absl::Status Check(const SoftCapOp&) const { return absl::OkStatus(); }
  absl::Status Check(const RouteOp&) const { return absl::OkStatus(); }
  absl::Status Check(const ExpertsOp&) const { return absl::OkStatus(); }
  absl::Status Check(const CombineExpertsOp&) const { return absl::OkStatus(); }
  absl::Status Check(const AddGatedOp&) const { return absl::OkStatus(); }
  absl::Status Check(const GluOp& op) const {
    SKEIN_RETURN_IF_ERROR(Need16Bits(op.gate_up));
    return Need16Bits(op.out);
  }
  absl::Status Check(const RopeAppendKvOp& op) const { return Need16Bits(op.qkv); }
  absl::Status Check(const AttentionOp& op) const {
    if (op.heads / op.kv_heads > kMaxGroup) {
      return None(op.heads, " heads on ", op.kv_heads, " KV heads; GPUs do up to ", kMaxGroup,
                  " on each");
    }
    SKEIN_RETURN_IF_ERROR(Need16Bits(op.qkv));
    return Need16Bits(op.out);
  }
  absl::Status Check(const GatherRowsOp& op) const {
    return Of(op.out) == Of(op.in) ? absl::OkStatus() : Need16Bits(op.in);
  }
  absl::Status Check(const AllReduceOp&) const { return absl::OkStatus(); }

 private:
  DType Of(BufferId id) const { return program_.buffers[id].dtype; }
  // Where kernels take no F32.
  absl::Status Need16Bits(BufferId id) const {
    if (Of(id) == dtype_) return absl::OkStatus();
    return None("buffer ", program_.buffers[id].name, " is of ", Name(Of(id)), "; GPUs take ",
                Name(dtype_), " there");
  }
  absl::Status SameDType(BufferId a, BufferId b) const {
    if (Of(a) == Of(b)) return absl::OkStatus();
    return None("buffers ", program_.buffers[a].name, " and ", program_.buffers[b].name, " are of ",
                Name(Of(a)), " and ", Name(Of(b)), "; GPUs take one dtype there");
  }

  const Program& program_;
  const DType dtype_;
};

}  // namespace

DType DTypeOfMatrices(const Program& program) {
  for (const BufferSpec& buffer : program.buffers) {
    if (buffer.dtype == DType::kBF16 || buffer.dtype == DType::kF16) return buffer.dtype;
  }
  return DType::kBF16;
}

absl::Status CheckKernels(const Program& program, const KvSpec* kv) {
  SKEIN_RETURN_IF_ERROR(CheckDeviceKernels(DeviceKind::kCuda, program));
  const Checker checker(program);
  SKEIN_RETURN_IF_ERROR(checker.OneDType(kv));
  SKEIN_RETURN_IF_ERROR(checker.Ports());
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const absl::Status status =
        std::visit([&](const auto& op) { return checker.Check(op); }, program.ops[i]);
    SKEIN_RETURN_IF_ERROR(Annotate(status, absl::StrCat("operation ", i)));
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels::cuda
