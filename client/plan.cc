#include "client/plan.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/flags/flags.h"
#include "base/list_item.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "client/find_worker.h"
#include "client/gantt.h"
#include "client/live_topology.h"
#include "client/probe_host.h"
#include "client/read_model.h"
#include "model/config/model_config.h"
#include "model/synthetic/synthetic.h"
#include "parallel/cost/replica_cost.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/planning_flags.h"
#include "parallel/planner/predict_plan.h"
#include "topology/host/detect.h"
#include "topology/host/host.h"
#include "topology/machine.h"

namespace skein::client {
namespace {

constexpr int kExitDoesNotFit = 3;

// Flags of a job on this host, and of layouts that are ranked.
constexpr const char* kOfThisHost[] = {"--ranks", "--kv-memory", "--hop-dtype", "--swap-memory",
                                       "--max-num-batched-tokens"};
constexpr const char* kOfMachines[] = {"--all", "--json", "--svg", "--pareto", "--emit"};

// Names the flag that is at fault.
absl::StatusOr<plan::Planning> PlanOnHost(const PlanFlags& flags, const plan::ModelFacts& model,
                                          const topology::Machine& machine) {
  const plan::Constraints& constraints = flags.constraints;
  const int64_t longest = model.config.max_position_embeddings;
  if (constraints.context_length > longest) {
    return absl::InvalidArgumentError(absl::StrCat("--context-length: ", constraints.context_length,
                                                   " is too long for ", model.name, ", which has ",
                                                   longest));
  }
  absl::StatusOr<plan::Planning> planning = plan::PlanJob(machine, model, constraints);
  if (planning.ok() || constraints.layout == plan::LayoutRequest{}) return planning;
  return Annotate(planning.status(), "--layout");
}

// Steady decode of as many sequences as the plan is made for.
absl::Status DrawPlan(const PlanFlags& flags, const plan::Plan& plan,
                      const topology::Machine& machine, const model::ModelConfig& config) {
  const topology::Topology topology = topology::TopologyOf(machine);
  const cost::Workload workload = {.prompt_tokens = plan.prediction.prompt_tokens,
                                   .output_tokens = plan.prediction.output_tokens,
                                   .concurrency = plan.prediction.concurrency};
  return DrawGantt(flags.gantt_file, absl::StrCat(plan.model_name, ", ", plan.layout.ToString()),
                   topology, config,
                   plan::ReplicaOfPlan(machine, topology, config, plan, /*dp_rank=*/0, workload),
                   workload);
}

// Each reason once, in the order of the best layout that it holds for.
void PrintRejected(const std::vector<plan::RejectedLayout>& rejected) {
  constexpr size_t kLayoutsInALine = 5;
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const auto& [layout, reason] : rejected) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& other) { return other.first == reason; });
    if (group == groups.end()) group = groups.insert(group, {reason, {}});
    group->second.push_back(layout.ToString());
  }
  if (!groups.empty()) absl::PrintF("\nother layouts\n");
  for (const auto& [reason, layouts] : groups) {
    absl::PrintF("%s", ListItem(reason + ":"));
    for (size_t i = 0; i < layouts.size(); ++i) {
      const bool ends = (i + 1) % kLayoutsInALine == 0 || i + 1 == layouts.size();
      absl::PrintF("%s%s%s", i % kLayoutsInALine == 0 ? "    " : "  ", layouts[i],
                   ends ? "\n" : "");
    }
  }
}

// What was measured of so many ranks on this host's cores, if that was kept.
std::optional<topology::Topology> KeptOfCores(int32_t ranks) {
  absl::StatusOr<topology::Host> host = topology::DetectHost({.visible_devices = ""});
  if (!host.ok()) return std::nullopt;
  topology::Topology topology;
  topology.hosts = {*std::move(host)};
  topology.hosts.front().interconnect = {};
  if (!TakeKeptFigures(ranks, topology)) return std::nullopt;
  return topology;
}

// Ranks of this host compute on its cores.
void TellOfGpus(const PlanFlags& flags) {
  const absl::StatusOr<topology::Host> host =
      topology::DetectHost({.visible_devices = flags.rank.topology.visible_devices});
  if (!host.ok() || host->interconnect.gpus.empty()) return;
  const auto gpus = static_cast<int64_t>(host->interconnect.gpus.size());
  absl::FPrintF(stderr,
                "skein: the plan leaves this host's %s out; for these: skein topo --probe --json | "
                "skein plan --topology=- --model=%s\n",
                FormatCount(gpus, "GPU"), flags.model);
}

// Whether a layout fits. Prints the best one, or why none does.
absl::StatusOr<bool> PlanThisHost(const PlanFlags& flags) {
  if (!flags.gantt_file.empty()) {
    SKEIN_RETURN_IF_ERROR(Annotate(CheckWritable(flags.gantt_file), "--gantt"));
  }
  const absl::StatusOr<plan::ModelFacts> model = ReadModel(flags.model);
  if (!model.ok()) return Annotate(model.status(), "--model");
  SKEIN_ASSIGN_OR_RETURN(const topology::Node node, topology::DescribeHost());
  std::vector<topology::RankReport> ranks(static_cast<size_t>(flags.ranks),
                                          {node, topology::DescribeCpu()});
  ranks.front().told = KeptOfCores(flags.ranks);
  const topology::Machine machine = topology::MachineFromRanks(ranks);
  const absl::StatusOr<plan::Planning> planning = PlanOnHost(flags, *model, machine);
  TellOfGpus(flags);
  if (absl::IsFailedPrecondition(planning.status())) {
    absl::FPrintF(stderr, "skein: %s\n", std::string(planning.status().message()));
    return false;
  }
  SKEIN_RETURN_IF_ERROR(planning.status());
  const plan::Plan& best = planning->plans.front();
  absl::PrintF("%s: %s, %s free\n\n%s", node.host, FormatCount(node.cores, "core"),
               FormatBytes(node.memory_bytes), plan::FormatPlan(best));
  PrintRejected(planning->rejected);
  if (!planning->pruned.empty()) absl::PrintF("\n%s", ListItem(planning->pruned));
  if (!flags.gantt_file.empty()) {
    SKEIN_RETURN_IF_ERROR(DrawPlan(flags, best, machine, model->config));
  }
  return true;
}

// What the commands name beside the layout.
absl::Status PrepareLaunch(const PlanFlags& flags, LaunchTask& launch) {
  if (model::IsSyntheticSpec(flags.model)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--emit: a coordinator serves a model's files, and ", flags.model, " is none"));
  }
  launch.model = std::filesystem::absolute(flags.model).lexically_normal().string();
  SKEIN_ASSIGN_OR_RETURN(launch.coordinator, FindProgram("coordinator"));
  SKEIN_ASSIGN_OR_RETURN(launch.worker, FindProgram("worker"));
  for (std::string* const file : {&launch.tls.certificate, &launch.tls.key, &launch.tls.ca}) {
    if (!file->empty()) *file = std::filesystem::absolute(*file).lexically_normal().string();
  }
  const plan::Constraints& constraints = flags.constraints;
  std::vector<std::string>& more = launch.coordinator_flags;
  if (constraints.max_num_seqs > 0) {
    more.push_back(absl::StrCat("--max-num-seqs=", constraints.max_num_seqs));
  }
  if (constraints.kv_dtype.has_value()) {
    more.push_back(
        absl::StrCat("--kv-dtype=", std::string(plan::KvDTypeName(*constraints.kv_dtype))));
  }
  if (constraints.deterministic) more.emplace_back("--deterministic");
  if (constraints.exact) more.emplace_back("--exact");
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    SKEIN_ASSIGN_OR_RETURN(const topology::Node node, topology::DescribeHost());
    launch.this_host = node.host;
    launch.visible_devices = absl::StrSplit(visible, ',', absl::SkipEmpty());
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RankOnMachines(const PlanFlags& flags) {
  const absl::StatusOr<plan::ModelFacts> model = ReadModel(flags.model);
  if (!model.ok()) return Annotate(model.status(), "--model");
  RankFlags rank = flags.rank;
  static_cast<plan::Goal&>(rank.task) = flags.constraints.goal;
  rank.task.layout = flags.constraints.layout;
  rank.task.context_length = flags.constraints.context_length;
  rank.task.max_num_seqs = flags.constraints.max_num_seqs;
  rank.task.kv_dtype = flags.constraints.kv_dtype;
  rank.task.deterministic = flags.constraints.deterministic;
  rank.gantt_file = flags.gantt_file;
  if (rank.emit) SKEIN_RETURN_IF_ERROR(PrepareLaunch(flags, rank.launch));
  return RankLayouts(rank, model->name, model->config);
}

// Takes the coordinator's cluster where nobody has named machines and one is there.
absl::Status TakeCluster(PlanFlags& flags) {
  TopologyFlags& machines = flags.rank.topology;
  absl::StatusOr<LiveTopology> live = FetchTopology(machines.coordinator);
  if (live.ok()) {
    absl::FPrintF(stderr, "skein: for the cluster at %s; --ranks=N: for a job on this host\n",
                  machines.coordinator.address);
    machines.source = kLive;
    machines.fetched = std::move(live->topology);
    return absl::OkStatus();
  }
  if (flags.coordinator_is_named) return live.status();
  const absl::string_view says = live.status().message();
  const std::string why(  // without gRPC's own words
      absl::StripTrailingAsciiWhitespace(says.substr(0, says.find_first_of("\n("))));
  if (flags.ranks_layouts) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layouts are ranked for a cluster, and there is none (", why,
        "): name machines by --topology; for this host: skein topo --probe --json | skein plan "
        "--topology=- ..."));
  }
  absl::FPrintF(stderr, "skein: a plan of this host, for there is no cluster: %s\n", why);
  return absl::OkStatus();
}

}  // namespace

void DeclarePlan(CLI::App& command, PlanFlags& flags) {
  command.add_option("--model", flags.model, "A model's folder, a GGUF file, or synthetic:NAME")
      ->required()
      ->check(NotEmpty());
  command.add_option("--ranks", flags.ranks, "Plan for a job of so many ranks, all on this host")
      ->check(InRange(1, plan::kMaxWays))
      ->capture_default_str();
  plan::DeclarePlanning(command, flags.constraints);
  CLI::Option* const context = command.get_option("--context-length");
  context->description(absl::StrCat(context->get_description(),
                                    "; of ranked layouts those of prompt and answer instead"));
  DeclareRankFlags(command, flags.rank);
  DeclareLaunchFlags(command, flags.rank);
  command
      .add_option("--gantt", flags.gantt_file,
                  "Draw what the stages of the best plan's first replica do while they decode "
                  "into this SVG file")
      ->check(NotEmpty());
  // What one of the two ways to plan does not read.
  CLI::Option* const topology = command.get_option("--topology");
  for (const char* name : {"--nodes", "--fabric", "--nvlinks", "--like"}) {
    command.get_option(name)->needs(topology);
  }
  for (const char* of_this_host : kOfThisHost) {
    CLI::Option* const option = command.get_option(of_this_host);
    option->excludes(topology);
    for (const char* of_machines : kOfMachines) option->excludes(command.get_option(of_machines));
  }
}

void TellGivenFlags(const CLI::App& command, PlanFlags& flags) {
  const auto given = [&](const char* name) { return command.get_option(name)->count() > 0; };
  flags.this_host = std::any_of(std::begin(kOfThisHost), std::end(kOfThisHost), given);
  flags.ranks_layouts = std::any_of(std::begin(kOfMachines), std::end(kOfMachines), given);
}

int Plan(PlanFlags flags) {
  absl::Status taken;
  if (!flags.rank.used() && !flags.this_host) taken = TakeCluster(flags);
  const absl::StatusOr<bool> fits = !taken.ok()         ? taken
                                    : flags.rank.used() ? RankOnMachines(flags)
                                                        : PlanThisHost(flags);
  if (fits.ok()) return *fits ? kExitOk : kExitDoesNotFit;
  absl::FPrintF(stderr, "skein: %s\n", std::string(fits.status().message()));
  return kExitError;
}

}  // namespace skein::client
