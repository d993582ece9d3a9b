#include "worker/bench/bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "model/synthetic/synthetic.h"
#include "parallel/program/rank_program.h"
#include "topology/host/cores.h"
#include "worker/engine/stage.h"
#include "worker/loader/shard_loader.h"

namespace skein::worker {
namespace {

constexpr int64_t kProbeBytes = int64_t{1} << 30;     // more than caches hold
constexpr int64_t kCachedBytes = int64_t{256} << 20;  // what they may hold
constexpr int64_t kPageSize = 16;
constexpr int kPrefillRuns = 3;

template <typename T>
T Median(std::vector<T> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// The work that one step is held against.
struct StepCost {
  int64_t weight_bytes = 0;     // read once a step, however many rows it has
  double flops_per_row = 0;     // of products over every row
  double flops_per_output = 0;  // of the output matrix, over rows with logits
};

StepCost CostOf(const plan::RankProgram& program, const LoadedShard& shard) {
  StepCost cost;
  for (const kernels::Op& op : program.program.ops) {
    const auto* matmul = std::get_if<kernels::MatMulOp>(&op);
    if (matmul == nullptr) continue;
    const kernels::WeightSpec& spec = program.program.weights[matmul->weight].spec;
    const double flops = 2.0 * static_cast<double>(spec.rows) * static_cast<double>(spec.cols);
    const bool tokens =
        program.program.buffers[matmul->in].rows == kernels::BufferSpec::Rows::kTokens;
    (tokens ? cost.flops_per_row : cost.flops_per_output) += flops;
    cost.weight_bytes += shard.weights->bytes(matmul->weight);
  }
  return cost;
}

// One rank that holds the whole model, driven without a scheduler.
class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options), threads_(options.threads) {}

  absl::Status Run() {
    if (threads_ == 0) {
      SKEIN_ASSIGN_OR_RETURN(threads_, topology::AffinityCores());
    }
    SKEIN_RETURN_IF_ERROR(Annotate(OpenModel(), "--model"));
    SKEIN_RETURN_IF_ERROR(Load());
    SKEIN_ASSIGN_OR_RETURN(const absl::Duration prefill, TimePrefill());
    SKEIN_RETURN_IF_ERROR(TimeDecode());
    if (cached_) SKEIN_RETURN_IF_ERROR(TimeCachedRead());
    SKEIN_ASSIGN_OR_RETURN(const double arithmetic, kernels::MeasureArithmetic(threads_));
    return Report(prefill, arithmetic);
  }

 private:
  void Progress(const std::string& what) const {
    if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K%s", what.c_str());
  }

  absl::Status OpenModel() {
    if (model::IsSyntheticSpec(options_.model)) {
      SKEIN_ASSIGN_OR_RETURN(model::SyntheticModel synthetic,
                             model::ParseSyntheticSpec(options_.model));
      config_ = synthetic.config;
      tensors_ = std::move(synthetic.weights);
    } else {
      SKEIN_ASSIGN_OR_RETURN(config_, model::LoadModelConfig(options_.model));
      SKEIN_ASSIGN_OR_RETURN(tensors_, model::OpenTensorSource(options_.model));
    }
    return absl::OkStatus();
  }

  absl::Status Load() {
    const int64_t length = options_.prompt_tokens + options_.decode_tokens + 1;
    if (length > config_.max_position_embeddings) {
      return absl::InvalidArgumentError(
          absl::StrCat("--prompt-tokens and --decode-tokens: ", length,
                       " tokens exceed the model's context of ", config_.max_position_embeddings));
    }
    pages_per_sequence_ = (length + kPageSize - 1) / kPageSize;
    SKEIN_ASSIGN_OR_RETURN(backend_, kernels::MakeCpuBackend({.threads = threads_}));
    SKEIN_ASSIGN_OR_RETURN(
        program_,
        plan::BuildRankProgram(config_, tensors_.get(),
                               {.layers = Range{0, config_.num_layers},
                                .page_size = kPageSize,
                                .pages = pages_per_sequence_ * std::max(options_.batch, 1)}));
    ShardLoadOptions load{.threads = threads_};
    load.progress = [this](int64_t done, int64_t total) {
      Progress(absl::StrFormat("loading %s: %d%%", options_.model, done * 100 / total));
    };
    SKEIN_ASSIGN_OR_RETURN(shard_, LoadShard(*tensors_, program_, *backend_, load));
    SKEIN_ASSIGN_OR_RETURN(kv_, backend_->AllocateKv(program_.kv));
    SKEIN_ASSIGN_OR_RETURN(
        executable_,
        backend_->Compile(program_.program,
                          {.rows = std::max<int64_t>(options_.prompt_tokens, options_.batch),
                           .outputs = options_.batch,
                           .slots = std::max(options_.batch, 1),
                           .slot_pages = pages_per_sequence_},
                          {.weights = shard_.weights.get(), .kv = kv_.get()}));
    SKEIN_RETURN_IF_ERROR(executable_->WarmUp());
    stage_ = std::make_unique<Stage>(StageOptions{.slots = std::max(options_.batch, 1)},
                                     program_.program, executable_.get());
    last_token_.resize(std::max(options_.batch, 1));
    cost_ = CostOf(program_, shard_);
    cached_ =
        DecodeBytes(options_.decode_tokens) <= static_cast<double>(sysconf(_SC_LEVEL3_CACHE_SIZE));
    return absl::OkStatus();
  }

  // Starts a sequence in `slot` and computes its prompt.
  absl::StatusOr<absl::Duration> Prefill(int32_t slot) {
    StepOrder order{.starts = {{.slot = slot, .sampling = {.temperature = 0}}}};
    kernels::SlotUpdate& update = order.updates.emplace_back(kernels::SlotUpdate{.slot = slot});
    for (int64_t i = 0; i < pages_per_sequence_; ++i) {
      update.pages.push_back(static_cast<int32_t>(slot * pages_per_sequence_ + i));
    }
    ChunkOrder chunk{.slot = slot, .draws = true};
    for (int i = 0; i < options_.prompt_tokens; ++i) {
      chunk.tokens.push_back(static_cast<int32_t>((i * 7919 + 17) % config_.vocab_size));
    }
    order.micro_batches = {{chunk}};
    return TimeStep(order);
  }

  absl::StatusOr<absl::Duration> TimeStep(const StepOrder& order) {
    const absl::Time begin = absl::Now();
    const StepResult result = stage_->Run(order);
    const absl::Duration time = absl::Now() - begin;
    SKEIN_RETURN_IF_ERROR(result.status);
    for (const kernels::SampledTokens& row : result.sampled) {
      if (!row.error.empty()) return absl::InternalError(row.error);
      last_token_[row.slot] = row.tokens.back().id;
    }
    return time;
  }

  absl::StatusOr<absl::Duration> TimePrefill() {
    std::vector<absl::Duration> times;
    for (int run = 0; run <= kPrefillRuns; ++run) {  // the first one is the warm-up
      Progress(absl::StrFormat("prefill %d of %d", run, kPrefillRuns));
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration time, Prefill(0));
      if (run > 0) times.push_back(time);
    }
    for (int32_t slot = 1; slot < options_.batch; ++slot) {
      SKEIN_RETURN_IF_ERROR(Prefill(slot).status());
    }
    return Median(times);
  }

  // Steps and plain reads take turns; where a cache holds what steps read, they are left to it.
  absl::Status TimeDecode() {
    SKEIN_ASSIGN_OR_RETURN(kernels::ReadProbe probe,
                           kernels::ReadProbe::Create(threads_, kProbeBytes));
    reads_.push_back(probe.Pass());
    for (int step = 0; step < options_.decode_tokens; ++step) {
      Progress(absl::StrFormat("decode %d of %d", step + 1, options_.decode_tokens));
      StepOrder order;
      std::vector<ChunkOrder>& chunks = order.micro_batches.emplace_back();
      for (int32_t slot = 0; slot < options_.batch; ++slot) {
        chunks.push_back({.slot = slot, .tokens = {last_token_[slot]}, .draws = true});
      }
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration time, TimeStep(order));
      decodes_.push_back(time);
      if (!cached_) reads_.push_back(probe.Pass());
    }
    return absl::OkStatus();
  }

  // Of as many bytes as a step reads, over and over.
  absl::Status TimeCachedRead() {
    constexpr int kPasses = 101;
    const int64_t bytes = std::max(static_cast<int64_t>(DecodeBytes(options_.decode_tokens / 2)),
                                   int64_t{threads_} << 20);  // a MiB each, the least
    SKEIN_ASSIGN_OR_RETURN(kernels::ReadProbe probe, kernels::ReadProbe::Create(threads_, bytes));
    std::vector<double> reads;
    for (int pass = 0; pass < kPasses; ++pass) reads.push_back(probe.Pass());
    cached_read_ = Median(reads);
    return absl::OkStatus();
  }

  // The bytes that the decode step `step` reads: weights, and keys and values of the context.
  double DecodeBytes(int step) const {
    const int64_t context = options_.prompt_tokens + step + 1;
    return static_cast<double>(cost_.weight_bytes + options_.batch * context * program_.kv.layers *
                                                        2 * program_.kv.kv_heads *
                                                        program_.kv.head_dim * 4);
  }

  // The share of the memory's read bandwidth around it at which a step reads: the median.
  double ReadFraction() const {
    std::vector<double> fractions;
    for (int step = 0; step < options_.decode_tokens; ++step) {
      const double rate = DecodeBytes(step) / absl::ToDoubleSeconds(decodes_[step]);
      fractions.push_back(rate / ((reads_[step] + reads_[step + 1]) / 2));
    }
    return Median(fractions);
  }

  absl::Status Report(absl::Duration prefill, double arithmetic) const {
    Progress("");
    const double decode_s = absl::ToDoubleSeconds(Median(decodes_));
    const double prefill_s = absl::ToDoubleSeconds(prefill);
    const double bytes = DecodeBytes(options_.decode_tokens / 2);
    const double fraction = cached_ ? 0 : ReadFraction();
    const double flops = cost_.flops_per_row * options_.prompt_tokens + cost_.flops_per_output;
    const auto [low, high] = std::minmax_element(reads_.begin(), reads_.end());
    absl::PrintF("%s, %d threads\n", options_.model, threads_);
    absl::PrintF("  read bandwidth   %s (median of plain reads of %s, %d in all; %.1f to %.1f)\n",
                 FormatBytesPerSecond(Median(reads_)), FormatBytes(kProbeBytes), reads_.size(),
                 *low / 1e9, *high / 1e9);
    absl::PrintF("  arithmetic       %.0f GFLOP/s (multiply-adds of registers)\n",
                 arithmetic / 1e9);
    const double step_flops = options_.batch * (cost_.flops_per_row + cost_.flops_per_output);
    const std::string bound =
        cached_ ? absl::StrFormat(
                      "%s, which caches may hold: %s, %.0f%% of plain reads of as much (%s); "
                      "%.0f GFLOP/s, %.0f%% of the arithmetic",
                      FormatBytes(bytes), FormatBytesPerSecond(bytes / decode_s),
                      bytes / decode_s / cached_read_ * 100, FormatBytesPerSecond(cached_read_),
                      step_flops / decode_s / 1e9, step_flops / decode_s / arithmetic * 100)
                : absl::StrFormat(
                      "bound by reading %s: %s, %.0f%% of the bandwidth right before "
                      "and after",
                      FormatBytes(bytes), FormatBytesPerSecond(bytes / decode_s), fraction * 100);
    absl::PrintF("  decode, batch %-3d %.2f tok/s, %.2f ms a step (median of %d); %s\n",
                 options_.batch, options_.batch / decode_s, decode_s * 1e3, decodes_.size(), bound);
    absl::PrintF(
        "  prefill of %-5d %.1f tok/s, %.0f ms; bound by arithmetic: %.0f GFLOP/s, "
        "%.0f%% of it\n",
        options_.prompt_tokens, options_.prompt_tokens / prefill_s, prefill_s * 1e3,
        flops / prefill_s / 1e9, flops / prefill_s / arithmetic * 100);
    if (cached_ && options_.min_read_fraction > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("--min-read-fraction: what a step of ", options_.model,
                       " reads may stay in a cache; take a larger model"));
    }
    if (fraction < options_.min_read_fraction) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "decode reads at %.0f%% of the memory's read bandwidth, asked were %.0f%%",
          fraction * 100, options_.min_read_fraction * 100));
    }
    return absl::OkStatus();
  }

  const BenchOptions options_;
  int threads_;
  model::ModelConfig config_;
  std::unique_ptr<model::TensorSource> tensors_;
  std::unique_ptr<kernels::Backend> backend_;
  plan::RankProgram program_;
  LoadedShard shard_;
  std::unique_ptr<kernels::KvCache> kv_;
  std::unique_ptr<kernels::Executable> executable_;
  std::unique_ptr<Stage> stage_;
  StepCost cost_;
  bool cached_ = false;     // what a step reads
  double cached_read_ = 0;  // bytes per second, where it is
  int64_t pages_per_sequence_ = 0;
  std::vector<int32_t> last_token_;      // by sequence
  std::vector<absl::Duration> decodes_;  // of the steps
  std::vector<double> reads_;            // bytes per second before the first step and after each
};

}  // namespace

absl::Status RunBench(const BenchOptions& options) { return Bench(options).Run(); }

}  // namespace skein::worker
