#include "worker/probe/probe_model.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "worker/probe/decode_times.h"
#include "worker/probe/samples.h"

namespace skein::worker {
namespace {

constexpr int kLeastSamples = 3;
constexpr int kMostSamples = 41;
// Steps on cores that take as long take nearly the same each time.
constexpr absl::Duration kLong = absl::Milliseconds(5);
constexpr int kLongSamples = 2;
constexpr absl::Duration kVeryLong = absl::Milliseconds(50);
// Of one point in one round.
constexpr absl::Duration kCpuBudget = absl::Milliseconds(5);
constexpr absl::Duration kGpuBudget = absl::Milliseconds(15);

}  // namespace

model::ModelConfig ConfigOf(const ProbeShape& shape, DType dtype) {
  model::ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = 256;
  config.hidden_size = shape.hidden;
  config.intermediate_size = shape.intermediate;
  config.num_layers = shape.layers;
  config.num_heads = shape.heads;
  config.num_kv_heads = std::max<int64_t>(1, shape.heads / shape.queries_of_key);
  config.head_dim = shape.head_dim;
  config.max_position_embeddings = 8192;
  config.dtype = IsQuantized(dtype) ? DType::kBF16 : dtype;
  return config;
}

absl::StatusOr<StepTimer> StepTimer::Start(BenchDevice& device, ProbeHooks hooks) {
  StepTimer timer(device, std::move(hooks));
  SKEIN_ASSIGN_OR_RETURN(timer.alone_, BenchRanks::Start({}));
  return timer;
}

void StepTimer::Say(std::string_view what) const {
  if (hooks_.progress) hooks_.progress(what);
}

absl::StatusOr<std::unique_ptr<BenchModel>> StepTimer::Load(const ProbeShape& shape, DType dtype,
                                                            const ProbeSizes& sizes) {
  return BenchModel::Load({.config = ConfigOf(shape, dtype),
                           .matrices = dtype,
                           .sequences = sizes.sequences,
                           .most_rows = std::max(sizes.rows, sizes.sequences),
                           .most_tokens = std::max(sizes.rows, sizes.context + kMostSamples) + 8},
                          device_, *alone_);
}

absl::StatusOr<StepTime> StepTimer::Decodes(BenchModel& model, int32_t sequences, int32_t positions,
                                            int samples) {
  SKEIN_ASSIGN_OR_RETURN(absl::Duration first,
                         model.TimeStep(model.StartOrder(sequences, positions)));
  const bool is_long = !device_.is_gpu() && samples == 0 && first > kLong;
  if (hooks_.meet) hooks_.meet();
  std::vector<double> seconds;
  if (is_long) {
    samples = first > kVeryLong ? 1 : kLongSamples;
    for (int i = 0; i < samples; ++i) {
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration time,
                             model.TimeStep(model.DecodeOrder(sequences)));
      seconds.push_back(absl::ToDoubleSeconds(time));
    }
  } else {
    // A GPU's first steps make graphs.
    SKEIN_ASSIGN_OR_RETURN(first, model.TimeStep(model.DecodeOrder(sequences)));
    if (samples == 0) samples = SamplesFor(first);
    SKEIN_ASSIGN_OR_RETURN(seconds, TimeDecodes(model, sequences, samples));
  }
  const double left_out = is_long ? 1 : 4;
  const Sampled sampled = Summarise(std::move(seconds));
  return StepTime{sampled.median, positions + left_out + samples / 2.0, samples, sampled.spread};
}

absl::StatusOr<StepTime> StepTimer::Prompt(BenchModel& model, int32_t tokens) {
  SKEIN_ASSIGN_OR_RETURN(const absl::Duration first, model.TimeStep(model.PrefillOrder(0, tokens)));
  const int samples = SamplesFor(first);
  std::vector<double> seconds;
  for (int i = 0; i < samples; ++i) {
    SKEIN_ASSIGN_OR_RETURN(const absl::Duration time,
                           model.TimeStep(model.PrefillOrder(0, tokens)));
    seconds.push_back(absl::ToDoubleSeconds(time));
  }
  const Sampled sampled = Summarise(std::move(seconds));
  return StepTime{sampled.median, tokens / 2.0, samples, sampled.spread};
}

int StepTimer::SamplesFor(absl::Duration one) const {
  const absl::Duration budget = device_.is_gpu() ? kGpuBudget : kCpuBudget;
  const double fit = absl::FDivDuration(budget, std::max(one, absl::Microseconds(1)));
  return static_cast<int>(std::clamp<double>(fit, kLeastSamples, kMostSamples));
}

}  // namespace skein::worker
