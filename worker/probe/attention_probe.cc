#include "worker/probe/attention_probe.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "base/dtype.h"
#include "base/status_macros.h"
#include "worker/bench/bench_model.h"
#include "worker/probe/probe_model.h"
#include "worker/probe/samples.h"

namespace skein::worker {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Of keys and values. As many sequences as threads with short contexts have more than the least.
constexpr int64_t kCpuBytes[] = {4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB};
constexpr int32_t kLeastContext = 64;
// A core's keys and values come from all of its layers, as a model's do. Their products are short.
constexpr ProbeShape kContexts = {
    .hidden = 64, .intermediate = 64, .heads = 16, .head_dim = 64, .layers = 4};
constexpr int64_t kKeyHeads = 4;
constexpr int64_t kPositionBytes =
    2 * kContexts.layers * kKeyHeads * kContexts.head_dim * int64_t{sizeof(float)};
constexpr int32_t kCpuSequences = 8;  // at least
constexpr int kRounds = 3;            // of what is a difference

// Long enough that reading them counts beside weights.
struct GpuContexts {
  int32_t sequences = 0;
  int32_t positions = 0;  // of each
};
constexpr GpuContexts kGpuContexts[] = {{1, 6144}, {8, 768}, {64, 768}};

// Seconds of steps whose sequences begin with some positions, and with none.
struct Steps {
  double longer = 0;
  double brief = 0;
};
absl::StatusOr<Steps> TimeSteps(StepTimer& timer, BenchModel& model, int32_t sequences,
                                int32_t positions) {
  SKEIN_ASSIGN_OR_RETURN(const StepTime longer, timer.Decodes(model, sequences, positions));
  SKEIN_ASSIGN_OR_RETURN(const StepTime brief,
                         timer.Decodes(model, sequences, /*positions=*/0, longer.samples));
  return Steps{longer.seconds, brief.seconds};
}

// The seconds that a position of a sequence adds to a step.
double PositionOf(const Steps& steps, int32_t sequences, int32_t positions) {
  // Some of a step is, whatever the noise of either measurement.
  return std::max(steps.longer - steps.brief, steps.longer / 50) / sequences / positions;
}
absl::StatusOr<double> TimePosition(StepTimer& timer, BenchModel& model, int32_t sequences,
                                    int32_t positions) {
  SKEIN_ASSIGN_OR_RETURN(const Steps steps, TimeSteps(timer, model, sequences, positions));
  return PositionOf(steps, sequences, positions);
}

// All threads have as many of the heads of keys.
int32_t SequencesFor(int threads) {
  int32_t sequences = kCpuSequences;
  while (sequences * kKeyHeads % threads != 0) ++sequences;
  return sequences;
}

class CoreProbe {
 public:
  CoreProbe(const AttentionProbeOptions& options, int threads, StepTimer& timer)
      : timer_(timer), threads_(threads), sequences_(SequencesFor(threads)) {
    const int64_t least = kLeastContext * kPositionBytes * sequences_;
    for (const int64_t bytes : kCpuBytes) {
      const int64_t set = std::max(std::min(bytes, options.most_bytes), least);
      if (contexts_.empty() || ContextOf(set) > contexts_.back()) {
        contexts_.push_back(ContextOf(set));
      }
    }
  }

  absl::StatusOr<std::vector<topology::AttentionRate>> Run() {
    SKEIN_ASSIGN_OR_RETURN(const auto model, Load(kContexts, contexts_.back()));
    SKEIN_ASSIGN_OR_RETURN(const double arithmetic, TimeArithmetic(*model));
    std::vector<topology::AttentionRate> rates;
    for (const int32_t context : contexts_) {
      SKEIN_ASSIGN_OR_RETURN(const double all, TimePosition(timer_, *model, sequences_, context));
      const double read = std::max(all - arithmetic, all / 20);
      rates.push_back(
          {.rows = sequences_,
           .bytes_per_s = kPositionBytes / read / threads_,
           .operations_per_s =
               arithmetic > 0 ? model->cost().flops_per_pair / arithmetic / threads_ : 0,
           .working_set_bytes =
               kPositionBytes * sequences_ * context + model->cost().weight_bytes});
    }
    return rates;
  }

 private:
  int32_t ContextOf(int64_t bytes) const {
    return static_cast<int32_t>(bytes / kPositionBytes / sequences_);
  }

  absl::StatusOr<std::unique_ptr<BenchModel>> Load(const ProbeShape& shape, int32_t context) {
    SKEIN_ASSIGN_OR_RETURN(auto model, timer_.Load(shape, DType::kBF16,
                                                   {.sequences = sequences_, .context = context}));
    SKEIN_RETURN_IF_ERROR(model->FillPages());
    return model;
  }

  // The seconds of a position that are no reads. A key is read by one query or by four, with as
  // many bytes of keys and values, which a cache holds: what more queries take is arithmetic.
  absl::StatusOr<double> TimeArithmetic(BenchModel& shared) {
    ProbeShape shape = kContexts;
    const auto queries = static_cast<double>(std::exchange(shape.queries_of_key, 1));
    shape.heads = kKeyHeads;
    const int32_t context = contexts_.front();
    SKEIN_ASSIGN_OR_RETURN(const auto own, Load(shape, context));
    std::vector<double> arithmetic;
    for (int round = 0; round < kRounds; ++round) {  // a host's other work comes and goes
      SKEIN_ASSIGN_OR_RETURN(const double fewer, TimePosition(timer_, *own, sequences_, context));
      SKEIN_ASSIGN_OR_RETURN(const double all, TimePosition(timer_, shared, sequences_, context));
      arithmetic.push_back(std::clamp((all - fewer) * queries / (queries - 1), 0.0, all * 0.95));
    }
    return Summarise(std::move(arithmetic)).median;
  }

  StepTimer& timer_;
  const int threads_;
  const int32_t sequences_;
  std::vector<int32_t> contexts_;  // ascending
};

// A GPU hides arithmetic behind its reads.
absl::StatusOr<std::vector<topology::AttentionRate>> ProbeGpu(StepTimer& timer) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  struct Contexts {
    GpuContexts of;
    std::unique_ptr<BenchModel> model;
    Steps least = {kNever, kNever};
  };
  std::vector<Contexts> all;
  for (const GpuContexts& of : kGpuContexts) {
    SKEIN_ASSIGN_OR_RETURN(
        auto model,
        timer.Load(kShapeOf8B, DType::kBF16, {.sequences = of.sequences, .context = of.positions}));
    SKEIN_RETURN_IF_ERROR(model->FillPages());
    all.push_back({of, std::move(model)});
  }
  for (int round = 0; round < kGpuRounds; ++round) {
    for (Contexts& contexts : all) {
      SKEIN_ASSIGN_OR_RETURN(
          const Steps steps,
          TimeSteps(timer, *contexts.model, contexts.of.sequences, contexts.of.positions));
      Steps& least = contexts.least;
      least = {std::min(least.longer, steps.longer), std::min(least.brief, steps.brief)};
    }
  }
  std::vector<topology::AttentionRate> rates;
  for (const auto& [of, model, least] : all) {
    const double seconds = PositionOf(least, of.sequences, of.positions);
    rates.push_back({.rows = of.sequences,
                     .bytes_per_s = static_cast<double>(model->cost().kv_bytes) / seconds});
  }
  return rates;
}

}  // namespace

absl::StatusOr<ProbedAttention> ProbeAttention(BenchDevice& device,
                                               const AttentionProbeOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(StepTimer timer, StepTimer::Start(device, options.hooks));
  timer.Say("contexts");
  ProbedAttention probed;
  SKEIN_ASSIGN_OR_RETURN(probed.rates, device.is_gpu()
                                           ? ProbeGpu(timer)
                                           : CoreProbe(options, device.threads, timer).Run());
  probed.spread = timer.spread();
  return probed;
}

}  // namespace skein::worker
