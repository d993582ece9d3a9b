#include "client/rank_layouts.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/flags/flags.h"
#include "base/list_item.h"
#include "base/port_range.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "client/gantt.h"
#include "client/pareto.h"
#include "parallel/planner/goal.h"
#include "proto/message_json.h"
#include "proto/plan.pb.h"
#include "topology/draw/svg.h"
#include "topology/presets/presets.h"

namespace skein::client {
namespace {

using plan::Choice;
using plan::SearchResult;
using topology::Topology;

constexpr size_t kShown = 8;          // layouts, without --all
constexpr size_t kShownReplicas = 4;  // of the map of ranks

std::string SiteName(const Topology& topology, const cost::Site& site) {
  if (site.gpu < 0) return "a core";
  return topology.hosts[site.host].interconnect.gpus[site.gpu].name;
}

// Of what is between devices of a host, where it is not that of what they do.
std::string OriginOfLinks(const topology::Host& host, topology::Origin of_devices) {
  const topology::Interconnect& all = host.interconnect;
  const auto is_used = [&](topology::Path path) {
    if (all.gpus.empty()) return path == topology::Path::kSelf;
    for (size_t i = 0; i < all.gpus.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (all.connections[i][j].path == path) return true;
      }
    }
    return false;
  };
  for (const auto& [path, link] : host.links) {
    if (link.origin == of_devices || link.origin == topology::Origin::kUnknown) continue;
    if (is_used(path)) {
      return absl::StrCat("; links are ", topology::OriginText(link.origin, link.spread));
    }
  }
  return "";
}

void PrintMachines(const Topology& topology) {
  const topology::Host& host = topology.hosts.front();
  const std::vector<topology::Gpu>& gpus = host.interconnect.gpus;
  const topology::DeviceRates& rates = gpus.empty() ? host.core_rates : gpus.front().rates;
  std::string what = FormatCount(static_cast<int64_t>(topology.hosts.size()), "host");
  if (gpus.empty()) {
    absl::StrAppend(&what, ", ", FormatCount(host.cores, "core"), " on the first");
  } else {
    absl::StrAppend(&what, ", ", FormatCount(static_cast<int64_t>(gpus.size()), "GPU"),
                    " on the first (", gpus.front().model, ", ",
                    FormatBytes(gpus.front().memory_bytes), ", ",
                    FormatBytesPerSecond(gpus.front().rates.reads.back().alone_bytes_per_s), ")");
  }
  if (topology.hosts.size() > 1) {
    const std::string& name = topology.fabric.name;
    absl::StrAppend(&what, "\nBetween hosts: ", name, name.empty() ? "" : ", ",
                    FormatBytesPerSecond(topology.fabric.link.bytes_per_s));
    const topology::LinkRate& link = topology.fabric.link;
    if (link.origin != rates.origin && link.origin != topology::Origin::kUnknown) {
      absl::StrAppend(&what, " (", topology::OriginText(link.origin, link.spread), ")");
    }
  }
  std::string origin = "as the file tells";
  if (rates.origin != topology::Origin::kUnknown) {
    origin = topology::OriginText(rates.origin, rates.spread);
  }
  if (rates.origin == topology::Origin::kModelled) absl::StrAppend(&origin, ": of datasheets");
  absl::PrintF("%s\nRates are %s%s\n", what, origin, OriginOfLinks(host, rates.origin));
}

// That one replica is on, at most.
int64_t HostsOfReplica(const Choice& choice) {
  size_t most = 0;
  for (const cost::Replica& replica : choice.replicas) {
    std::set<int32_t> hosts;
    for (const cost::Stage& stage : replica.stages) {
      for (const cost::Site& site : stage.sites) hosts.insert(site.host);
    }
    most = std::max(most, hosts.size());
  }
  return static_cast<int64_t>(most);
}

void PrintTable(const SearchResult& result, size_t shown) {
  absl::PrintF("%-18s %5s %5s %10s %9s %9s %10s %9s %6s %8s\n", "layout", "ranks", "hosts",
               "memory", "TTFT", "TPOT", "tokens/s", "a rank", "idle", "exchange");
  for (size_t i = 0; i < std::min(shown, result.choices.size()); ++i) {
    const Choice& choice = result.choices[i];
    absl::PrintF("%-18s %5d %5d %10s %9s %9s %10s %9s %5.0f%% %7.0f%%\n", choice.layout.ToString(),
                 choice.devices, HostsOfReplica(choice), FormatBytes(choice.needed_bytes),
                 FormatMilliseconds(choice.cost.ttft), FormatMilliseconds(choice.cost.tpot),
                 FormatRate(choice.output_tokens_per_s),
                 FormatRate(choice.output_tokens_per_s / choice.devices), 100 * choice.cost.bubble,
                 100 * choice.cost.exchange_share);
  }
  if (shown < result.choices.size()) {
    absl::PrintF("(%s more: --all)\n",
                 FormatCount(static_cast<int64_t>(result.choices.size() - shown), "layout"));
  }
  absl::PrintF(
      "\nhosts: that a replica is on. memory: of the fullest rank. TTFT: on the average, waiting "
      "for\n"
      "a place and for others included. TPOT: prompts of others between.\n"
      "idle: of the stages' time, waiting for hops too. exchange: the share of a step that sums "
      "take.\n");
}

// "host node0: GPU0 GPU1"
std::string GroupName(const Topology& topology, const std::vector<cost::Site>& sites) {
  std::string text;
  for (size_t i = 0; i < sites.size(); ++i) {
    if (i == 0 || sites[i].host != sites[i - 1].host) {
      absl::StrAppend(&text, i > 0 ? ", " : "", topology.hosts[sites[i].host].name, ":");
    }
    absl::StrAppend(&text, " ", SiteName(topology, sites[i]));
  }
  return text;
}

// What replicas have in common that lie likewise, on whichever hosts and cards.
std::string ShapeOf(const Choice& choice, size_t at) {
  const cost::Replica& replica = choice.replicas[at];
  std::string shape = absl::StrCat(replica.sequences, "/", replica.micro_batches);
  std::map<int32_t, size_t> hosts;  // in the order of ranks
  for (size_t stage = 0; stage < replica.stages.size(); ++stage) {
    const cost::Stage& of = replica.stages[stage];
    absl::StrAppend(&shape, ";", of.layers.begin, "-", of.layers.end, ":",
                    choice.rank_bytes[at][stage], "@");
    for (const cost::Site& site : of.sites) {
      absl::StrAppend(&shape, hosts.emplace(site.host, hosts.size()).first->second, ",");
    }
  }
  return shape;
}

void PrintReplica(const Topology& topology, const Choice& choice, size_t at, int32_t rank) {
  const cost::Replica& replica = choice.replicas[at];
  for (size_t stage = 0; stage < replica.stages.size(); ++stage) {
    const cost::Stage& of = replica.stages[stage];
    const int32_t last = rank + static_cast<int32_t>(of.sites.size()) - 1;
    const std::string ranks =
        last > rank ? absl::StrCat("ranks ", rank, "-", last) : absl::StrCat("rank ", rank);
    absl::PrintF("%s", ListItem(absl::StrFormat(
                           "%s on %s (replica %d, layers %d-%d, %s%s)", ranks,
                           GroupName(topology, of.sites), at, of.layers.begin, of.layers.end - 1,
                           FormatBytes(choice.rank_bytes[at][stage]), last > rank ? " each" : "")));
    rank = last + 1;
  }
  if (replica.stages.size() > 1) {
    absl::PrintF("  %s at once, decoding in %d micro-batches\n",
                 FormatCount(replica.sequences, "sequence"), replica.micro_batches);
  }
}

// The first replicas, and those that are unlike the one before them.
void PrintMap(const Topology& topology, const Choice& best) {
  absl::PrintF("\n%s puts\n", best.layout.ToString());
  int64_t likewise = 0;
  const auto print_likewise = [&likewise] {
    if (likewise > 0) absl::PrintF("- and %s likewise\n", FormatCount(likewise, "further replica"));
    likewise = 0;
  };
  int32_t rank = 0;
  for (size_t i = 0; i < best.replicas.size(); ++i) {
    if (i >= kShownReplicas && ShapeOf(best, i) == ShapeOf(best, i - 1)) {
      ++likewise;
    } else {
      print_likewise();
      PrintReplica(topology, best, i, rank);
    }
    for (const cost::Stage& stage : best.replicas[i].stages) {
      rank += static_cast<int32_t>(stage.sites.size());
    }
  }
  print_likewise();
}

void PrintBehind(const SearchResult& result, const RankFlags& flags) {
  const size_t shown =
      flags.all ? result.choices.size() : std::min<size_t>(4, result.choices.size());
  if (shown > 1) absl::PrintF("\nbehind it\n");
  for (size_t i = 1; i < shown; ++i) {
    absl::PrintF("%s", ListItem(absl::StrCat(
                           result.choices[i].layout.ToString(), ": ",
                           WhyItIsBehind(result.choices[i], result.choices.front(), flags.task))));
  }
}

void PrintRejected(const SearchResult& result) {
  if (!result.rejected.empty()) absl::PrintF("\ncannot be\n");
  for (const plan::RejectedLayout& rejected : result.rejected) {
    absl::PrintF("%s", ListItem(absl::StrCat(rejected.layout.ToString(), ": ", rejected.reason)));
  }
}

plan::v1::RankedLayout ToProto(const Topology& topology, const Choice& choice) {
  plan::v1::RankedLayout wire;
  wire.set_layout(choice.layout.ToString());
  wire.set_ranks(choice.devices);
  wire.set_memory_bytes(choice.needed_bytes);
  wire.set_usable_bytes(choice.usable_bytes);
  wire.set_ttft_ms(absl::ToDoubleMilliseconds(choice.cost.ttft));
  wire.set_tpot_ms(absl::ToDoubleMilliseconds(choice.cost.tpot));
  wire.set_step_ms(absl::ToDoubleMilliseconds(choice.cost.step));
  wire.set_output_tokens_per_s(choice.output_tokens_per_s);
  wire.set_bubble(choice.cost.bubble);
  wire.set_exchange_share(choice.cost.exchange_share);
  wire.set_within_limits(choice.within_limits);
  for (size_t replica = 0; replica < choice.replicas.size(); ++replica) {
    const cost::Replica& from = choice.replicas[replica];
    plan::v1::PlacedReplica& to = *wire.add_replicas();
    to.set_sequences(from.sequences);
    to.set_micro_batches(from.micro_batches);
    for (const cost::Stage& stage : from.stages) {
      plan::v1::PlacedReplica::Stage& of = *to.add_stages();
      of.set_memory_bytes(choice.rank_bytes[replica][to.stages_size() - 1]);
      of.set_first_layer(stage.layers.begin);
      of.set_layers(stage.layers.size());
      for (const cost::Site& site : stage.sites) {
        plan::v1::PlacedReplica::Site& shard = *of.add_shards();
        shard.set_host(topology.hosts[site.host].name);
        shard.set_gpu(site.gpu);
      }
    }
  }
  return wire;
}

void PrintJson(const Topology& topology, const SearchResult& result, const plan::SearchTask& task) {
  plan::v1::RankedLayouts wire;
  for (const Choice& choice : result.choices) {
    plan::v1::RankedLayout& to = *wire.add_layouts() = ToProto(topology, choice);
    if (&choice != &result.choices.front()) {
      to.set_behind(WhyItIsBehind(choice, result.choices.front(), task));
    }
  }
  for (const plan::RejectedLayout& rejected : result.rejected) {
    plan::v1::RejectedLayout& to = *wire.add_rejected();
    to.set_layout(rejected.layout.ToString());
    to.set_reason(rejected.reason);
  }
  wire.set_pruned(result.pruned);
  absl::PrintF("%s\n", ToJson(wire));
}

void Print(const Topology& topology, const std::string& model_name, const SearchResult& result,
           const RankFlags& flags) {
  PrintMachines(topology);
  const cost::Workload& load = flags.task.workload;
  absl::PrintF("%s, %d at once, each %d tokens in and %d out\n", model_name, load.concurrency,
               load.prompt_tokens, load.output_tokens);
  if (result.choices.empty()) {
    absl::PrintF("\nNo layout fits.\n");
  } else {
    absl::PrintF("Best by %s\n\n", plan::RankedBy(flags.task, result.choices.front()));
    PrintTable(result, flags.all ? result.choices.size() : kShown);
    PrintMap(topology, result.choices.front());
    PrintBehind(result, flags);
  }
  if (flags.all || result.choices.empty()) PrintRejected(result);
  if (!result.pruned.empty()) absl::PrintF("\n%s", ListItem(result.pruned));
}

// The machines with the ranks of a choice, coloured by replica.
std::string Picture(const Topology& topology, const Choice& choice) {
  std::vector<topology::RankLabel> labels;
  for (size_t replica = 0; replica < choice.replicas.size(); ++replica) {
    for (const cost::Stage& stage : choice.replicas[replica].stages) {
      for (const cost::Site& site : stage.sites) {
        labels.push_back({site.host, site.gpu, absl::StrCat("rank ", labels.size()),
                          static_cast<int32_t>(replica)});
      }
    }
  }
  const std::string name = topology.name.empty() ? "" : absl::StrCat(topology.name, ": ");
  return topology::TopologySvg(topology, labels, name + choice.layout.ToString());
}

absl::Status Draw(const RankFlags& flags, const Topology& topology, const std::string& model_name,
                  const model::ModelConfig& model, const Choice& best) {
  const std::string name = absl::StrCat(model_name, ", ", best.layout.ToString());
  if (!flags.svg_file.empty()) {
    SKEIN_RETURN_IF_ERROR(Annotate(WriteFile(flags.svg_file, Picture(topology, best)), "--svg"));
  }
  if (!flags.gantt_file.empty()) {
    SKEIN_RETURN_IF_ERROR(DrawGantt(flags.gantt_file, name, topology, model, best.replicas.front(),
                                    flags.task.workload));
  }
  if (flags.pareto_file.empty()) return absl::OkStatus();
  SKEIN_RETURN_IF_ERROR(Annotate(CheckWritable(flags.pareto_file), "--pareto"));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<OperatingPoint> points,
                         OperatingPoints(topology, model, flags.task));
  const std::string title =
      absl::StrFormat("%s on %s: %d tokens in and %d out", model_name,
                      topology.name.empty() ? topology.hosts.front().name : topology.name,
                      flags.task.workload.prompt_tokens, flags.task.workload.output_tokens);
  return Annotate(WriteFile(flags.pareto_file, ParetoSvg(points, title)), "--pareto");
}

// Whether memory holds a sequence as long as the model takes, which is what a coordinator plans for
// that is not told of a length.
absl::StatusOr<bool> HoldsWholeContexts(const Topology& topology, const model::ModelConfig& model,
                                        plan::SearchTask task, const Choice& choice) {
  if (task.context_length > 0) return false;
  task.context_length = model.max_position_embeddings;
  task.layout = {.tp_size = choice.layout.tp_size,
                 .pp_size = choice.layout.pp_size,
                 .dp_size = choice.layout.dp_size,
                 .ep_size = task.layout.ep_size};
  SKEIN_ASSIGN_OR_RETURN(const SearchResult result, plan::SearchLayouts(topology, model, task));
  return !result.choices.empty();
}

}  // namespace

void DeclareRankFlags(CLI::App& command, RankFlags& flags) {
  command
      .add_option(
          "--topology", flags.topology.source,
          absl::StrCat(
              "Rank layouts for these machines by prediction: a file of `skein topo --json`, of "
              "NCCL or hwloc, what `nvidia-smi topo -m` printed, -: standard input; or ",
              SourceNames(),
              ". Default: live where a coordinator answers that has jobs, else a plan of a job on "
              "this host"))
      ->check(NotEmpty());
  DeclareTopologyFlags(command, flags.topology);
  command.add_flag("--all", flags.all, "Of ranked layouts: show all, and why others cannot be");
  command.add_flag("--json", flags.json, "Of ranked layouts: print JSON");
  command
      .add_option("--svg", flags.svg_file,
                  "Of ranked layouts: draw the machines with the best one's ranks into this file")
      ->check(NotEmpty());
  command
      .add_option(
          "--pareto", flags.pareto_file,
          "Of ranked layouts: draw into this SVG file what those within the limits give each "
          "stream and each device, at 1, 2, 4, ... requests at once, up to 4 times "
          "--concurrency and 64 at least")
      ->check(NotEmpty());
}

void DeclareLaunchFlags(CLI::App& command, RankFlags& flags) {
  CLI::Option* const emit = AddParsed(
      command, "--emit", flags.emit, ParseStarter,
      "Of ranked layouts: print commands that start the best one, one job a replica, instead; "
      "mpirun: a script for bash; slurm: one for sbatch");
  emit->excludes(command.get_option("--all"))->excludes(command.get_option("--json"));
  AddParsed(command, "--port-range", flags.launch.ports, ParsePortRange,
            "With --emit: the ports that coordinator, ranks and mpirun (not of slurm) listen on, "
            "like 41000-41099")
      ->needs(emit)
      ->default_str("50051, and free ones");
  command
      .add_option("--interface", flags.launch.interface,
                  "With --emit: the network card that hosts reach each other by, like eth1")
      ->needs(emit)
      ->check(NotEmpty())
      ->default_str("all are tried");
}

absl::StatusOr<bool> RankLayouts(RankFlags flags, const std::string& model_name,
                                 const model::ModelConfig& model) {
  SKEIN_ASSIGN_OR_RETURN(const Topology topology, ReadTopology(flags.topology));
  flags.task.workload.concurrency = plan::ConcurrencyOf(flags.task, plan::DeviceOf(topology));
  SKEIN_ASSIGN_OR_RETURN(const SearchResult result,
                         plan::SearchLayouts(topology, model, flags.task));
  if (!result.choices.empty()) {
    SKEIN_RETURN_IF_ERROR(Draw(flags, topology, model_name, model, result.choices.front()));
  }
  if (flags.emit && !result.choices.empty()) {
    const plan::Choice& best = result.choices.front();
    flags.launch.starter = *flags.emit;
    // A name that nobody has given is of the host where the script runs.
    const topology::Host& first = topology.hosts.front();
    const bool nameless = topology::IsPreset(flags.topology.source) || first.name == "host";
    if (nameless && topology.hosts.size() == 1 &&
        first.interconnect.gpus.size() == flags.launch.visible_devices.size()) {
      flags.launch.this_host = first.name;
    }
    SKEIN_ASSIGN_OR_RETURN(const bool whole, HoldsWholeContexts(topology, model, flags.task, best));
    if (!whole) {
      std::vector<std::string>& told = flags.launch.coordinator_flags;
      told.insert(told.begin(), absl::StrCat("--context-length=", flags.task.context()));
    }
    flags.launch.goal = flags.task;
    // A coordinator has one bound for replicas that may be unlike.
    if (best.bounded) {
      const auto fewest =
          std::min_element(best.replicas.begin(), best.replicas.end(),
                           [](const auto& a, const auto& b) { return a.sequences < b.sequences; });
      flags.launch.coordinator_flags.push_back(absl::StrCat("--max-num-seqs=", fewest->sequences));
    }
    SKEIN_ASSIGN_OR_RETURN(const std::string script, LaunchScript(topology, best, flags.launch));
    absl::PrintF("%s", script);
  } else if (flags.emit) {
    absl::FPrintF(stderr,
                  "skein: no layout fits, and there is nothing to start: without --emit "
                  "`skein plan` says why\n");
  } else if (flags.json) {
    PrintJson(topology, result, flags.task);
  } else {
    Print(topology, model_name, result, flags);
  }
  return !result.choices.empty();
}

}  // namespace skein::client
