#include "worker/bench/model_bench.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kernels/cpu/ceilings.h"
#include "parallel/plan/shard.h"
#include "topology/host/cores.h"
#include "worker/bench/bench_model.h"

namespace skein::worker {
namespace {

constexpr int32_t kGpuSteps = 512;
constexpr int32_t kCpuSteps = 16;  // they vary less, and take longer
// Of a prompt at once, before steps of decoding: more takes memory that long contexts need.
constexpr int32_t kPromptRows = 2048;
constexpr int kGpuPrompts = 7;
constexpr int kCpuPrompts = 3;
// Of decoding on a GPU, which are not counted: the first one's order is not sent ahead.
constexpr int32_t kWarmUpSteps = 2;
// Of decoding on cores: several of a scheduler's slices.
constexpr absl::Duration kTurns = absl::Milliseconds(40);

// A stage's part of a step, over its shards and replicas: each replica reads weights of its own.
struct StageWork {
  StepCost cost;
  Ceilings ceilings;
};

// What both benches do around their rows.
class ModelBench {
 public:
  ModelBench(const char* command, const ModelBenchOptions& options)
      : command_(command), options_(options) {}

  absl::Status Open() {
    SKEIN_ASSIGN_OR_RETURN(ranks_, BenchRanks::Start(options_.ranks));
    if (ranks_->prints()) SKEIN_RETURN_IF_ERROR(CheckJsonFile(options_.json_file));
    SKEIN_ASSIGN_OR_RETURN(device_, OpenBenchDevice(options_.device, *ranks_));
    if (options_.deterministic && !device_.is_gpu()) {
      return absl::InvalidArgumentError("--deterministic is for GPUs; CPUs compute so anyway");
    }
    return absl::OkStatus();
  }
  BenchDevice& device() { return device_; }
  BenchRanks& ranks() { return *ranks_; }
  // Nothing of MPI is waited for any more.
  void Abandon() {
    if (ranks_ != nullptr) ranks_->Abandon();
  }

  absl::Status Load(BenchModelOptions of) {
    of.model = options_.model;
    of.deterministic = options_.deterministic;
    SKEIN_ASSIGN_OR_RETURN(model_, BenchModel::Load(of, device_, *ranks_));
    SKEIN_RETURN_IF_ERROR(GatherStages());
    report_.emplace(command_, options_.model, device_.machine);
    if (!ranks_->prints()) return absl::OkStatus();
    report_->Begin();
    if (ranks_->size() > 1) {
      report_->Note(absl::StrCat(ranks_->layout().ToString(), ", of which this is rank 0"),
                    {{"tp_size", ranks_->layout().tp_size},
                     {"pp_size", ranks_->layout().pp_size},
                     {"dp_size", ranks_->layout().dp_size},
                     {"ep_size", ranks_->layout().ep_size}});
    }
    if (!ranks_->shared().empty()) report_->Note(ranks_->shared(), {});
    const double seconds = absl::ToDoubleSeconds(model_->load_time());
    const auto bytes = static_cast<double>(model_->bytes_loaded());
    report_->Note(
        absl::StrFormat("weights of %s %s in %.3f s, %s", FormatBytes(model_->bytes_loaded()),
                        model_->made() ? "made on the device" : "loaded", seconds,
                        FormatBytesPerSecond(bytes / seconds)),
        {{"load_bytes", bytes}, {"load_seconds", seconds}});
    return absl::OkStatus();
  }
  BenchModel& model() { return *model_; }
  const std::vector<StageWork>& stages() const { return stages_; }

  // A row whose seconds are this rank's. All ranks add it.
  absl::Status Add(BenchRow row) {
    SKEIN_ASSIGN_OR_RETURN(row.seconds, ranks_->LongestOfWhoDraw(row.seconds));
    if (row.ceilings.bytes_per_s == 0) row.ceilings = device_.machine.ceilings;
    if (ranks_->prints()) report_->Add(std::move(row));
    return absl::OkStatus();
  }

  absl::Status Finish() const {
    if (!ranks_->prints()) return absl::OkStatus();
    SKEIN_RETURN_IF_ERROR(report_->WriteJson(options_.json_file));
    return report_->CheckFractions(options_.min_fraction);
  }

 private:
  absl::Status GatherStages() {
    const StageWork mine = {model_->cost(), device_.machine.ceilings};
    std::vector<StageWork> all(ranks_->size());
    SKEIN_RETURN_IF_ERROR(
        ranks_->Gather({reinterpret_cast<const std::byte*>(&mine), sizeof(mine)},
                       {reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(mine)}));
    stages_.resize(ranks_->layout().pp_size);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const plan::Layout& layout = ranks_->layout();
      StageWork& stage = stages_[rank / layout.tp_size % layout.pp_size];
      if (rank < all.size() / layout.dp_size) {
        stage.cost.Add(all[rank].cost);
      } else {
        stage.cost.weight_bytes += all[rank].cost.weight_bytes;
      }
      stage.ceilings.bytes_per_s += all[rank].ceilings.bytes_per_s;
      stage.ceilings.operations_per_s += all[rank].ceilings.operations_per_s;
      stage.ceilings.byte_operations_per_s += all[rank].ceilings.byte_operations_per_s;
    }
    return absl::OkStatus();
  }

  const char* const command_;
  const ModelBenchOptions& options_;
  std::unique_ptr<BenchRanks> ranks_;
  BenchDevice device_;
  std::unique_ptr<BenchModel> model_;
  std::vector<StageWork> stages_;
  std::optional<BenchReport> report_;
};

// Those of `all` operations of which `of_bytes` multiply bytes.
Ceilings Mixed(double all, double of_bytes, Ceilings ceilings) {
  const double bytes_per_s = std::exchange(ceilings.byte_operations_per_s, 0);
  if (of_bytes == 0 || bytes_per_s == 0) return ceilings;
  ceilings.operations_per_s =
      all / (of_bytes / bytes_per_s + (all - of_bytes) / ceilings.operations_per_s);
  return ceilings;
}

// Seconds that a row takes at its ceilings.
double BoundSeconds(const BenchRow& row) {
  return std::max(row.bytes / row.ceilings.bytes_per_s,
                  row.operations / row.ceilings.operations_per_s);
}

class DecodeBench {
 public:
  explicit DecodeBench(const DecodeBenchOptions& options)
      : options_(options), bench_("decode", options.of) {}

  absl::Status Run() {
    const absl::Status status = Measure();
    if (!status.ok()) bench_.Abandon();
    return status;
  }

 private:
  absl::Status Measure() {
    SKEIN_RETURN_IF_ERROR(bench_.Open());
    SKEIN_RETURN_IF_ERROR(CheckBatches());
    steps_ = options_.steps;
    if (steps_ == 0) steps_ = bench_.device().is_gpu() ? kGpuSteps : kCpuSteps;
    SKEIN_RETURN_IF_ERROR(bench_.Load({.sequences = OfReplica(*std::max_element(
                                           options_.batches.begin(), options_.batches.end())),
                                       .most_rows = std::min(options_.prompt_tokens, kPromptRows),
                                       .most_tokens = options_.prompt_tokens + steps_ + 1,
                                       .kv_dtype = options_.kv_dtype}));
    for (const int32_t batch : options_.batches) {
      for (int32_t slot = 0; slot < OfReplica(batch); ++slot) {
        ShowProgress(absl::StrFormat("batch %d: prompt %d", batch, slot + 1));
        SKEIN_RETURN_IF_ERROR(model().Prefill(slot, options_.prompt_tokens));
      }
      ShowProgress(absl::StrFormat("batch %d: %d steps", batch, steps_));
      BenchRow row = {.name = absl::StrCat("decode, batch ", batch),
                      .fields = {{"batch", batch},
                                 {"prompt_tokens", options_.prompt_tokens},
                                 {"decode_tokens", steps_}},
                      .tokens = static_cast<double>(batch)};
      const bool queued = bench_.device().is_gpu() || bench_.ranks().size() > 1;
      SKEIN_RETURN_IF_ERROR(bench_.ranks().Barrier());  // replicas are timed at once
      SKEIN_RETURN_IF_ERROR(queued ? TimeQueued(batch, row) : TimeBesideReads(batch, row));
      SKEIN_RETURN_IF_ERROR(bench_.Add(std::move(row)));
    }
    return bench_.Finish();
  }

  BenchModel& model() { return bench_.model(); }
  // The sequences of a batch that this replica decodes.
  int32_t OfReplica(int32_t batch) {
    const BenchRanks& ranks = bench_.ranks();
    return static_cast<int32_t>(
        plan::SequencesOfReplica(batch, ranks.layout().dp_size, ranks.self().dp_rank));
  }
  absl::Status CheckBatches() {
    const int32_t least = *std::min_element(options_.batches.begin(), options_.batches.end());
    const int32_t replicas = bench_.ranks().layout().dp_size;
    if (least >= replicas) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--batch: ", FormatCount(least, "sequence"), " for ", replicas, " replicas"));
  }

  // Positions that a step's rows attend to, on average over steps [first, end).
  double MeanContext(int32_t first, int32_t end) const {
    return options_.prompt_tokens + 1 + (first + end - 1) / 2.0;
  }
  double Bytes(int32_t batch, double context) {
    const StepCost& cost = model().cost();
    return static_cast<double>(cost.weight_bytes) +
           batch * context * static_cast<double>(cost.kv_bytes);
  }
  // Of the stage that takes longest, which reads its weights for each micro-batch.
  void SetWork(int32_t batch, double context, BenchRow& row) {
    const plan::Layout& layout = bench_.ranks().layout();
    int64_t micro_batches = 0;  // of all replicas
    for (int32_t dp_rank = 0; dp_rank < layout.dp_size; ++dp_rank) {
      micro_batches += std::min<int64_t>(plan::SequencesOfReplica(batch, layout.dp_size, dp_rank),
                                         layout.pp_size);
    }
    double longest = 0;
    for (const auto& [cost, ceilings] : bench_.stages()) {
      BenchRow stage = {.ceilings = ceilings};
      stage.bytes = static_cast<double>(micro_batches) *
                        static_cast<double>(cost.weight_bytes / layout.dp_size) +
                    batch * context * static_cast<double>(cost.kv_bytes);
      stage.operations =
          batch * (cost.flops_per_row + cost.flops_per_output + context * cost.flops_per_pair);
      stage.ceilings = Mixed(stage.operations,
                             batch * (cost.byte_ops_per_row + cost.byte_ops_per_output), ceilings);
      if (BoundSeconds(stage) < longest) continue;
      longest = BoundSeconds(stage);
      row.bytes = stage.bytes;
      row.operations = stage.operations;
      row.ceilings = stage.ceilings;
    }
  }

  // A sample is the mean of two steps: there are two batches, in turn. On cores that ranks share it
  // is that of as many as take kTurns, in which each rank has its turn.
  absl::Status TimeQueued(int32_t batch, BenchRow& row) {
    SetWork(batch, MeanContext(kWarmUpSteps, steps_), row);
    const int32_t sequences = OfReplica(batch);
    std::vector<absl::Time> ends;
    model().stage().Begin(model().DecodeOrder(sequences));
    for (int32_t step = 0; step < steps_; ++step) {
      if (step + 1 < steps_) model().stage().Begin(model().DecodeOrder(sequences));
      SKEIN_RETURN_IF_ERROR(model().Finish());
      ends.push_back(absl::Now());
    }
    size_t window = 2;
    if (bench_.device().crowded) {
      const size_t steps = ends.size() - kWarmUpSteps;
      const double fit = absl::FDivDuration(kTurns * static_cast<double>(steps),
                                            ends.back() - ends[kWarmUpSteps - 1]);
      window = std::clamp(static_cast<size_t>(fit), window, steps);
    }
    std::vector<double> seconds;
    for (size_t step = kWarmUpSteps + window - 1; step < ends.size(); ++step) {
      seconds.push_back(absl::ToDoubleSeconds(ends[step] - ends[step - window]) /
                        static_cast<double>(window));
    }
    row.samples = static_cast<int>(seconds.size());
    row.seconds = Median(std::move(seconds));
    return absl::OkStatus();
  }

  // Where a cache may hold what steps read, it is left to them, and they are held against reading
  // as many bytes over and over.
  absl::Status TimeBesideReads(int32_t batch, BenchRow& row) {
    const bool cached = Bytes(batch, MeanContext(steps_ - 1, steps_)) <=
                        static_cast<double>(topology::AffinityCacheBytes().value_or(0));
    if (cached && options_.of.min_fraction > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("--min-fraction: what a step of ", options_.of.model,
                       " reads may stay in a cache; take a larger model"));
    }
    SetWork(batch, MeanContext(0, steps_), row);
    // A MiB for each thread, the least that it reads.
    const int64_t probe_bytes =
        cached ? std::max(static_cast<int64_t>(row.bytes), int64_t{bench_.device().threads} << 20)
               : BytesBeyondCaches();
    const int threads = bench_.device().threads;
    SKEIN_ASSIGN_OR_RETURN(
        kernels::ReadProbe probe,
        kernels::ReadProbe::Create(threads, probe_bytes, topology::CoresOfThreads(threads)));
    std::vector<double> reads;
    const auto read = [&](int passes) {
      for (int pass = 0; pass < passes; ++pass) reads.push_back(probe.Pass());
    };
    std::vector<double> seconds;
    std::vector<double> fractions;
    if (!cached) read(1);
    for (int32_t step = 0; step < steps_; ++step) {
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration time,
                             model().TimeStep(model().DecodeOrder(batch)));
      seconds.push_back(absl::ToDoubleSeconds(time));
      if (cached) continue;
      read(1);
      const double around = (reads[reads.size() - 2] + reads.back()) / 2;
      fractions.push_back(Bytes(batch, MeanContext(step, step + 1)) / seconds.back() / around);
    }
    if (cached) read(kCachedReads);
    if (cached) row.name += ", cached";
    row.samples = steps_;
    row.seconds = Median(std::move(seconds));
    row.ceilings.bytes_per_s = Median(std::move(reads));
    if (BoundOf(row) == Bound::kBytes && !cached) row.fraction = Median(std::move(fractions));
    return absl::OkStatus();
  }

  static constexpr int kCachedReads = 101;

  const DecodeBenchOptions& options_;
  ModelBench bench_;
  int32_t steps_ = 0;
};

}  // namespace

absl::Status RunDecodeBench(const DecodeBenchOptions& options) {
  return DecodeBench(options).Run();
}

namespace {

absl::Status MeasurePrefill(const PrefillBenchOptions& options, ModelBench& bench) {
  SKEIN_RETURN_IF_ERROR(bench.Open());
  if (bench.ranks().layout().dp_size > 1) {
    return absl::InvalidArgumentError("--layout: one replica computes a prompt: leave dp out");
  }
  const int32_t most =
      *std::max_element(options.prompt_tokens.begin(), options.prompt_tokens.end());
  SKEIN_RETURN_IF_ERROR(bench.Load({.most_rows = most, .most_tokens = most + 1}));
  BenchModel& model = bench.model();
  for (const int32_t tokens : options.prompt_tokens) {
    const int prompts = bench.device().is_gpu() ? kGpuPrompts : kCpuPrompts;
    std::vector<double> seconds;
    for (int prompt = 0; prompt <= prompts; ++prompt) {  // the first one is the warm-up
      ShowProgress(absl::StrFormat("prompt of %d: %d of %d", tokens, prompt, prompts));
      SKEIN_RETURN_IF_ERROR(bench.ranks().Barrier());
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration time,
                             model.TimeStep(model.PrefillOrder(0, tokens)));
      if (prompt > 0) seconds.push_back(absl::ToDoubleSeconds(time));
    }
    BenchRow row = {.name = absl::StrCat("prefill of ", tokens),
                    .fields = {{"prompt_tokens", tokens}},
                    .seconds = Median(std::move(seconds)),
                    .samples = prompts,
                    .tokens = static_cast<double>(tokens),
                    .ceilings = bench.stages()[0].ceilings};
    const double pairs = 0.5 * tokens * (tokens + 1.0);
    double byte_operations = 0;
    for (const StageWork& stage : bench.stages()) {
      const StepCost& cost = stage.cost;
      row.bytes += static_cast<double>(cost.weight_bytes + tokens * cost.kv_bytes);
      row.operations +=
          tokens * cost.flops_per_row + cost.flops_per_output + pairs * cost.flops_per_pair;
      byte_operations += tokens * cost.byte_ops_per_row + cost.byte_ops_per_output;
    }
    row.ceilings = Mixed(row.operations, byte_operations, row.ceilings);
    SKEIN_RETURN_IF_ERROR(bench.Add(std::move(row)));
  }
  return bench.Finish();
}

}  // namespace

absl::Status RunPrefillBench(const PrefillBenchOptions& options) {
  ModelBench bench("prefill", options.of);
  const absl::Status status = MeasurePrefill(options, bench);
  if (!status.ok()) bench.Abandon();
  return status;
}

}  // namespace skein::worker
