#include "worker/probe/job_topology.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "parallel/comm/gather_strings.h"
#include "proto/convert/figure_files.h"
#include "proto/convert/machines_json.h"
#include "topology/cpus.h"
#include "topology/figures/figures.h"
#include "topology/figures/figures_key.h"
#include "topology/host/cores.h"
#include "topology/host/detect.h"
#include "topology/host/host.h"
#include "topology/host/near_cpus.h"
#include "topology/pci_address.h"
#include "topology/presets/presets.h"
#include "worker/probe/host_probe.h"

namespace skein::worker {
namespace {

using topology::Connection;
using topology::Path;

class Finder {
 public:
  Finder(comm::MpiRuntime& mpi, const JobTopologyOptions& options) : mpi_(mpi), options_(options) {}

  absl::StatusOr<JobTopology> Run() {
    SKEIN_RETURN_IF_ERROR(Detect());
    OpenLock();
    if (!options_.figures_file.empty()) return RunGiven();
    SKEIN_ASSIGN_OR_RETURN(const std::string key, Key());
    SKEIN_ASSIGN_OR_RETURN(bool kept, ReadKeptEverywhere(key));
    SKEIN_ASSIGN_OR_RETURN(std::string why_not, WhyNeverProbe());
    const bool wanted = why_not.empty() && (options_.probing == Probing::kAlways || !kept);
    if (wanted) {
      SKEIN_ASSIGN_OR_RETURN(why_not, WhyNotProbe());
    } else if (why_not.empty()) {
      why_not = "nothing is measured";
    }
    if (wanted && why_not.empty()) {
      SKEIN_ASSIGN_OR_RETURN(why_not, Probe(key));
    }
    // From here on nobody measures what this job serves on. Who waited for another job's
    // measurements has them now.
    ShareDevices();
    if (!found_.measured && wanted) {
      SKEIN_ASSIGN_OR_RETURN(kept, ReadKeptEverywhere(key));
    }
    if (found_.measured) {
      found_.says = why_not_kept_.empty()
                        ? absl::StrCat("measured in ", took_)
                        : absl::StrCat("measured in ", took_, ", and not kept: ", why_not_kept_);
    } else if (kept && topology::TakeFigures(*kept_, found_.topology).ok()) {
      found_.says = "as they were measured before";
    } else {
      found_.says = absl::StrCat("assumed: ", why_not);
    }
    found_.why_not = found_.measured ? "" : why_not;
    topology::AssumeFigures(found_.topology);
    return std::move(found_);
  }

 private:
  absl::StatusOr<JobTopology> RunGiven() {
    const absl::StatusOr<topology::Topology> given = convert::ReadFigures(options_.figures_file);
    const absl::Status taken =
        given.ok() ? Annotate(topology::TakeFigures(*given, found_.topology), options_.figures_file)
                   : given.status();
    SKEIN_ASSIGN_OR_RETURN(const std::string wrong, FirstOf(std::string(taken.message())));
    if (!wrong.empty()) return absl::FailedPreconditionError(absl::StrCat("--figures: ", wrong));
    ShareDevices();
    found_.why_not = "nothing is measured";
    found_.says = absl::StrCat("as ", options_.figures_file, " has them");
    topology::AssumeFigures(found_.topology);
    return std::move(found_);
  }

  bool is_gpu() const { return options_.device.device.kind == DeviceKind::kCuda; }
  bool IsOfHost(int rank) const { return mpi_.host_of(rank) == mpi_.host_of(mpi_.rank()); }

  // Every rank's text, of this host's ranks.
  absl::StatusOr<std::vector<std::string>> Tell(const std::string& text) {
    SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                           comm::GatherStrings(mpi_.world(), text));
    std::vector<std::string> of_host;
    for (int rank = 0; rank < mpi_.size(); ++rank) {
      if (IsOfHost(rank)) of_host.push_back(all[rank]);
    }
    return of_host;
  }
  // Why some rank cannot, the same on all; empty where each can.
  absl::StatusOr<std::string> FirstOf(const std::string& reason) {
    SKEIN_ASSIGN_OR_RETURN(const std::optional<comm::RankText> first,
                           comm::FirstText(mpi_.world(), reason));
    return first ? first->text : "";
  }

  absl::Status Detect() {
    topology::Host& host = found_.topology.hosts.emplace_back();
    // A launcher may show ranks different GPUs: all of the host's are looked at.
    topology::DetectOptions detect;
    if (!is_gpu()) detect.visible_devices = "";
    absl::StatusOr<topology::Host> detected = topology::DetectHost(detect);
    if (!detected.ok()) {  // a driver that tells CUDA, but not NVML
      detected = topology::DetectHost({.visible_devices = ""});
    }
    SKEIN_RETURN_IF_ERROR(detected.status());
    host = *std::move(detected);
    SKEIN_RETURN_IF_ERROR(JoinCores(host));
    const RankDevice& device = options_.device;
    SKEIN_ASSIGN_OR_RETURN(
        const std::vector<std::string> told,
        Tell(absl::StrJoin({device.device.name, device.pci_address,
                            absl::StrCat(device.device.memory_bytes), device.uuid},
                           "\t")));
    nics_ = host.interconnect.nics;
    if (!is_gpu()) {
      host.interconnect = {};
      return absl::OkStatus();
    }
    std::vector<RankGpu> gpus;
    for (const std::string& rank : told) {
      const std::vector<std::string> parts = absl::StrSplit(rank, '\t');
      RankGpu& gpu = gpus.emplace_back();
      gpu.model = parts[0];
      gpu.pci_address = parts[1];
      static_cast<void>(absl::SimpleAtoi(parts[2], &gpu.memory_bytes));
      shares_ = shares_ || !uuids_.insert(parts[3]).second;
    }
    KeepGpusOfRanks(gpus, host);
    return absl::OkStatus();
  }

  // A launcher may have bound each rank to a part of the cores that all have together.
  absl::Status JoinCores(topology::Host& host) {
    const absl::StatusOr<topology::Cpus> mine = topology::AllowedCpus();
    const absl::StatusOr<int32_t> cores = topology::AffinityCores();
    SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> told,
                           Tell(topology::FormatCpus(mine.value_or(topology::Cpus{}))));
    std::set<int> all;
    for (const std::string& cpus : told) {
      for (const int cpu : topology::ParseCpus(cpus)) all.insert(cpu);
    }
    if (mine.ok() && cores.ok() && !mine->empty() && all.size() > mine->size()) {
      const auto joined = static_cast<int32_t>(*cores * all.size() / mine->size());
      SKEIN_ASSIGN_OR_RETURN(const topology::Node node,
                             topology::DescribeHost({.affinity_cores = joined}));
      host.cores = node.cores;
    }
    found_.threads = std::max(1, host.cores / mpi_.local_size());
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Key() {
    topology::FiguresOf of =
        topology::FiguresOfThisHost(found_.topology.hosts.front(), mpi_.local_size());
    of.ranks = mpi_.size();
    of.device_comm = DeviceCommName(options_.device_comm);
    of.nics = nics_;
    for (const char* name : {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude",
                             "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"}) {
      if (const char* const value = std::getenv(name)) {
        absl::StrAppend(&of.networks, of.networks.empty() ? "" : " ", name, "=", value);
      }
    }
    SKEIN_ASSIGN_OR_RETURN(of.hosts, comm::GatherStrings(mpi_.world(), of.host->name));
    return topology::FiguresKey(of);
  }

  absl::StatusOr<bool> ReadKeptEverywhere(const std::string& key) {
    if (!options_.folder.empty()) kept_ = convert::ReadKept(options_.folder, key);
    SKEIN_ASSIGN_OR_RETURN(const std::string missing, FirstOf(kept_ ? "" : "missing"));
    return missing.empty();
  }

  // Processes that share a host's cores share its /dev/shm, for which MPI needs it, too. Where the
  // system shows no such folder there is no lock.
  void OpenLock() {
    if (!is_gpu() && mpi_.local_rank() != 0) return;
    absl::StatusOr<DeviceLock> lock =
        DeviceLock::Open(is_gpu() ? absl::StrCat("/sys/bus/pci/devices/",
                                                 topology::PciAddress(options_.device.pci_address))
                                  : options_.cores_folder);
    if (!lock.ok()) return;
    found_.lock = *std::move(lock);
    locks_ = true;
  }

  void ShareDevices() {
    if (!locks_ || found_.lock.Share(options_.patience)) return;
    spdlog::warn(
        "another job has measured {} for {}, and goes on beside this one: its figures will be too "
        "slow; measure again when both have ended (`skein topo --probe`)",
        is_gpu() ? "GPU " + options_.device.uuid : "these cores",
        absl::FormatDuration(options_.patience));
  }

  // Empty where each rank may measure. SKEIN_NO_PROBE may be set on some hosts alone.
  absl::StatusOr<std::string> WhyNeverProbe() {
    const bool never = options_.probing == Probing::kNever;
    SKEIN_ASSIGN_OR_RETURN(const std::optional<comm::RankText> first,
                           comm::FirstText(mpi_.world(), never ? "never" : ""));
    if (!first) return "";
    return never ? "nothing is measured"
                 : absl::StrCat("nothing is measured where rank ", first->rank, " is not to");
  }

  // Empty where every device of the job is free to be measured; then it is this job's.
  absl::StatusOr<std::string> WhyNotProbe() {
    std::string why;
    if (shares_ || options_.device.mig) {
      why = "several ranks share a GPU, or have slices of one";
    } else if (!options_.device.users.empty()) {
      why = "others use a GPU: " + options_.device.users;
    } else if (locks_ && !found_.lock.TryOwn()) {
      why = absl::StrCat("another job serves on ",
                         is_gpu() ? "GPU " + options_.device.uuid : "these cores",
                         ", or measures them");
    }
    return FirstOf(why);
  }

  // Returns why that failed; empty where it did not. An error has lost the job.
  absl::StatusOr<std::string> Probe(const std::string& key) {
    const absl::Time begin = absl::Now();
    const topology::Topology before = found_.topology;
    const absl::Status probed = ProbeHosts(mpi_,
                                           {.device = options_.device,
                                            .device_comm = options_.device_comm,
                                            .threads = found_.threads,
                                            .progress = options_.progress},
                                           found_.topology);
    SKEIN_RETURN_IF_ERROR(mpi_.world().failure());
    SKEIN_ASSIGN_OR_RETURN(const std::string failed, FirstOf(std::string(probed.message())));
    if (!failed.empty()) {
      found_.topology = before;
      return absl::StrCat("measuring failed: ", failed);
    }
    found_.measured = true;
    took_ = absl::StrFormat("%.1f s", absl::ToDoubleSeconds(absl::Now() - begin));
    if (options_.folder.empty() || mpi_.local_rank() != 0) return "";
    why_not_kept_ = std::string(convert::Keep(options_.folder, key, found_.topology).message());
    return "";
  }

  comm::MpiRuntime& mpi_;
  const JobTopologyOptions& options_;
  JobTopology found_;
  std::optional<topology::Topology> kept_;
  std::vector<topology::Nic> nics_;  // of this host
  std::set<std::string> uuids_;
  bool shares_ = false;
  bool locks_ = false;
  std::string took_;          // to measure
  std::string why_not_kept_;  // what was measured
};

}  // namespace

absl::StatusOr<JobTopology> FindJobTopology(comm::MpiRuntime& mpi,
                                            const JobTopologyOptions& options) {
  return Finder(mpi, options).Run();
}

absl::StatusOr<topology::Topology> GatherHosts(comm::MpiRuntime& mpi,
                                               const topology::Topology& mine) {
  SKEIN_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      comm::GatherStrings(mpi.world(), mpi.local_rank() == 0 ? convert::TopologyToJson(mine) : ""));
  topology::Topology topology;
  topology.fabric = mine.fabric;
  for (const std::string& json : all) {
    if (json.empty()) continue;
    SKEIN_ASSIGN_OR_RETURN(topology::Topology one, convert::TopologyFromJson(json));
    topology.hosts.push_back(std::move(one.hosts.front()));
  }
  return topology;
}

void KeepGpusOfRanks(const std::vector<RankGpu>& ranks, topology::Host& host) {
  host.whole = std::move(host.interconnect);
  const topology::Interconnect& all = host.whole;
  topology::Interconnect& of = host.interconnect;
  of = {.nics = all.nics, .nvswitches = all.nvswitches};
  std::vector<int> places;  // among all devices; -1: not found
  for (const RankGpu& rank : ranks) {
    const auto found = std::find_if(all.gpus.begin(), all.gpus.end(), [&](const auto& gpu) {
      return topology::PciAddress(gpu.bus_id) == topology::PciAddress(rank.pci_address);
    });
    const bool known = found != all.gpus.end();
    topology::Gpu gpu = known ? *found : topology::Gpu{.bus_id = rank.pci_address};
    gpu.name = absl::StrCat("GPU", of.gpus.size());
    gpu.model = rank.model;
    gpu.memory_bytes = rank.memory_bytes;
    of.gpus.push_back(std::move(gpu));
    places.push_back(known ? static_cast<int>(found - all.gpus.begin()) : -1);
  }
  for (size_t nic = 0; nic < all.nics.size(); ++nic) {
    places.push_back(static_cast<int>(all.gpus.size() + nic));
  }
  for (size_t i = 0; i < places.size(); ++i) {
    std::vector<Connection>& row = of.connections.emplace_back();
    for (size_t j = 0; j < places.size(); ++j) {
      if (i == j) {
        row.push_back({});
      } else if (places[i] < 0 || places[j] < 0) {
        row.push_back({Path::kBridge});
      } else if (places[i] == places[j]) {
        row.push_back({Path::kSwitch});
      } else {
        row.push_back(all.connections[places[i]][places[j]]);
      }
    }
  }
  const std::set<int> used(places.begin(), places.begin() + static_cast<int>(of.gpus.size()));
  const auto known = static_cast<size_t>(std::distance(used.lower_bound(0), used.end()));
  if (known == all.gpus.size()) host.whole = {};  // there are no others
}

}  // namespace skein::worker
