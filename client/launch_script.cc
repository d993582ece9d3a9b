#include "client/launch_script.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/units.h"

namespace skein::client {
namespace {

using plan::Choice;
using topology::Topology;

constexpr int kDefaultPort = 50051;
constexpr int kLeastPort = 1024;
constexpr int kDaemonPorts = 2;  // of a job: mpirun's, and its daemons'

// A coordinator that ends well has drained its jobs, which end by themselves.
constexpr char kEnd[] = R"(
status=0
while kill -0 "$coordinator" 2>/dev/null; do
  status=0
  wait "$coordinator" || status=$?
done
((status == 0)) || kill $(jobs -p) 2>/dev/null || true
wait
exit "$status"
)";

// Ranks of a job that follow each other on one host.
struct Context {
  int32_t host = 0;
  int32_t ranks = 0;
};

// As a shell takes it whole.
std::string Quoted(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_-+=:,./@%").find(c) != std::string_view::npos;
  });
  return plain ? text : absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::vector<Context> ContextsOf(const cost::Replica& replica) {
  std::vector<Context> contexts;
  for (const cost::Stage& stage : replica.stages) {
    for (const cost::Site& site : stage.sites) {
      if (contexts.empty() || contexts.back().host != site.host) contexts.push_back({site.host, 0});
      ++contexts.back().ranks;
    }
  }
  return contexts;
}

int32_t RanksOf(const cost::Replica& replica) {
  int32_t ranks = 0;
  for (const Context& context : ContextsOf(replica)) ranks += context.ranks;
  return ranks;
}

// The GPUs that a replica has on a host, by the ranks' order there.
std::vector<int32_t> GpusOf(const cost::Replica& replica, int32_t host) {
  std::vector<int32_t> gpus;
  for (const cost::Stage& stage : replica.stages) {
    for (const cost::Site& site : stage.sites) {
      if (site.host == host && site.gpu >= 0) gpus.push_back(site.gpu);
    }
  }
  return gpus;
}

// The only network card of a host that TCP goes over; empty where there are several, or none is
// known.
std::string OnlyInterface(const topology::Host& host) {
  std::set<std::string> names;
  for (const topology::Nic& nic : host.interconnect.nics) {
    if (nic.kind == topology::NicKind::kEthernet && !nic.device.empty()) names.insert(nic.device);
  }
  return names.size() == 1 ? *names.begin() : "";
}

class Script {
 public:
  Script(const Topology& topology, const Choice& choice, const LaunchTask& task)
      : topology_(topology), choice_(choice), task_(task) {
    for (const cost::Replica& replica : choice.replicas) {
      for (const Context& context : ContextsOf(replica)) hosts_.insert(context.host);
    }
    first_ = ContextsOf(choice.replicas.front()).front().host;
    interface_ = task.interface;
    if (interface_.empty() && hosts_.size() > 1) interface_ = OnlyInterface(topology.hosts[first_]);
  }

  absl::StatusOr<std::string> Make() {
    SKEIN_RETURN_IF_ERROR(CheckPorts());
    AddHead();
    AddSettings();
    AddCoordinator();
    for (size_t i = 0; i < choice_.replicas.size(); ++i) AddJob(i);
    absl::StrAppend(&text_, kEnd);
    return std::move(text_);
  }

 private:
  bool several_hosts() const { return hosts_.size() > 1; }
  const std::string& NameOf(int32_t host) const { return topology_.hosts[host].name; }
  std::string Address() const {
    // Within a host nothing listens to others.
    return absl::StrCat(several_hosts() ? NameOf(first_) : "127.0.0.1", ":",
                        task_.ports ? task_.ports->first : kDefaultPort);
  }

  absl::Status CheckPorts() const {
    if (!task_.ports) return absl::OkStatus();
    int needed = 1;
    for (const cost::Replica& replica : choice_.replicas) needed += kDaemonPorts + RanksOf(replica);
    const int given = task_.ports->last - task_.ports->first + 1;
    if (given >= needed) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", FormatCount(given, "port"), ", and ", choice_.layout.ToString(),
                     " takes ", needed, ": one of the coordinator, and of each job one a rank and ",
                     kDaemonPorts, " of mpirun"));
  }

  void AddHead() {
    absl::StrAppend(&text_, "#!/usr/bin/env bash\n# ", choice_.layout.ToString(), ": ",
                    FormatCount(static_cast<int64_t>(choice_.replicas.size()), "job"),
                    ", one a replica, of ", FormatCount(RanksOf(choice_.replicas.front()), "rank"),
                    ", on ", FormatCount(static_cast<int64_t>(hosts_.size()), "host"),
                    ". Run it on ", NameOf(first_), "; Ctrl-C ends all of it.\n");
    if (several_hosts()) {
      absl::StrAppend(&text_,
                      "# Programs and model lie at the same place on every host, and this one "
                      "reaches the others by ssh.\n");
    }
    absl::StrAppend(&text_, "set -euo pipefail\n");
  }

  void Export(std::string_view name, const std::string& value) {
    absl::StrAppend(&text_, "export ", std::string(name), "=", Quoted(value), "\n");
  }

  // Of scripts/env.sh, and of the network.
  void AddSettings() {
    absl::StrAppend(&text_,
                    "\n# Open MPI 4 reads OMPI_, the launcher of 5 PRTE_. Ranks bind themselves to "
                    "their GPU's cores.\n");
    Export("OMPI_MCA_rmaps_base_oversubscribe", "1");
    Export("OMPI_MCA_hwloc_base_binding_policy", "none");
    Export("OMPI_MCA_mpi_yield_when_idle", "1");
    Export("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    Export("PRTE_MCA_hwloc_default_binding_policy", "none");
    absl::StrAppend(&text_,
                    "if [ \"$(id -u)\" -eq 0 ]; then\n"
                    "  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
                    "  export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
                    "fi\n");
    if (several_hosts()) {
      for (const char* parameter : {"tcp_keepalive_time", "tcp_keepalive_intvl"}) {
        Export(absl::StrCat("OMPI_MCA_oob_", parameter), "1");
        Export(absl::StrCat("PRTE_MCA_oob_", parameter), "1");
      }
      Export("OMPI_MCA_oob_tcp_keepalive_probes", "2");
      Export("PRTE_MCA_oob_tcp_keepalive_probes", "3");
    }
    // Of ranks, whose ports below are those of IPv4.
    if (task_.ports) Export("OMPI_MCA_btl_tcp_disable_family", "6");
    if (!several_hosts() && task_.interface.empty()) return;
    if (interface_.empty()) {
      absl::StrAppend(&text_,
                      "# All networks are tried. Where hosts share only one, or one is to be kept "
                      "free: --interface NAME.\n");
      return;
    }
    absl::StrAppend(&text_, "# The network between hosts.\n");
    Export("OMPI_MCA_btl_tcp_if_include", interface_);
    Export("OMPI_MCA_oob_tcp_if_include", interface_);
    Export("PRTE_MCA_prte_if_include", interface_);
    Export("NCCL_SOCKET_IFNAME", "=" + interface_);
  }

  void AddCoordinator() {
    plan::Layout of_job = choice_.layout;
    of_job.dp_size = 1;
    absl::StrAppend(&text_, "\n", Quoted(task_.coordinator), " \\\n  --model=", Quoted(task_.model),
                    " --layout=tp=", of_job.tp_size, ",pp=", of_job.pp_size,
                    " --listen=", Address());
    for (const std::string& flag : task_.coordinator_flags) {
      absl::StrAppend(&text_, " ", Quoted(flag));
    }
    absl::StrAppend(&text_,
                    " &\ncoordinator=$!\n"
                    "# The first signal lets it finish what it has begun, the second one ends it.\n"
                    "trap 'kill \"$coordinator\" 2>/dev/null || true' INT TERM\n");
  }

  // CUDA_VISIBLE_DEVICES, which is not needed where a replica has all of a host's, in its order.
  std::string VisibleDevices(const cost::Replica& replica, int32_t host) const {
    const std::vector<int32_t> gpus = GpusOf(replica, host);
    if (gpus.empty()) return "";
    const bool named = NameOf(host) == task_.this_host && !task_.visible_devices.empty();
    std::vector<std::string> names;
    bool all = gpus.size() == topology_.hosts[host].interconnect.gpus.size() && !named;
    for (size_t i = 0; i < gpus.size(); ++i) {
      all = all && gpus[i] == static_cast<int32_t>(i);
      const auto gpu = static_cast<size_t>(gpus[i]);
      names.push_back(named && gpu < task_.visible_devices.size() ? task_.visible_devices[gpu]
                                                                  : absl::StrCat(gpu));
    }
    return all ? "" : absl::StrJoin(names, ",");
  }

  void AddJob(size_t index) {
    const cost::Replica& replica = choice_.replicas[index];
    absl::StrAppend(&text_, "\n");
    const std::vector<Context> contexts = ContextsOf(replica);
    if (task_.ports) {
      int first = task_.ports->first + 1;
      for (size_t i = 0; i < index; ++i) first += kDaemonPorts + RanksOf(choice_.replicas[i]);
      absl::StrAppendFormat(
          &text_,
          "OMPI_MCA_oob_tcp_dynamic_ipv4_ports=%1$d-%2$d "
          "OMPI_MCA_oob_tcp_dynamic_ipv6_ports=%1$d-%2$d \\\n"
          "OMPI_MCA_btl_tcp_port_min_v4=%3$d OMPI_MCA_btl_tcp_port_range_v4=%4$d \\\n",
          first, first + kDaemonPorts - 1, first + kDaemonPorts, RanksOf(replica));
    }
    absl::StrAppend(&text_, "mpirun");
    for (size_t i = 0; i < contexts.size(); ++i) {
      const auto& [host, ranks] = contexts[i];
      absl::StrAppend(&text_, i == 0 ? "" : " :", " \\\n  -np ", ranks);
      // Without a list of hosts mpirun starts all ranks on this one.
      if (several_hosts()) {
        absl::StrAppend(&text_, " --host ", Quoted(NameOf(host)), ":", SlotsOf(contexts, host));
      }
      const std::string visible = VisibleDevices(replica, host);
      if (!visible.empty()) absl::StrAppend(&text_, " -x CUDA_VISIBLE_DEVICES=", Quoted(visible));
      absl::StrAppend(&text_, " ", Quoted(task_.worker), " --coordinator=", Address());
      if (topology_.hosts[host].interconnect.gpus.empty()) {
        absl::StrAppend(&text_, " --device=cpu");
      }
    }
    absl::StrAppend(&text_, " &\n");
  }

  static int32_t SlotsOf(const std::vector<Context>& contexts, int32_t host) {
    int32_t slots = 0;
    for (const Context& context : contexts) slots += context.host == host ? context.ranks : 0;
    return slots;
  }

  const Topology& topology_;
  const Choice& choice_;
  const LaunchTask& task_;
  std::set<int32_t> hosts_;
  int32_t first_ = 0;  // host
  std::string interface_;
  std::string text_;
};

}  // namespace

absl::StatusOr<PortRange> ParsePortRange(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '-');
  PortRange range;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &range.first) &&
      absl::SimpleAtoi(parts[1], &range.last) && range.first >= kLeastPort &&
      range.last >= range.first && range.last <= 65535) {
    return range;
  }
  return absl::InvalidArgumentError(absl::StrCat("must be FIRST-LAST, from ", kLeastPort,
                                                 " to 65535, like 41000-41099, not '", text, "'"));
}

absl::StatusOr<std::string> MpirunScript(const Topology& topology, const Choice& choice,
                                         const LaunchTask& task) {
  return Script(topology, choice, task).Make();
}

}  // namespace skein::client
