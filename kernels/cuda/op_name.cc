#include "kernels/cuda/op_name.h"

#include <variant>

#include "absl/strings/str_cat.h"

namespace skein::kernels::cuda {
namespace {

struct Name {
  std::string operator()(const EmbedOp&) const { return "embedding"; }
  std::string operator()(const RmsNormOp&) const { return "norm"; }
  std::string operator()(const AddRmsNormOp&) const { return "norm"; }
  std::string operator()(const AddOp&) const { return "add"; }
  std::string operator()(const MatMulOp& op) const {
    return absl::StrCat("product ", program.weights[op.weight].name);
  }
  std::string operator()(const AddBiasOp&) const { return "bias"; }
  std::string operator()(const QkNormOp&) const { return "qk norm"; }
  std::string operator()(const GluOp&) const { return "gated unit"; }
  std::string operator()(const ScaleOp&) const { return "scale"; }
  std::string operator()(const SoftCapOp&) const { return "soft cap"; }
  std::string operator()(const RouteOp&) const { return "route"; }
  std::string operator()(const ExpertsOp&) const { return "experts"; }
  std::string operator()(const CombineExpertsOp&) const { return "combine experts"; }
  std::string operator()(const AddGatedOp&) const { return "add gated"; }
  std::string operator()(const RopeAppendKvOp&) const { return "rope"; }
  std::string operator()(const AttentionOp&) const { return "attention"; }
  std::string operator()(const GatherRowsOp&) const { return "gather"; }
  std::string operator()(const AllReduceOp&) const { return "all-reduce"; }

  const Program& program;
};

}  // namespace

std::string NameOfOp(const Program& program, const Op& op) { return std::visit(Name{program}, op); }

}  // namespace skein::kernels::cuda
