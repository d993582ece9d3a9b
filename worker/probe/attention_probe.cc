#include "worker/probe/attention_probe.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "worker/bench/bench_model.h"
#include "worker/probe/probe_model.h"
#include "worker/probe/samples.h"

namespace skein::worker {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Keys and values, as of plain reads; the most is beyond caches.
constexpr int64_t kCpuBytes[] = {4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB};
// A core's keys and values come from all of its layers, as a model's do. Their products are short.
constexpr ProbeShape kContexts = {
    .hidden = 64, .intermediate = 64, .heads = 16, .head_dim = 64, .layers = 4};
constexpr int64_t kKeyHeads = 4;
constexpr int32_t kCpuSequences = 8;  // at least
constexpr int kRounds = 5;            // of what is a difference

constexpr ProbeShape kLargeOnGpu = {
    .hidden = 4096, .intermediate = 14336, .heads = 32, .head_dim = 128, .layers = 2};
constexpr int32_t kGpuSequences[] = {1, 8, 64};
constexpr int32_t kGpuContext = 768;

// A model whose sequences begin with so many positions, or with none.
class Contexts {
 public:
  Contexts(StepTimer& timer, BenchModel& model, int32_t sequences)
      : timer_(timer), model_(model), sequences_(sequences) {}

  absl::Status Begin() {
    SKEIN_RETURN_IF_ERROR(model_.FillPages());
    SKEIN_ASSIGN_OR_RETURN(brief_, timer_.Decodes(model_, sequences_));
    return absl::OkStatus();
  }

  // The seconds that a position of a sequence adds to a step.
  absl::StatusOr<double> TimePosition(int32_t positions) {
    SKEIN_ASSIGN_OR_RETURN(const StepTime longer, timer_.Decodes(model_, sequences_, positions));
    // Some of a step is, whatever the noise of either measurement.
    const double added = std::max(longer.seconds - brief_.seconds, longer.seconds / 20);
    return added / (sequences_ * (longer.context - brief_.context));
  }

 private:
  StepTimer& timer_;
  BenchModel& model_;
  const int32_t sequences_;
  StepTime brief_;
};

// All threads have as many of the heads of keys.
int32_t SequencesFor(int threads) {
  int32_t sequences = kCpuSequences;
  while (sequences < threads && sequences * kKeyHeads % threads != 0) ++sequences;
  return sequences;
}

class CoreProbe {
 public:
  CoreProbe(BenchDevice& device, const AttentionProbeOptions& options, StepTimer& timer)
      : device_(device), options_(options), timer_(timer) {}

  absl::StatusOr<std::vector<topology::AttentionRate>> Run() {
    sequences_ = SequencesFor(device_.threads);
    const int64_t most =
        std::clamp(options_.most_bytes, 128 * kMiB, kCpuBytes[std::size(kCpuBytes) - 1]);
    SKEIN_ASSIGN_OR_RETURN(const auto model, Load(kContexts, most));
    Contexts contexts(timer_, *model, sequences_);
    SKEIN_RETURN_IF_ERROR(contexts.Begin());
    SKEIN_ASSIGN_OR_RETURN(const double arithmetic, TimeArithmetic(contexts, kCpuBytes[0]));
    const auto position_bytes = static_cast<double>(model->cost().kv_bytes);
    std::vector<topology::AttentionRate> rates;
    for (const int64_t set : kCpuBytes) {
      const int64_t bytes = std::min(set, most);
      SKEIN_ASSIGN_OR_RETURN(const double all, contexts.TimePosition(ContextOf(bytes)));
      const double read = std::max(all - arithmetic, all / 20);
      rates.push_back(
          {.rows = sequences_,
           .bytes_per_s = position_bytes / read / device_.threads,
           .operations_per_s =
               arithmetic > 0 ? model->cost().flops_per_pair / arithmetic / device_.threads : 0,
           .working_set_bytes = bytes + model->cost().weight_bytes});
    }
    return rates;
  }

 private:
  // With room for so many bytes of keys and values.
  absl::StatusOr<std::unique_ptr<BenchModel>> Load(const ProbeShape& shape, int64_t bytes) {
    return timer_.Load(shape, DType::kBF16, {.sequences = sequences_, .context = ContextOf(bytes)});
  }

  // Of each sequence, where all of them have so many bytes.
  int32_t ContextOf(int64_t bytes) const {
    constexpr int64_t kPositionBytes =
        2 * kContexts.layers * kKeyHeads * kContexts.head_dim * int64_t{sizeof(float)};
    return static_cast<int32_t>(bytes / kPositionBytes / sequences_);
  }

  // The seconds of a position that are no reads. A key is read by one query or by four, with as
  // many bytes of keys and values, which a cache holds: what more queries take is arithmetic.
  absl::StatusOr<double> TimeArithmetic(Contexts& shared, int64_t bytes) {
    ProbeShape shape = kContexts;
    const auto queries = static_cast<double>(std::exchange(shape.queries_of_key, 1));
    shape.heads = kKeyHeads;
    SKEIN_ASSIGN_OR_RETURN(const auto model, Load(shape, bytes));
    Contexts own(timer_, *model, sequences_);
    SKEIN_RETURN_IF_ERROR(own.Begin());
    const int32_t context = ContextOf(bytes);
    std::vector<double> arithmetic;
    for (int round = 0; round < kRounds; ++round) {  // a host's other work comes and goes
      SKEIN_ASSIGN_OR_RETURN(const double fewer, own.TimePosition(context));
      SKEIN_ASSIGN_OR_RETURN(const double all, shared.TimePosition(context));
      arithmetic.push_back(std::clamp((all - fewer) * queries / (queries - 1), 0.0, all * 0.95));
    }
    return Summarise(std::move(arithmetic)).median;
  }

  BenchDevice& device_;
  const AttentionProbeOptions& options_;
  StepTimer& timer_;
  int32_t sequences_ = 0;
};

// A GPU hides arithmetic behind its reads.
absl::StatusOr<std::vector<topology::AttentionRate>> ProbeGpu(StepTimer& timer) {
  const int32_t most = kGpuSequences[std::size(kGpuSequences) - 1];
  SKEIN_ASSIGN_OR_RETURN(const auto model, timer.Load(kLargeOnGpu, DType::kBF16,
                                                      {.sequences = most, .context = kGpuContext}));
  std::vector<topology::AttentionRate> rates;
  for (const int32_t sequences : kGpuSequences) {
    Contexts contexts(timer, *model, sequences);
    SKEIN_RETURN_IF_ERROR(contexts.Begin());
    SKEIN_ASSIGN_OR_RETURN(const double seconds, contexts.TimePosition(kGpuContext));
    rates.push_back(
        {.rows = sequences, .bytes_per_s = static_cast<double>(model->cost().kv_bytes) / seconds});
  }
  return rates;
}

}  // namespace

absl::StatusOr<ProbedAttention> ProbeAttention(BenchDevice& device,
                                               const AttentionProbeOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(StepTimer timer, StepTimer::Start(device, options.progress));
  ProbedAttention probed;
  SKEIN_ASSIGN_OR_RETURN(
      probed.rates, device.is_gpu() ? ProbeGpu(timer) : CoreProbe(device, options, timer).Run());
  probed.spread = timer.spread();
  return probed;
}

}  // namespace skein::worker
