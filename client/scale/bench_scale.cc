#include "client/scale/bench_scale.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/device_kind.h"
#include "base/file.h"
#include "base/flags/flags.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "client/find_worker.h"
#include "client/read_model.h"
#include "client/run_program.h"
#include "client/scale/scaling.h"
#include "parallel/cost/replica_cost.h"
#include "parallel/planner/planner.h"
#include "parallel/planner/predict_plan.h"
#include "proto/convert/machines_json.h"
#include "topology/machine.h"
#include "topology/topology.h"

namespace skein::client {
namespace {

constexpr int32_t kMostRanks = 1024;
constexpr int32_t kMostBatch = 4096;
constexpr int64_t kMostTokens = 1 << 20;

// A layout that is to be measured: a run for each batch.
struct Measurement {
  plan::Layout layout;
  int32_t threads = 0;       // of a rank, on cores; 0: it has a GPU
  std::vector<size_t> runs;  // of the experiment
};

class Experiment {
 public:
  Experiment(const BenchScaleFlags& flags, std::string worker, plan::ModelFacts model)
      : flags_(flags), worker_(std::move(worker)), model_(std::move(model)) {
    result_.model = model_.name;
    result_.weak = flags.weak;
    result_.prompt_tokens = flags.prompt_tokens;
    result_.steps = flags.steps;
  }

  absl::Status Run() {
    for (const int32_t ranks : flags_.ranks) SKEIN_RETURN_IF_ERROR(Predict(ranks));
    absl::PrintF("predictions for %s, %d tokens of prompt\n%s\n", result_.model,
                 result_.prompt_tokens, FormatScaling(result_));
    std::fflush(stdout);
    SKEIN_RETURN_IF_ERROR(Write());
    for (const Measurement& measurement : measurements_) {
      SKEIN_RETURN_IF_ERROR(Measure(measurement));
      SKEIN_RETURN_IF_ERROR(Write());
    }
    absl::PrintF("predicted and measured\n%s", FormatScaling(result_));
    if (!flags_.svg_file.empty()) {
      SKEIN_RETURN_IF_ERROR(Annotate(WriteFile(flags_.svg_file, ScalingSvg(result_)), "--svg"));
    }
    return CheckErrors();
  }

 private:
  // mpirun and what stands behind it, for so many ranks.
  std::vector<std::string> Command(int32_t ranks, const std::vector<std::string>& arguments) const {
    std::vector<std::string> command = {"mpirun"};
    for (const absl::string_view word : absl::StrSplit(flags_.mpirun, ' ', absl::SkipEmpty())) {
      command.emplace_back(word);
    }
    command.insert(command.end(), {"-np", absl::StrCat(ranks), worker_});
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }
  absl::StatusOr<std::string> Output(int32_t ranks, const std::vector<std::string>& arguments) {
    const std::vector<std::string> command = Command(ranks, arguments);
    absl::FPrintF(stderr, "%s\n", absl::StrJoin(command, " "));
    absl::StatusOr<std::string> output = OutputOf(command);
    if (output.ok()) return output;
    return absl::Status(output.status().code(),
                        absl::StrCat(output.status().message(),
                                     "; the command stands above, as does what it said"));
  }

  int32_t BatchOf(int32_t batch, int32_t ranks) const {
    return flags_.weak ? batch * ranks : batch;
  }

  absl::Status Predict(int32_t ranks) {
    SKEIN_ASSIGN_OR_RETURN(const std::string json, Output(ranks, {"probe"}));
    const absl::StatusOr<topology::Topology> measured = convert::TopologyFromJson(json);
    if (!measured.ok()) return Annotate(measured.status(), "what `worker probe` printed");
    SKEIN_ASSIGN_OR_RETURN(const topology::Machine machine, topology::MachineOf(*measured, ranks));
    const topology::Topology topology = topology::TopologyOf(machine);
    std::vector<std::pair<plan::Plan, int32_t>> layouts;  // and the threads of a rank
    absl::Status last;
    for (int32_t tp_size = ranks; tp_size > 0; --tp_size) {
      if (ranks % tp_size != 0) continue;
      plan::Constraints constraints = {.layout = {tp_size, ranks / tp_size, 1}};
      constraints.context_length =
          std::min(model_.config.max_position_embeddings, flags_.prompt_tokens + flags_.steps + 1);
      constraints.max_num_seqs =
          BatchOf(*std::max_element(flags_.batches.begin(), flags_.batches.end()), ranks);
      constraints.goal.workload = {.prompt_tokens = flags_.prompt_tokens,
                                   .output_tokens = flags_.steps,
                                   .concurrency = constraints.max_num_seqs};
      absl::StatusOr<plan::Planning> planning = plan::PlanJob(machine, model_, constraints);
      if (!planning.ok()) {
        last = planning.status();
        continue;
      }
      result_.spread = std::max(result_.spread, planning->plans.front().prediction.spread);
      layouts.emplace_back(std::move(planning->plans.front()), 0);
    }
    if (layouts.empty()) return Annotate(last, absl::StrCat("--np: ", ranks, " ranks"));
    std::map<plan::Layout, Measurement,
             decltype([](const auto& a, const auto& b) { return a.tp_size > b.tp_size; })>
        measurements;
    for (const int32_t batch : flags_.batches) {
      std::vector<ScalingRun> runs;
      for (const auto& [plan, unused] : layouts) {
        SKEIN_ASSIGN_OR_RETURN(const absl::Duration step,
                               PredictStep(machine, topology, plan, BatchOf(batch, ranks)));
        runs.push_back({.layout = plan.layout,
                        .batch = BatchOf(batch, ranks),
                        .predicted_s = absl::ToDoubleSeconds(step)});
      }
      std::stable_sort(runs.begin(), runs.end(),
                       [](const auto& a, const auto& b) { return a.predicted_s < b.predicted_s; });
      runs.front().chosen = true;
      if (!flags_.all) runs.resize(1);
      for (ScalingRun& run : runs) {
        Measurement& measurement = measurements[run.layout];
        measurement.layout = run.layout;
        measurement.runs.push_back(result_.runs.size());
        if (machine.devices.front().kind == DeviceKind::kCpu) {
          const auto of = std::find_if(layouts.begin(), layouts.end(), [&](const auto& other) {
            return other.first.layout == run.layout;
          });
          measurement.threads = of->first.ranks.front().threads;
        }
        result_.runs.push_back(std::move(run));
      }
    }
    for (auto& [layout, measurement] : measurements)
      measurements_.push_back(std::move(measurement));
    return absl::OkStatus();
  }

  // As the worker's bench decodes: a micro-batch a stage.
  absl::StatusOr<absl::Duration> PredictStep(const topology::Machine& machine,
                                             const topology::Topology& topology,
                                             const plan::Plan& plan, int32_t batch) const {
    cost::Replica replica =
        plan::ReplicaOfPlan(machine, topology, model_.config, plan, /*dp_rank=*/0,
                            {.prompt_tokens = 1, .output_tokens = 0, .concurrency = batch});
    replica.sequences = batch;
    replica.micro_batches = std::min(batch, plan.layout.pp_size);
    return cost::DecodeStepTime(topology, model_.config, replica,
                                flags_.prompt_tokens + flags_.steps / 2);
  }

  absl::Status Measure(const Measurement& measurement) {
    std::vector<std::string> batches;
    for (const size_t run : measurement.runs) {
      batches.push_back(absl::StrCat(result_.runs[run].batch));
    }
    const plan::Layout& layout = measurement.layout;
    std::vector<std::string> arguments = {
        "bench",
        "decode",
        absl::StrCat("--model=", flags_.model),
        absl::StrFormat("--layout=tp=%d,pp=%d", layout.tp_size, layout.pp_size),
        absl::StrCat("--batch=", absl::StrJoin(batches, ",")),
        absl::StrCat("--prompt-tokens=", flags_.prompt_tokens),
        absl::StrCat("--decode-tokens=", flags_.steps),
        "--json=-"};
    if (measurement.threads > 0)
      arguments.push_back(absl::StrCat("--threads=", measurement.threads));
    SKEIN_ASSIGN_OR_RETURN(const std::string output, Output(layout.ranks(), arguments));
    // Libraries may have said something before.
    const absl::StatusOr<nlohmann::json> report =
        ParseJson(std::string_view(output).substr(std::min(output.find('{'), output.size())));
    if (!report.ok()) return Annotate(report.status(), "what `worker bench decode` printed");
    const auto rows = report->find("rows");
    if (rows == report->end() || !rows->is_array() || rows->size() != measurement.runs.size()) {
      return absl::InternalError("`worker bench decode` printed other rows than it was asked for");
    }
    for (size_t i = 0; i < measurement.runs.size(); ++i) {
      const nlohmann::json& seconds = (*rows)[i]["seconds"];
      if (!seconds.is_number() || !(seconds.get<double>() > 0)) {
        return absl::InternalError("`worker bench decode` printed a row without its time");
      }
      result_.runs[measurement.runs[i]].step_s = seconds.get<double>();
    }
    return absl::OkStatus();
  }

  absl::Status Write() const {
    if (flags_.json_file.empty()) return absl::OkStatus();
    return Annotate(WriteFile(flags_.json_file, ScalingToJson(result_)), "--json");
  }

  absl::Status CheckErrors() const {
    if (flags_.max_error == 0) return absl::OkStatus();
    const std::vector<double> errors = result_.Errors();
    const double worst = *std::max_element(errors.begin(), errors.end());
    if (100 * worst <= flags_.max_error) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrFormat("--max-error: a step was predicted with an error of %.1f%%", 100 * worst));
  }

  const BenchScaleFlags& flags_;
  const std::string worker_;
  const plan::ModelFacts model_;
  ScalingExperiment result_;
  std::vector<Measurement> measurements_;
};

absl::Status Run(const BenchScaleFlags& flags) {
  for (const auto& [name, file] :
       {std::pair("--json", &flags.json_file), std::pair("--svg", &flags.svg_file)}) {
    if (!file->empty()) SKEIN_RETURN_IF_ERROR(Annotate(CheckWritable(*file), name));
  }
  SKEIN_ASSIGN_OR_RETURN(std::string worker, FindWorker(flags.worker));
  absl::StatusOr<plan::ModelFacts> model = ReadModel(flags.model);
  if (!model.ok()) return Annotate(model.status(), "--model");
  return Experiment(flags, std::move(worker), *std::move(model)).Run();
}

}  // namespace

void DeclareBenchScale(CLI::App& command, BenchScaleFlags& flags) {
  command.add_option("--model", flags.model, "A model's folder, or synthetic:NAME")
      ->check(NotEmpty())
      ->capture_default_str();
  command.add_option("--np", flags.ranks, "Numbers of ranks: 1,2,4")
      ->delimiter(',')
      ->check(InRange(1, kMostRanks))
      ->default_str("1,2");
  CLI::Option* const strong = command.add_flag(
      "--strong", flags.strong, "The same batch for all numbers of ranks, as by default");
  command.add_flag("--weak", flags.weak, "So many sequences for each rank instead")
      ->excludes(strong);
  command
      .add_option("--batch", flags.batches, "Sequences that decode together; 1,8 makes two runs")
      ->delimiter(',')
      ->check(InRange(1, kMostBatch))
      ->default_str("1");
  command.add_flag("--all", flags.all,
                   "Measure all layouts of each number of ranks, not the best predicted one alone");
  command
      .add_option("--prompt-tokens", flags.prompt_tokens,
                  "Of each sequence, before the steps that are timed")
      ->check(InRange(int64_t{1}, kMostTokens))
      ->capture_default_str();
  command.add_option("--decode-tokens", flags.steps, "Steps to time")
      ->check(InRange(4, 1 << 20))
      ->capture_default_str();
  command.add_option("--mpirun", flags.mpirun,
                     "Further arguments of mpirun, like \"--hostfile hosts\", for several hosts");
  command
      .add_option("--max-error", flags.max_error,
                  "Fail where a prediction is further from what is measured, in percent")
      ->check(InRange(0.0, 1e6));
  command.add_option("--worker", flags.worker, "The worker program; default: beside this one")
      ->check(NotEmpty());
  command
      .add_option("--json", flags.json_file,
                  "Write the runs into this file: predictions before anything is measured")
      ->check(NotEmpty());
  command.add_option("--svg", flags.svg_file, "Draw them into this SVG file")->check(NotEmpty());
}

int BenchScale(const BenchScaleFlags& flags) {
  const absl::Status status = Run(flags);
  if (status.ok()) return kExitOk;
  absl::FPrintF(stderr, "skein: %s\n", std::string(status.message()));
  return kExitError;
}

}  // namespace skein::client
