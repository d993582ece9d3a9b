#include "client/scale/bench_scale.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/bench/report.h"
#include "base/device_kind.h"
#include "base/file.h"
#include "base/flags/flags.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "client/find_worker.h"
#include "client/mpirun.h"
#include "client/read_model.h"
#include "client/scale/bench_output.h"
#include "client/scale/scaling.h"
#include "model/synthetic/synthetic.h"
#include "parallel/cost/replica_cost.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/shard.h"
#include "parallel/planner/job_placement.h"
#include "parallel/planner/planner.h"
#include "parallel/planner/predict_plan.h"
#include "proto/convert/machines_json.h"
#include "topology/machine.h"
#include "topology/topology.h"

namespace skein::client {
namespace {

constexpr int32_t kMostBatch = 1024;  // as the worker's bench has it
constexpr int64_t kMostTokens = 1 << 20;

// What a round measures: a step of one batch, or a prompt.
struct Subject {
  size_t run = 0;        // of the experiment's runs, or prompts
  double predicted = 0;  // seconds, for the round that goes on
};

// A layout that is to be measured, with all of its batches at once.
struct Measurement {
  plan::Plan plan;
  int32_t threads = 0;  // of a rank, on cores; 0: it has a GPU
  std::vector<Subject> steps;
  std::optional<Subject> prompt;
};

// Of all rounds, one of whose seconds may be known alone.
double MedianOf(const std::vector<ScalingRound>& rounds, double ScalingRound::* seconds,
                std::optional<double> newest = std::nullopt) {
  std::vector<double> all;
  for (const ScalingRound& round : rounds) all.push_back(round.*seconds);
  if (newest.has_value()) all.push_back(*newest);
  return Median(std::move(all));
}

class Experiment {
 public:
  Experiment(const BenchScaleFlags& flags, std::string worker, plan::ModelFacts model)
      : flags_(flags), worker_(std::move(worker)), model_(std::move(model)) {
    result_ = {.model = model_.name,
               .weak = flags.weak,
               .prompt_tokens = flags.prompt_tokens,
               .steps = flags.steps,
               .rounds = flags.rounds};
  }

  absl::Status Run() {
    SKEIN_RETURN_IF_ERROR(CheckSizes());
    const absl::Status status = RunRounds();
    // What was measured before an error is told.
    if (!status.ok() && result_.Errors().empty()) return status;
    absl::PrintF("predicted and measured\n%s", FormatScaling(result_));
    if (!flags_.svg_file.empty()) {
      SKEIN_RETURN_IF_ERROR(Annotate(WriteFile(flags_.svg_file, ScalingSvg(result_)), "--svg"));
    }
    return status.ok() ? CheckErrors() : status;
  }

 private:
  absl::Status RunRounds() {
    for (int32_t round = 0; round < flags_.rounds; ++round) {
      for (const int32_t ranks : flags_.ranks) SKEIN_RETURN_IF_ERROR(RunRound(ranks, round));
    }
    return absl::OkStatus();
  }

  absl::Status RunRound(int32_t ranks, int32_t round) {
    SKEIN_ASSIGN_OR_RETURN(Probed probed, Probe(ranks));
    if (round == 0) SKEIN_RETURN_IF_ERROR(Choose(ranks, probed));
    std::vector<Measurement*> measurements;
    for (Measurement& measurement : measurements_) {
      if (measurement.plan.layout.ranks() != ranks) continue;
      SKEIN_RETURN_IF_ERROR(Predict(probed, measurement));
      measurements.push_back(&measurement);
    }
    MarkChosen(result_.runs);  // by one probe, as a planner chooses
    if (round == 0) PrintPredictions(ranks);
    for (Measurement* const measurement : measurements) {
      // What cores do changes within seconds where a host has other work.
      if (measurement != measurements.front() && probed.on_cores()) {
        SKEIN_ASSIGN_OR_RETURN(probed, Probe(ranks));
        SKEIN_RETURN_IF_ERROR(Predict(probed, *measurement));
      }
      SKEIN_RETURN_IF_ERROR(Write());
      SKEIN_RETURN_IF_ERROR(Measure(*measurement));
      SKEIN_RETURN_IF_ERROR(Write());
    }
    return absl::OkStatus();
  }

  // What hosts do with so many ranks.
  struct Probed {
    topology::Machine machine;
    topology::Topology topology;

    bool on_cores() const { return machine.devices.front().kind == DeviceKind::kCpu; }
  };

  int32_t BatchOf(int32_t batch, int32_t ranks) const {
    return flags_.weak ? batch * ranks : batch;
  }
  int64_t Context() const { return flags_.prompt_tokens + flags_.steps + 1; }

  // What would fail behind all probes.
  absl::Status CheckSizes() {
    const int32_t most = BatchOf(flags_.batches.back(), flags_.ranks.back());
    if (most > kMostBatch) {
      return absl::InvalidArgumentError(
          absl::StrCat("--batch, --np: ", most, " sequences are more than ", kMostBatch));
    }
    int64_t& longest = model_.config.max_position_embeddings;
    // Random weights know no positions.
    if (model::IsSyntheticSpec(flags_.model)) longest = std::max(longest, Context());
    if (Context() <= longest) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("--prompt-tokens, --decode-tokens: ", Context(),
                                                   " tokens are more than the model's context of ",
                                                   longest));
  }

  // Of the worker, as so many ranks.
  absl::StatusOr<std::string> Output(int32_t ranks, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), worker_);
    const std::vector<std::string> command = RanksOf(ranks, flags_.mpirun, arguments);
    absl::FPrintF(stderr, "mpirun %s\n", absl::StrJoin(command, " "));
    return OutputOfMpirun(command);
  }

  absl::StatusOr<Probed> Probe(int32_t ranks) {
    SKEIN_ASSIGN_OR_RETURN(const std::string json, Output(ranks, {"probe"}));
    const absl::StatusOr<topology::Topology> measured = convert::TopologyFromJson(json);
    if (!measured.ok()) return Annotate(measured.status(), "what `worker probe` printed");
    absl::StatusOr<topology::Machine> machine = topology::MachineOf(*measured, ranks);
    if (!machine.ok()) return Annotate(machine.status(), "--np");
    Probed probed = {*std::move(machine), {}};
    probed.topology = topology::TopologyOf(probed.machine);
    result_.spread = std::max(result_.spread, plan::EvidenceOf(probed.topology).spread);
    return probed;
  }

  // Of so many ranks: one replica first, of these the most shards.
  static std::vector<plan::Layout> LayoutsOf(int32_t ranks) {
    std::vector<plan::Layout> layouts;
    for (int32_t dp_size = 1; dp_size <= ranks; ++dp_size) {
      for (int32_t tp_size = ranks / dp_size; tp_size > 0; --tp_size) {
        const int32_t pp_size = ranks / dp_size / tp_size;
        if (tp_size * pp_size * dp_size == ranks) layouts.push_back({tp_size, pp_size, dp_size});
      }
    }
    return layouts;
  }

  // The layouts that work, and on standard error why others do not.
  absl::StatusOr<std::vector<plan::Plan>> PlansOf(const topology::Machine& machine, int32_t ranks) {
    std::vector<plan::Plan> plans;
    absl::Status last;
    for (const plan::Layout& layout : LayoutsOf(ranks)) {
      const int32_t most = BatchOf(flags_.batches.back(), ranks);
      const plan::Constraints constraints = {
          .layout = {layout.tp_size, layout.pp_size, layout.dp_size},
          .context_length = Context(),
          .max_num_seqs =
              static_cast<int32_t>(plan::SequencesOfReplica(most, layout.dp_size, /*dp_rank=*/0)),
          .goal = {.workload = {flags_.prompt_tokens, flags_.steps, most}}};
      absl::StatusOr<plan::Planning> planning = plan::PlanJob(machine, model_, constraints);
      if (planning.ok()) {
        plans.push_back(std::move(planning->plans.front()));
        continue;
      }
      last = planning.status();
      absl::FPrintF(stderr, "%s\n", std::string(last.message()));
    }
    if (plans.empty()) return Annotate(last, absl::StrCat("--np: ", ranks));
    return plans;
  }

  // Chooses what is measured of so many ranks, by a first prediction.
  absl::Status Choose(int32_t ranks, const Probed& probed) {
    const auto& [machine, topology] = probed;
    SKEIN_ASSIGN_OR_RETURN(std::vector<plan::Plan> plans, PlansOf(machine, ranks));
    std::vector<Measurement> measurements(plans.size());
    for (const int32_t of_flag : flags_.batches) {
      const int32_t batch = BatchOf(of_flag, ranks);
      std::vector<std::pair<absl::Duration, size_t>> order;  // of a step; the plan's place
      for (size_t i = 0; i < plans.size(); ++i) {
        if (plans[i].layout.dp_size > batch) continue;  // some replicas would have no sequence
        SKEIN_ASSIGN_OR_RETURN(const absl::Duration step,
                               PredictStep(machine, topology, plans[i], batch));
        order.emplace_back(step, i);
      }
      if (order.empty()) {
        return absl::InvalidArgumentError(absl::StrCat("--np, --batch: ", ranks,
                                                       " ranks have no layout that gives each "
                                                       "replica one of ",
                                                       batch, " sequences"));
      }
      std::sort(order.begin(), order.end());
      if (!flags_.all) order.resize(1);
      for (const auto& [step, i] : order) {
        measurements[i].steps.push_back({.run = result_.runs.size()});
        result_.runs.push_back({.layout = plans[i].layout, .batch = batch});
      }
    }
    for (size_t i = 0; i < plans.size(); ++i) {
      if (measurements[i].steps.empty()) continue;
      if (probed.on_cores()) measurements[i].threads = plans[i].ranks.front().threads;
      if (flags_.prefill && plans[i].layout.dp_size > 1) {
        absl::FPrintF(stderr, "no prompt with %s: one of its replicas computes it\n",
                      plans[i].layout.ToString());
      } else if (flags_.prefill) {
        measurements[i].prompt = {.run = result_.prompts.size()};
        result_.prompts.push_back({.layout = plans[i].layout});
      }
      measurements[i].plan = std::move(plans[i]);
      measurements_.push_back(std::move(measurements[i]));
    }
    return absl::OkStatus();
  }

  // What a round says of a layout; the last call of a round counts.
  absl::Status Predict(const Probed& probed, Measurement& measurement) {
    const auto& [machine, topology] = probed;
    const auto note = [](absl::Duration predicted, Subject& subject, auto& run) {
      subject.predicted = absl::ToDoubleSeconds(predicted);
      run.predicted_s = MedianOf(run.rounds, &ScalingRound::predicted_s, subject.predicted);
    };
    for (Subject& subject : measurement.steps) {
      ScalingRun& run = result_.runs[subject.run];
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration step,
                             PredictStep(machine, topology, measurement.plan, run.batch));
      note(step, subject, run);
    }
    if (measurement.prompt.has_value()) {
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration prompt,
                             PredictPrompt(machine, topology, measurement.plan));
      note(prompt, *measurement.prompt, result_.prompts[measurement.prompt->run]);
    }
    return absl::OkStatus();
  }

  // A plan's replica with layers and ranks where the worker's bench puts them.
  cost::Replica EvenReplica(const topology::Machine& machine, const topology::Topology& topology,
                            const plan::Plan& plan, int32_t dp_rank,
                            const cost::Workload& workload) const {
    cost::Replica replica =
        plan::ReplicaOfPlan(machine, topology, model_.config, plan, dp_rank, workload);
    const std::vector<cost::Site> sites = plan::SitesOfRanks(machine);
    auto rank = sites.begin() + dp_rank * plan.layout.pp_size * plan.layout.tp_size;
    for (int32_t stage = 0; stage < plan.layout.pp_size; ++stage) {
      cost::Stage& of = replica.stages[stage];
      of.layers = plan::BalancedStageLayers(model_.config, plan.layout.pp_size, stage);
      for (cost::Site& site : of.sites) site = *rank++;
    }
    return replica;
  }

  // As the worker's bench decodes: a micro-batch a stage, and as long as the slowest replica takes.
  absl::StatusOr<absl::Duration> PredictStep(const topology::Machine& machine,
                                             const topology::Topology& topology,
                                             const plan::Plan& plan, int32_t batch) const {
    absl::Duration slowest;
    for (int32_t dp_rank = 0; dp_rank < plan.layout.dp_size; ++dp_rank) {
      cost::Replica replica =
          EvenReplica(machine, topology, plan, dp_rank,
                      {.prompt_tokens = 1, .output_tokens = 0, .concurrency = batch});
      replica.sequences =
          static_cast<int32_t>(plan::SequencesOfReplica(batch, plan.layout.dp_size, dp_rank));
      replica.micro_batches = std::min(replica.sequences, plan.layout.pp_size);
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration step,
                             cost::DecodeStepTime(topology, model_.config, replica,
                                                  flags_.prompt_tokens + flags_.steps / 2));
      slowest = std::max(slowest, step);
    }
    return slowest;
  }

  // As the worker's bench computes it: the whole prompt at once.
  absl::StatusOr<absl::Duration> PredictPrompt(const topology::Machine& machine,
                                               const topology::Topology& topology,
                                               const plan::Plan& plan) const {
    const cost::Workload workload = {
        .prompt_tokens = flags_.prompt_tokens, .output_tokens = 1, .concurrency = 1};
    cost::Replica replica = EvenReplica(machine, topology, plan, /*dp_rank=*/0, workload);
    replica.max_micro_batch_rows = flags_.prompt_tokens;
    replica.prompt_pieces = 1;
    SKEIN_ASSIGN_OR_RETURN(const cost::ReplicaCost cost,
                           cost::PredictReplica(topology, model_.config, replica, workload));
    return cost.prompt;
  }

  // What `worker bench BENCH` says of so many rows.
  absl::StatusOr<std::vector<double>> Bench(const char* bench, const Measurement& measurement,
                                            const std::vector<std::string>& more, size_t rows) {
    const plan::Layout& layout = measurement.plan.layout;
    std::vector<std::string> arguments = {"bench", bench, absl::StrCat("--model=", flags_.model),
                                          absl::StrCat("--layout=", layout.ToString()),
                                          absl::StrCat("--prompt-tokens=", flags_.prompt_tokens)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.emplace_back("--json=-");
    if (measurement.threads > 0) {
      arguments.push_back(absl::StrCat("--threads=", measurement.threads));
    }
    SKEIN_ASSIGN_OR_RETURN(const std::string output, Output(layout.ranks(), arguments));
    return SecondsOfRows(bench, output, rows);
  }

  // A round of a layout.
  absl::Status Measure(Measurement& measurement) {
    std::vector<std::string> batches;
    for (const Subject& subject : measurement.steps) {
      batches.push_back(absl::StrCat(result_.runs[subject.run].batch));
    }
    SKEIN_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                           Bench("decode", measurement,
                                 {absl::StrCat("--batch=", absl::StrJoin(batches, ",")),
                                  absl::StrCat("--decode-tokens=", flags_.steps)},
                                 measurement.steps.size()));
    for (size_t i = 0; i < seconds.size(); ++i) {
      const Subject& subject = measurement.steps[i];
      ScalingRun& run = result_.runs[subject.run];
      run.rounds.push_back({subject.predicted, seconds[i]});
      run.step_s = MedianOf(run.rounds, &ScalingRound::measured_s);
    }
    if (!measurement.prompt.has_value()) return absl::OkStatus();
    SKEIN_RETURN_IF_ERROR(Write());
    SKEIN_ASSIGN_OR_RETURN(const std::vector<double> prompt, Bench("prefill", measurement, {}, 1));
    const Subject& subject = *measurement.prompt;
    PromptRun& run = result_.prompts[subject.run];
    run.rounds.push_back({subject.predicted, prompt.front()});
    run.measured_s = MedianOf(run.rounds, &ScalingRound::measured_s);
    return absl::OkStatus();
  }

  void PrintPredictions(int32_t ranks) const {
    ScalingExperiment predicted = result_;
    const auto of_others = [ranks](const auto& run) { return run.layout.ranks() != ranks; };
    std::erase_if(predicted.runs, of_others);
    std::erase_if(predicted.prompts, of_others);
    absl::PrintF("predictions for %s, %d tokens of prompt\n%s\n", predicted.model,
                 predicted.prompt_tokens, FormatScaling(predicted));
    std::fflush(stdout);
  }

  absl::Status Write() const {
    if (flags_.json_file.empty()) return absl::OkStatus();
    return Annotate(WriteFile(flags_.json_file, ScalingToJson(result_)), "--json");
  }

  absl::Status CheckErrors() const {
    const std::vector<double> errors = result_.Errors();
    if (!flags_.max_error.has_value() || errors.empty()) return absl::OkStatus();
    const double worst = 100 * *std::max_element(errors.begin(), errors.end());
    if (worst <= *flags_.max_error) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrFormat("--max-error: a step was predicted with an error of %.1f%%", worst));
  }

  const BenchScaleFlags& flags_;
  const std::string worker_;
  plan::ModelFacts model_;
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

// Each number once, the least first.
void Sort(std::vector<int32_t>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

}  // namespace

void DeclareBenchScale(CLI::App& command, BenchScaleFlags& flags) {
  command.add_option("--model", flags.model, "A model's folder, a GGUF file, or synthetic:NAME")
      ->check(NotEmpty())
      ->capture_default_str();
  command.add_option("--np", flags.ranks, "Numbers of ranks: 1,2,4")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(InRange(1, plan::kMaxWays))
      ->default_str("1,2");
  CLI::Option* const strong = command.add_flag(
      "--strong", flags.strong, "The same batch for all numbers of ranks, as by default");
  command.add_flag("--weak", flags.weak, "So many sequences for each rank instead")
      ->excludes(strong);
  command
      .add_option("--batch", flags.batches, "Sequences that decode together; 1,8 makes two runs")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(InRange(1, kMostBatch))
      ->default_str("1");
  command.add_flag(
      "--all", flags.all,
      "Measure all layouts that give each replica a sequence, not the best predicted one "
      "alone");
  command.add_flag("--prefill", flags.prefill,
                   "Measure a prompt of --prompt-tokens with each layout of one replica, too");
  command
      .add_option("--prompt-tokens", flags.prompt_tokens,
                  "Of each sequence, before the steps that are timed")
      ->check(InRange(int64_t{1}, kMostTokens))
      ->capture_default_str();
  command.add_option("--decode-tokens", flags.steps, "Steps to time")
      ->check(InRange(4, static_cast<int32_t>(kMostTokens)))
      ->capture_default_str();
  command
      .add_option("--rounds", flags.rounds,
                  "Measure hosts, predict and measure all layouts so many times, for the medians; "
                  "cores are measured again before each layout")
      ->check(InRange(1, 1000))
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
                  "Write the runs into this file: predictions before what they predict is measured")
      ->check(NotEmpty());
  command.add_option("--svg", flags.svg_file, "Draw them into this SVG file")->check(NotEmpty());
}

int BenchScale(BenchScaleFlags flags) {
  Sort(flags.ranks);
  Sort(flags.batches);
  const absl::Status status = Run(flags);
  if (status.ok()) return kExitOk;
  absl::FPrintF(stderr, "skein: %s\n", std::string(status.message()));
  return kExitError;
}

}  // namespace skein::client
