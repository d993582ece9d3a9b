#include "parallel/program/rank_program.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/program/decoder.h"

namespace skein::plan {

absl::StatusOr<RankProgram> BuildRankProgram(const model::ModelConfig& config,
                                             const model::TensorSource* tensors,
                                             const RankProgramSpec& spec) {
  if (spec.layers.begin < 0 || spec.layers.empty() || spec.layers.end > config.num_layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers ", spec.layers.begin, " to ", spec.layers.end,
                     " are not layers of a model of ", config.num_layers));
  }
  return BuildDecoderProgram(config, tensors, spec);
}

}  // namespace skein::plan
