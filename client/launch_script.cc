#include "client/launch_script.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "base/units.h"

namespace skein::client {
namespace {

using plan::Choice;
using topology::Topology;

constexpr int kDefaultPort = 50051;
constexpr int kDaemonPorts = 2;  // of a job: mpirun's, and its daemons'; srun's are Slurm's own
// Who has four times the ports starts again at once: the kernel keeps those of a job that has ended
// for a minute, and Open MPI waits for none.
constexpr int kMostSpread = 4;

// A coordinator that ends well has drained its jobs, which end by themselves within seconds.
// Without jobs it would serve nobody, and wait for ever.
constexpr char kEnd[] = R"(
exec {pause}<> <(:)  # nothing comes of this pipe, and a signal is heard while it is read
status=0
while kill -0 "$coordinator" 2>/dev/null; do
  if [[ -z $ending && $(jobs -pr) == "$coordinator" ]]; then
    echo "$0: no job is left; what it printed is above" >&2
    ending=1 status=1
    kill "$coordinator"
  fi
  read -rt 1 -u "$pause" || true
done
wait "$coordinator" || status=$((status ? status : $?))
trap 'kill $(jobs -p) 2>/dev/null || true' INT TERM
# Ranks that it has not heard of yet would look for it.
for ((tenths = status == 0 ? 100 : 0; tenths > 0; --tenths)); do
  [[ -n $(jobs -pr) ]] || break
  read -rt 0.1 -u "$pause" || true
done
kill $(jobs -p) 2>/dev/null || true
while [[ -n $(jobs -pr) ]]; do wait || true; done
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

using Job = std::vector<const cost::Replica*>;

// Replicas that share the cores of a host are one job, which parts them among its ranks.
std::vector<Job> JobsOf(const Choice& choice) {
  std::set<int32_t> hosts;
  bool shared = false;
  for (const cost::Replica& replica : choice.replicas) {
    std::set<int32_t> own;
    for (const cost::Stage& stage : replica.stages) {
      for (const cost::Site& site : stage.sites) {
        if (site.gpu < 0) own.insert(site.host);
      }
    }
    for (const int32_t host : own) shared |= !hosts.insert(host).second;
  }
  std::vector<Job> jobs;
  for (const cost::Replica& replica : choice.replicas) {
    if (jobs.empty() || !shared) jobs.emplace_back();
    jobs.back().push_back(&replica);
  }
  return jobs;
}

// In the order of ranks.
std::vector<cost::Site> SitesOf(const Job& job) {
  std::vector<cost::Site> sites;
  for (const cost::Replica* const replica : job) {
    for (const cost::Stage& stage : replica->stages) {
      sites.insert(sites.end(), stage.sites.begin(), stage.sites.end());
    }
  }
  return sites;
}

int RanksOf(const Job& job) { return static_cast<int>(SitesOf(job).size()); }

// Replicas whose leaders have others to order about.
int LeadersOf(const Job& job) {
  return static_cast<int>(std::count_if(job.begin(), job.end(), [](const cost::Replica* replica) {
    return replica->stages.size() > 1 || replica->stages.front().sites.size() > 1;
  }));
}

std::vector<Context> ContextsOf(const Job& job) {
  std::vector<Context> contexts;
  for (const cost::Site& site : SitesOf(job)) {
    if (contexts.empty() || contexts.back().host != site.host) contexts.push_back({site.host, 0});
    ++contexts.back().ranks;
  }
  return contexts;
}

// The GPUs that a job has on a host, by the ranks' order there.
std::vector<int32_t> GpusOf(const Job& job, int32_t host) {
  std::vector<int32_t> gpus;
  for (const cost::Site& site : SitesOf(job)) {
    if (site.host == host && site.gpu >= 0) gpus.push_back(site.gpu);
  }
  return gpus;
}

class Script {
 public:
  Script(const Topology& topology, const Choice& choice, const LaunchTask& task)
      : topology_(topology), choice_(choice), task_(task), jobs_(JobsOf(choice)) {
    for (const Job& job : jobs_) {
      for (const cost::Site& site : SitesOf(job)) hosts_.insert(site.host);
    }
    first_ = SitesOf(jobs_.front()).front().host;
  }

  absl::StatusOr<std::string> Make() {
    SKEIN_RETURN_IF_ERROR(CheckNames());
    SKEIN_RETURN_IF_ERROR(ShareOutPorts());
    SKEIN_RETURN_IF_ERROR(CheckCards());
    SKEIN_RETURN_IF_ERROR(CheckVisible());
    AddHead();
    AddSettings();
    AddCoordinator();
    int port = task_.ports ? task_.ports->first + 1 : 0;
    for (const Job& job : jobs_) {
      AddJob(job, port);
      port += PortsOf(job);
    }
    absl::StrAppend(&text_, kEnd);
    return std::move(text_);
  }

 private:
  bool slurm() const { return task_.starter == Starter::kSlurm; }
  bool several_hosts() const { return hosts_.size() > 1; }
  int DaemonPorts() const { return slurm() ? 0 : spread_ * kDaemonPorts; }
  int ControlPortsOf(const Job& job) const { return spread_ * LeadersOf(job); }
  int RankPortsOf(const Job& job) const { return spread_ * RanksOf(job); }
  int PortsOf(const Job& job) const {
    return DaemonPorts() + ControlPortsOf(job) + RankPortsOf(job);
  }
  const std::string& NameOf(int32_t host) const { return topology_.hosts[host].name; }
  // For a shell. Within a host nothing listens to others.
  std::string Address() const {
    // Slurm runs the script on whichever host is its first.
    const std::string far = slurm() ? "\"$SLURMD_NODENAME\"" : NameOf(first_);
    return absl::StrCat(several_hosts() ? far : "127.0.0.1", ":",
                        task_.ports ? task_.ports->first : kDefaultPort);
  }

  // A shell and mpirun read them.
  absl::Status CheckNames() const {
    for (const int32_t host : hosts_) {
      const std::string& name = NameOf(host);
      const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.';
      });
      if (plain && !name.starts_with('-')) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--emit: '", Printable(name), "' is no name that a host is reached by"));
    }
    return absl::OkStatus();
  }

  absl::Status ShareOutPorts() {
    if (!task_.ports) return absl::OkStatus();
    int needed = 1;
    for (const Job& job : jobs_) needed += PortsOf(job);
    const int given = task_.ports->size();
    if (given >= needed) {
      spread_ = std::min(kMostSpread, (given - 1) / (needed - 1));
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "--port-range: it has ", FormatCount(given, "port"), ", and ", choice_.layout.ToString(),
        " takes ", needed,
        ": one of the coordinator, and of each job one a rank and one a replica of several ranks",
        slurm() ? "" : absl::StrCat(" and ", kDaemonPorts, " of mpirun")));
  }

  void AddHead() {
    const std::string what = absl::StrCat(
        choice_.layout.ToString(), ": ", FormatCount(static_cast<int64_t>(jobs_.size()), "job"),
        " of ", FormatCount(RanksOf(jobs_.front()), "rank"), " on ",
        FormatCount(static_cast<int64_t>(hosts_.size()), "host"));
    absl::StrAppend(&text_, "#!/usr/bin/env bash\n# ", what);
    if (slurm()) {
      AddAllocation();
    } else {
      absl::StrAppend(&text_, ". Run it on ", NameOf(first_), "; Ctrl-C ends all of it.\n");
    }
    if (several_hosts()) {
      absl::StrAppend(&text_, "# Programs and model lie at the same place on every host",
                      slurm() ? "" : ", and this one reaches the others by ssh", ".\n");
    }
    absl::StrAppend(&text_, "set -euo pipefail\n");
    if (slurm()) return;
    absl::StrAppend(&text_,
                    "set -m  # Ctrl-C is for this script: mpirun would end its ranks at once\n");
  }

  // What sbatch reads: whole hosts, with all of their memory.
  void AddAllocation() {
    std::vector<std::string> names;
    for (const int32_t host : hosts_) names.push_back(NameOf(host));
    const int64_t gpus = CardsOf(*hosts_.begin());
    absl::StrAppend(
        &text_,
        ", for sbatch.\n# scancel --batch --signal=TERM JOB lets it finish what it has begun; "
        "scancel JOB ends it.\n#SBATCH --job-name=skein\n#SBATCH --nodes=",
        names.size(), "\n#SBATCH --nodelist=", absl::StrJoin(names, ","),
        "\n#SBATCH --exclusive\n#SBATCH --mem=0\n");
    if (gpus > 0) absl::StrAppend(&text_, "#SBATCH --gpus-per-node=", gpus, "\n");
  }

  int64_t CardsOf(int32_t host) const {
    return static_cast<int64_t>(topology_.hosts[host].interconnect.gpus.size());
  }

  // An allocation has as many on each host.
  absl::Status CheckCards() const {
    const int32_t first = *hosts_.begin();
    for (const int32_t host : hosts_) {
      if (!slurm() || CardsOf(host) == CardsOf(first)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "--emit: ", NameOf(first), " has ", FormatCount(CardsOf(first), "GPU"), " and ",
          NameOf(host), " ", CardsOf(host),
          "; an allocation of Slurm has as many of each host: plan for hosts that are alike"));
    }
    return absl::OkStatus();
  }

  // Whether this environment's CUDA_VISIBLE_DEVICES is of it.
  bool IsHere(int32_t host) const { return NameOf(host) == task_.this_host; }

  absl::Status CheckVisible() const {
    const auto visible = static_cast<int64_t>(task_.visible_devices.size());
    for (const int32_t host : hosts_) {
      const int64_t cards = CardsOf(host);
      if (visible == 0 || cards == 0 || !IsHere(host) || cards == visible) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "--emit: CUDA_VISIBLE_DEVICES names ", FormatCount(visible, "GPU"), ", and ",
          NameOf(host), " has ", cards,
          " in --topology: unset it, or plan for what `skein topo --json` prints now"));
    }
    return absl::OkStatus();
  }

  void Export(std::string_view name, const std::string& value) {
    absl::StrAppend(&text_, "export ", std::string(name), "=", Quoted(value), "\n");
  }

  // Of scripts/env.sh, and of the network.
  void AddSettings() {
    absl::StrAppend(&text_, "\n");
    if (slurm()) {
      absl::StrAppend(&text_, "folder=$(mktemp -d)\ntrap 'rm -rf \"$folder\"' EXIT\n");
    } else {
      AddMpirunSettings();
    }
    if (task_.interface.empty()) return;
    absl::StrAppend(&text_, "# The network between hosts.\n");
    Export("OMPI_MCA_btl_tcp_if_include", task_.interface);
    if (!slurm()) {
      Export("OMPI_MCA_oob_tcp_if_include", task_.interface);
      Export("PRTE_MCA_prte_if_include", task_.interface);
    }
    Export("NCCL_SOCKET_IFNAME", "=" + task_.interface);
  }

  void AddMpirunSettings() {
    absl::StrAppend(&text_,
                    "# Open MPI 4 reads OMPI_, the launcher of 5 PRTE_. Ranks bind themselves to "
                    "their GPU's cores.\n");
    Export("OMPI_MCA_rmaps_base_oversubscribe", "1");
    Export("OMPI_MCA_hwloc_base_binding_policy", "none");
    Export("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    Export("PRTE_MCA_hwloc_default_binding_policy", "none");
    absl::StrAppend(&text_,
                    "if [ \"$(id -u)\" -eq 0 ]; then\n"
                    "  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
                    "  export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
                    "fi\n");
    if (!several_hosts()) return;
    for (const char* parameter : {"tcp_keepalive_time", "tcp_keepalive_intvl"}) {
      Export(absl::StrCat("OMPI_MCA_oob_", parameter), "1");
      Export(absl::StrCat("PRTE_MCA_oob_", parameter), "1");
    }
    Export("OMPI_MCA_oob_tcp_keepalive_probes", "2");
    Export("PRTE_MCA_oob_tcp_keepalive_probes", "3");
  }

  void AddCoordinator() {
    plan::Layout of_job = choice_.layout;
    of_job.dp_size = static_cast<int32_t>(jobs_.front().size());
    absl::StrAppend(&text_, "\n", Quoted(task_.coordinator), " \\\n  --model=", Quoted(task_.model),
                    " --layout=", of_job.ToString(), " --listen=", Address());
    // The network between hosts is the user's, as MPI's part of it, which is plain, has to be.
    absl::StrAppend(&text_, task_.tls.given() || !several_hosts() ? TlsFlags() : " --insecure");
    AddGoal();
    for (const std::string& flag : task_.coordinator_flags) {
      absl::StrAppend(&text_, " ", Quoted(flag));
    }
    absl::StrAppend(&text_,
                    " &\ncoordinator=$!\n"
                    "# The first signal lets it finish what it has begun, the second one ends it.\n"
                    "ending=''\n"
                    "trap 'ending=1; kill \"$coordinator\" 2>/dev/null || true' INT TERM\n");
  }

  // A coordinator plans each job by itself, and judges it by this load.
  void AddGoal() {
    const plan::Goal usual;
    const plan::Goal& goal = task_.goal;
    const auto add = [&](bool differs, std::string_view flag, const auto& value) {
      if (differs) absl::StrAppend(&text_, " ", std::string(flag), "=", value);
    };
    const cost::Workload& work = goal.workload;
    add(work.prompt_tokens != usual.workload.prompt_tokens, "--prompt-tokens", work.prompt_tokens);
    add(work.output_tokens != usual.workload.output_tokens, "--output-tokens", work.output_tokens);
    const auto jobs = static_cast<int64_t>(jobs_.size());
    add(work.concurrency > 0, "--concurrency", (work.concurrency + jobs - 1) / jobs);
    add(goal.objective != usual.objective, "--objective", "latency");
    for (const auto& [flag, limit] :
         {std::pair("--ttft-limit", goal.ttft_limit), std::pair("--tpot-limit", goal.tpot_limit)}) {
      if (limit) add(true, flag, absl::FormatDuration(*limit));
    }
  }

  // CUDA_VISIBLE_DEVICES, which is not needed where a job has all of a host's, in its order.
  std::string VisibleDevices(const Job& job, int32_t host) const {
    const std::vector<int32_t> gpus = GpusOf(job, host);
    if (gpus.empty()) return "";
    const bool named = IsHere(host) && !task_.visible_devices.empty();
    std::vector<std::string> names;
    bool all = gpus.size() == topology_.hosts[host].interconnect.gpus.size() && !named;
    for (size_t i = 0; i < gpus.size(); ++i) {
      all = all && gpus[i] == static_cast<int32_t>(i);
      names.push_back(named ? task_.visible_devices[gpus[i]] : absl::StrCat(gpus[i]));
    }
    return all ? "" : absl::StrJoin(names, ",");
  }

  // `port`: its first one, where there is a range.
  void AddJob(const Job& job, int port) {
    absl::StrAppend(&text_, "\n");
    if (slurm()) return AddSrun(job, port);
    const std::vector<Context> contexts = ContextsOf(job);
    if (task_.ports) {
      absl::StrAppendFormat(&text_,
                            "OMPI_MCA_oob_tcp_dynamic_ipv4_ports=%1$d-%2$d "
                            "OMPI_MCA_oob_tcp_dynamic_ipv6_ports=%1$d-%2$d \\\n",
                            port, port + DaemonPorts() - 1);
      port += DaemonPorts();
      AddRankPorts(job, port + ControlPortsOf(job));
    }
    absl::StrAppend(&text_, "mpirun");
    for (size_t i = 0; i < contexts.size(); ++i) {
      const auto& [host, ranks] = contexts[i];
      absl::StrAppend(&text_, i == 0 ? "" : " :", " \\\n  -np ", ranks);
      // Without a list of hosts mpirun starts all ranks on this one.
      if (several_hosts()) {
        absl::StrAppend(&text_, " --host ", Quoted(NameOf(host)), ":", SlotsOf(contexts, host));
      }
      const std::string visible = VisibleDevices(job, host);
      if (!visible.empty()) absl::StrAppend(&text_, " -x CUDA_VISIBLE_DEVICES=", Quoted(visible));
      // What is not of Open MPI reaches other hosts by name alone.
      if (several_hosts() && !task_.interface.empty()) {
        absl::StrAppend(&text_, " -x NCCL_SOCKET_IFNAME");
      }
      absl::StrAppend(&text_, " ", Worker(host), ControlPorts(job, port));
    }
    absl::StrAppend(&text_, " &\n");
  }

  void AddRankPorts(const Job& job, int first) {
    absl::StrAppendFormat(
        &text_,
        "OMPI_MCA_btl_tcp_port_min_v4=%1$d OMPI_MCA_btl_tcp_port_range_v4=%2$d \\\n"
        "OMPI_MCA_btl_tcp_port_min_v6=%1$d OMPI_MCA_btl_tcp_port_range_v6=%2$d \\\n",
        first, RankPortsOf(job));
  }

  std::string TlsFlags() const {
    if (!task_.tls.given()) return "";
    return absl::StrCat(" --tls-cert=", Quoted(task_.tls.certificate),
                        " --tls-key=", Quoted(task_.tls.key), " --tls-ca=", Quoted(task_.tls.ca));
  }

  std::string Worker(int32_t host) const {
    return absl::StrCat(Quoted(task_.worker), " --coordinator=", Address(), TlsFlags(),
                        topology_.hosts[host].interconnect.gpus.empty() ? " --device=cpu" : "");
  }

  std::string ControlPorts(const Job& job, int first) const {
    const int ports = ControlPortsOf(job);
    if (!task_.ports || ports == 0) return "";
    return absl::StrCat(" --control-ports=", first, "-", first + ports - 1);
  }

  // Ranks in their order, by a list of hosts: a job step has all of its hosts' cores and GPUs.
  void AddSrun(const Job& job, int port) {
    std::vector<std::string> hosts;
    std::string devices;  // of hosts where ranks do not have all, in their order
    std::set<int32_t> seen;
    for (const cost::Site& site : SitesOf(job)) {
      hosts.push_back(NameOf(site.host));
      const std::string visible = VisibleDevices(job, site.host);
      if (!seen.insert(site.host).second || visible.empty()) continue;
      absl::StrAppend(&devices, "  ", hosts.back(),
                      ") export CUDA_VISIBLE_DEVICES=", Quoted(visible), " ;;\n");
    }
    const std::string list = absl::StrCat("\"$folder\"/job", jobs_added_++);
    absl::StrAppend(&text_, "printf '%s\\n' ", absl::StrJoin(hosts, " "), " >", list, "\n");
    if (task_.ports) AddRankPorts(job, port + ControlPortsOf(job));
    absl::StrAppend(&text_, "SLURM_HOSTFILE=", list,
                    " srun --mpi=pmix --distribution=arbitrary --overlap "
                    "--overcommit \\\n  --kill-on-bad-exit=1 --cpu-bind=none --input=none --nodes=",
                    seen.size(), " --ntasks=", hosts.size(), " \\\n  ");
    // Ranks of a job compute on one kind of device.
    const std::string worker = Worker(SitesOf(job).front().host) + ControlPorts(job, port);
    if (devices.empty()) {
      absl::StrAppend(&text_, worker, " &\n");
      return;
    }
    const std::string program =
        absl::StrCat("case $SLURMD_NODENAME in\n", devices, "  esac; exec \"$@\"");
    absl::StrAppend(&text_, "bash -c ", Quoted(program), " bash ", worker, " &\n");
  }

  static int32_t SlotsOf(const std::vector<Context>& contexts, int32_t host) {
    int32_t slots = 0;
    for (const Context& context : contexts) slots += context.host == host ? context.ranks : 0;
    return slots;
  }

  const Topology& topology_;
  const Choice& choice_;
  const LaunchTask& task_;
  const std::vector<Job> jobs_;
  std::set<int32_t> hosts_;
  int32_t first_ = 0;  // host
  int spread_ = 1;     // how many ports there are for each that is taken
  int jobs_added_ = 0;
  std::string text_;
};

}  // namespace

absl::StatusOr<Starter> ParseStarter(const std::string& text) {
  if (text == "mpirun") return Starter::kMpirun;
  if (text == "slurm") return Starter::kSlurm;
  return absl::InvalidArgumentError(absl::StrCat("must be mpirun or slurm, not '", text, "'"));
}

absl::StatusOr<std::string> LaunchScript(const Topology& topology, const Choice& choice,
                                         const LaunchTask& task) {
  return Script(topology, choice, task).Make();
}

}  // namespace skein::client
