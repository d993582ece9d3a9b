#include "worker/probe/attention_probe.h"

#include <algorithm>
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

struct GpuContexts {
  int32_t sequences = 0;
  int32_t positions = 0;  // of each
};
// Long enough that reading them counts beside weights.
constexpr GpuContexts kGpuContexts[] = {{1, 6144}, {8, 768}, {64, 768}};

// Seconds of steps whose sequences begin with some positions, and with none.
struct Steps {
  double longer = 0;
  double brief = 0;
  int32_t sequences = 0;
  int32_t positions = 0;
  double spread = 0;

  // What a position of a sequence adds to a step.
  double PerPosition() const {
    // Some of a step is, whatever the noise of either measurement.
    return std::max(longer - brief, longer / 50) / sequences / positions;
  }
};
absl::StatusOr<Steps> TimeSteps(StepTimer& timer, BenchModel& model, int32_t sequences,
                                int32_t positions) {
  SKEIN_ASSIGN_OR_RETURN(const StepTime longer, timer.Decodes(model, sequences, positions));
  SKEIN_ASSIGN_OR_RETURN(const StepTime brief,
                         timer.Decodes(model, sequences, /*positions=*/0, longer.samples));
  return Steps{longer.seconds, brief.seconds, sequences, positions,
               std::max(longer.spread, brief.spread)};
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

  absl::StatusOr<ProbedAttention> Run() {
    SKEIN_ASSIGN_OR_RETURN(const auto model, Load(kContexts, contexts_.back()));
    SKEIN_ASSIGN_OR_RETURN(const double arithmetic, TimeArithmetic(*model));
    std::vector<topology::AttentionRate> rates;
    for (const int32_t context : contexts_) {
      SKEIN_ASSIGN_OR_RETURN(const double all, TimePosition(*model, context));
      const double read = std::max(all - arithmetic, all / 20);
      rates.push_back(
          {.rows = sequences_,
           .bytes_per_s = kPositionBytes / read / threads_,
           .operations_per_s =
               arithmetic > 0 ? model->cost().flops_per_pair / arithmetic / threads_ : 0,
           .working_set_bytes =
               kPositionBytes * sequences_ * context + model->cost().weight_bytes});
    }
    return ProbedAttention{std::move(rates), spread_};
  }

 private:
  absl::StatusOr<double> TimePosition(BenchModel& model, int32_t context) {
    SKEIN_ASSIGN_OR_RETURN(const Steps steps, TimeSteps(timer_, model, sequences_, context));
    spread_ = std::max(spread_, steps.spread);
    return steps.PerPosition();
  }

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
      SKEIN_ASSIGN_OR_RETURN(const double fewer, TimePosition(*own, context));
      SKEIN_ASSIGN_OR_RETURN(const double all, TimePosition(shared, context));
      arithmetic.push_back(std::clamp((all - fewer) * queries / (queries - 1), 0.0, all * 0.95));
    }
    return Summarise(std::move(arithmetic)).median;
  }

  StepTimer& timer_;
  const int threads_;
  const int32_t sequences_;
  std::vector<int32_t> contexts_;  // ascending
  double spread_ = 0;
};

// A GPU hides arithmetic behind its reads.
absl::StatusOr<ProbedAttention> ProbeGpu(StepTimer& timer) {
  std::vector<std::unique_ptr<BenchModel>> models;
  std::vector<Steps> least;
  for (const auto& [sequences, positions] : kGpuContexts) {
    SKEIN_ASSIGN_OR_RETURN(auto model, timer.Load(kShapeOf8B, DType::kBF16,
                                                  {.sequences = sequences, .context = positions}));
    SKEIN_RETURN_IF_ERROR(model->FillPages());
    SKEIN_ASSIGN_OR_RETURN(least.emplace_back(), TimeSteps(timer, *model, sequences, positions));
    models.push_back(std::move(model));
  }
  for (int round = 1; round < kRounds; ++round) {
    for (size_t i = 0; i < models.size(); ++i) {
      Steps& of = least[i];
      SKEIN_ASSIGN_OR_RETURN(const Steps steps,
                             TimeSteps(timer, *models[i], of.sequences, of.positions));
      of.longer = std::min(of.longer, steps.longer);
      of.brief = std::min(of.brief, steps.brief);
      of.spread = std::min(of.spread, steps.spread);
    }
  }
  ProbedAttention probed;
  for (size_t i = 0; i < models.size(); ++i) {
    const auto bytes = static_cast<double>(models[i]->cost().kv_bytes);
    probed.rates.push_back(
        {.rows = least[i].sequences, .bytes_per_s = bytes / least[i].PerPosition()});
    probed.spread = std::max(probed.spread, least[i].spread);
  }
  return probed;
}

}  // namespace

absl::StatusOr<ProbedAttention> ProbeAttention(BenchDevice& device,
                                               const AttentionProbeOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(StepTimer timer, StepTimer::Start(device, options.hooks));
  timer.Say("contexts");
  return device.is_gpu() ? ProbeGpu(timer) : CoreProbe(options, device.threads, timer).Run();
}

}  // namespace skein::worker
