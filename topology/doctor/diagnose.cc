#include "topology/doctor/diagnose.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/units.h"
#include "topology/doctor/exchanges.h"
#include "topology/doctor/networks.h"

namespace skein::topology {
namespace {

constexpr double kClockWarning = 1;  // seconds
constexpr double kClockError = 30;
// Of /dev/shm, for each rank of a host: Open MPI's segments, and the windows that ranks share.
constexpr int64_t kShmError = int64_t{16} << 20;
constexpr int64_t kShmWarning = int64_t{64} << 20;
constexpr int64_t kFilesError = 256;
constexpr int64_t kFilesWarning = 1024;
constexpr int64_t kMemlockWarning = int64_t{1} << 30;
constexpr double kSlow = 0.7;  // of what peers do

// "rank 3 on b"
std::string Who(const RankFacts& rank) {
  return absl::StrCat("rank ", rank.rank, " on ", rank.host);
}

// "a, b", or "a, b, c and 5 more".
std::string Names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  if (names.size() <= kShown + 1) return absl::StrJoin(names, ", ");
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + kShown, ", "), " and ",
                      names.size() - kShown, " more");
}

std::string HostKey(const RankFacts& rank) { return absl::StrCat(rank.host, " ", rank.boot); }

// The first rank of each host.
std::vector<const RankFacts*> Hosts(absl::Span<const RankFacts> ranks) {
  std::vector<const RankFacts*> hosts;
  std::set<std::string> seen;
  for (const RankFacts& rank : ranks) {
    if (seen.insert(HostKey(rank)).second) hosts.push_back(&rank);
  }
  return hosts;
}

// Ranks that have the same of something, the most first.
using Groups = std::vector<std::pair<std::string, std::vector<std::string>>>;
Groups GroupsOf(absl::Span<const RankFacts> ranks, std::string RankFacts::* of) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const RankFacts& rank : ranks) {
    if (!(rank.*of).empty()) groups[rank.*of].push_back(Who(rank));
  }
  Groups all(groups.begin(), groups.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  return all;
}

bool IsGpu(const CardFacts& card) { return card.name.starts_with("GPU"); }

class Doctor {
 public:
  explicit Doctor(absl::Span<const RankFacts> ranks) : ranks_(ranks), hosts_(Hosts(ranks)) {}

  std::vector<Finding> Run() {
    Versions();
    Model();
    Clocks();
    HostNames();
    Network();
    Shm();
    Memory();
    Memlock();
    OpenFiles();
    Ranks();
    Cores();
    Gpus();
    Links();
    Take(FindSlowWays(ranks_));
    Take(FindExchanges(ranks_));
    Port();
    return std::move(findings_);
  }

 private:
  void Take(std::vector<Finding> findings) {
    for (Finding& finding : findings) findings_.push_back(std::move(finding));
  }
  bool several() const { return hosts_.size() > 1; }

  void Found(Level level, std::string says, std::string advice) {
    ++wrong_;
    findings_.push_back({level, check_, std::move(says), std::move(advice)});
  }
  void Begin(const char* check) {
    check_ = check;
    wrong_ = 0;
  }
  // Where nothing was found.
  void End(std::string says) {
    if (wrong_ == 0) findings_.push_back({Level::kOk, check_, std::move(says), ""});
  }

  int64_t RanksOn(const RankFacts& host) const {
    return std::count_if(ranks_.begin(), ranks_.end(),
                         [&](const RankFacts& rank) { return HostKey(rank) == HostKey(host); });
  }

  void Versions() {
    Begin("versions");
    const Groups groups = GroupsOf(ranks_, &RankFacts::version);
    for (size_t i = 1; i < groups.size(); ++i) {
      Found(Level::kError,
            absl::StrCat(Names(groups[i].second), ": Skein ", groups[i].first,
                         ", where the others have ", groups[0].first),
            "install one version at the same place on every host; the coordinator refuses others");
    }
    End(absl::StrCat("Skein ", groups[0].first, " on all ", FormatCount(ranks_.size(), "rank")));
  }

  void Model() {
    Begin("model");
    bool asked = false;
    std::set<std::pair<std::string, std::string>> said;  // once a host
    for (const RankFacts& rank : ranks_) {
      asked = asked || !rank.model.empty() || !rank.no_model.empty();
      if (rank.no_model.empty() || !said.insert({HostKey(rank), rank.no_model}).second) continue;
      Found(Level::kError, absl::StrCat(Who(rank), ": ", rank.no_model),
            "copy the model to the same folder on every host, or name it with --model-root");
    }
    if (!asked) return;
    const std::string& path = ranks_[0].model_path;
    const Groups groups = GroupsOf(ranks_, &RankFacts::model);
    for (size_t i = 1; i < groups.size(); ++i) {
      Found(Level::kError,
            absl::StrCat(Names(groups[i].second), ": ", path, " is another model than on ",
                         Names(groups[0].second)),
            "copy it again: config, tokenizer, or names and sizes of tensors and files differ");
    }
    End(absl::StrCat(path, " is the same on all ranks"));
  }

  void Clocks() {
    Begin("clocks");
    if (ranks_[0].clock_s == 0) return;
    double most = 0;
    for (const RankFacts* const host : hosts_) {
      const double apart = std::abs(host->clock_s - ranks_[0].clock_s);
      most = std::max(most, apart);
      if (apart < kClockWarning) continue;
      Found(apart < kClockError ? Level::kWarning : Level::kError,
            absl::StrFormat("%s: its clock is %.1f s apart from %s's", host->host, apart,
                            ranks_[0].host),
            "let chrony or ntpd set clocks: logs of hosts cannot be compared");
    }
    if (several()) End(absl::StrFormat("within %.2f s", most));
  }

  void HostNames() {
    if (!several()) return;
    Begin("host names");
    std::map<std::string, int> named;
    for (const RankFacts* const host : hosts_) {
      if (++named[host->host] == 2) {
        Found(Level::kError, absl::StrCat(host->host, ": two hosts have this name"),
              "give each host a name of its own: logs, errors and plans tell them apart by it");
      }
      if (host->own_address.starts_with("127.") || host->own_address == "::1") {
        // A coordinator that is told to listen on the name would listen to its own host alone.
        Found(host->port > 0 ? Level::kError : Level::kWarning,
              absl::StrCat(host->host, ": its own name stands for ", host->own_address, " there"),
              "give it the address in /etc/hosts that the others reach it by, or use addresses for "
              "--listen and --coordinator");
      } else if (host->own_address.empty()) {
        Found(Level::kWarning, absl::StrCat(host->host, ": its own name stands for no address"),
              "add it to /etc/hosts or DNS: MPI and logs name hosts so");
      }
    }
    End("each stands for an address that others reach");
  }

  void Setting(const RankFacts& host, const char* setting, bool by_prefix) {
    const auto found = host.settings.find(setting);
    if (found == host.settings.end() || found->second.starts_with("^")) return;
    const std::vector<InterfaceFacts> used = UsedInterfaces(host, setting, by_prefix);
    const std::string says = absl::StrCat(host.host, ": ", setting, "=", found->second, " names ");
    std::vector<std::string> there;
    for (const InterfaceFacts& interface : host.interfaces) {
      there.push_back(interface.address.empty()
                          ? interface.name
                          : absl::StrCat(interface.name, " (", interface.address, ")"));
    }
    const std::string advice = absl::StrCat("name one of ", absl::StrJoin(there, ", "));
    if (used.empty()) {
      Found(Level::kError, says + "no interface of it", advice);
    } else if (several() &&
               std::all_of(used.begin(), used.end(), [](const auto& i) { return i.loopback; })) {
      Found(Level::kError, says + "loopback alone, which reaches no other host", advice);
    } else if (std::none_of(used.begin(), used.end(), [](const auto& i) { return i.up; })) {
      Found(Level::kError, absl::StrCat(says, used.front().name, ", which is down"), advice);
    }
  }

  void Exclusion(const RankFacts& host, const char* include, const char* exclude) {
    const auto found = host.settings.find(exclude);
    if (found == host.settings.end() || !several()) return;
    if (!UsedInterfaces(host, include, /*by_prefix=*/false, exclude).empty()) return;
    Found(Level::kError,
          absl::StrCat(host.host, ": ", exclude, "=", found->second,
                       " leaves no interface by which other hosts are reached"),
          "leave out fewer, or name those to use by the setting's _if_include");
  }

  // Where another transport than Open MPI's own ones carries messages, this one is not asked.
  void TcpOfMpi(const RankFacts& host) {
    const auto found = host.settings.find("OMPI_MCA_btl");
    if (found == host.settings.end() || !several()) return;
    const bool others = found->second.starts_with("^");
    const std::vector<std::string> named =
        absl::StrSplit(absl::StripPrefix(found->second, "^"), ',');
    if ((std::find(named.begin(), named.end(), "tcp") == named.end()) == others) return;
    Found(Level::kWarning,
          absl::StrCat(host.host, ": OMPI_MCA_btl=", found->second,
                       " is without tcp, by which ranks of several hosts exchange"),
          "add tcp to it, unless UCX or libfabric carries their messages");
  }

  void Network() {
    Begin("network");
    for (const RankFacts* const host : hosts_) {
      Setting(*host, "OMPI_MCA_btl_tcp_if_include", false);
      Setting(*host, "OMPI_MCA_oob_tcp_if_include", false);
      Setting(*host, "PRTE_MCA_prte_if_include", false);
      Setting(*host, "NCCL_SOCKET_IFNAME", true);
      Exclusion(*host, "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude");
      Exclusion(*host, "OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_oob_tcp_if_exclude");
      TcpOfMpi(*host);
    }
    if (wrong_ > 0) return;
    if (!several()) return End("one host: ranks exchange by its memory");
    // Those that each host has for itself, as of containers, have the same addresses on all.
    std::map<std::string, std::set<std::string>> of_network;  // hosts' addresses
    for (const RankFacts* const host : hosts_) {
      std::map<std::string, std::string> own;  // the first address in each network
      for (const InterfaceFacts& i : UsedInterfaces(*host, "OMPI_MCA_btl_tcp_if_include", false,
                                                    "OMPI_MCA_btl_tcp_if_exclude")) {
        own.emplace(NetworkOf(i), i.address);
      }
      for (const auto& [network, address] : own) {
        if (!network.empty()) of_network[network].insert(address);
      }
    }
    for (const auto& [network, addresses] : of_network) {
      if (addresses.size() == hosts_.size()) return End(absl::StrCat("all hosts are in ", network));
    }
    // By routes, or over IPv6.
    if (ranks_[0].clock_s != 0) return End("ranks on all hosts have met");
    Found(Level::kWarning, "no network has all hosts in it",
          "see that every host reaches every other one by the interfaces that MPI may use "
          "(OMPI_MCA_btl_tcp_if_include)");
  }

  void Shm() {
    Begin("/dev/shm");
    int64_t least = -1;
    for (const RankFacts* const host : hosts_) {
      if (host->shm_bytes < 0) continue;
      const int64_t ranks = RanksOn(*host);
      if (least < 0 || host->shm_bytes < least) least = host->shm_bytes;
      if (host->shm_bytes >= kShmWarning * ranks) continue;
      Found(host->shm_bytes < kShmError * ranks ? Level::kError : Level::kWarning,
            absl::StrCat(host->host, ": ", FormatBytes(host->shm_bytes), " free, for ",
                         FormatCount(ranks, "rank")),
            absl::StrCat("remove what is left in it, or make it larger (docker run --shm-size=",
                         (kShmWarning >> 20) * ranks, "m)"));
    }
    if (least >= 0) End(absl::StrCat(FormatBytes(least), " free at least"));
  }

  void Memory() {
    Begin("memory");
    int64_t least = 0;
    for (const RankFacts* const host : hosts_) {
      if (host->free_bytes == 0) continue;
      if (least == 0 || host->memory_bytes < least) least = host->memory_bytes;
      if (host->memory_bytes >= host->free_bytes / 2) continue;
      Found(Level::kWarning,
            absl::StrCat(host->host, ": a cgroup leaves ", FormatBytes(host->memory_bytes), " of ",
                         FormatBytes(host->free_bytes), " that are free"),
            "raise its limit (docker run --memory, MemoryMax= of a systemd unit, --mem of Slurm): "
            "ranks hold weights and caches in what it leaves");
    }
    if (least > 0) End(absl::StrCat(FormatBytes(least), " free at least"));
  }

  void Memlock() {
    Begin("memlock");
    for (const RankFacts* const host : hosts_) {
      if (host->memlock_bytes < 0 || host->memlock_bytes >= kMemlockWarning) continue;
      if (std::none_of(host->cards.begin(), host->cards.end(),
                       [](const CardFacts& card) { return card.rdma || IsGpu(card); })) {
        continue;
      }
      Found(Level::kWarning,
            absl::StrCat(host->host, ": at most ", FormatBytes(host->memlock_bytes),
                         " may be locked in memory"),
            "`ulimit -l unlimited`, or limits.conf and the service's LimitMEMLOCK: network cards "
            "and GPUs read and write locked memory alone");
    }
    End("enough may be locked");
  }

  void OpenFiles() {
    Begin("open files");
    int64_t least = -1;
    for (const RankFacts* const host : hosts_) {
      const int64_t files = host->open_files;
      if (files >= 0 && (least < 0 || files < least)) least = files;
      if (files < 0 || files >= kFilesWarning) continue;
      Found(files < kFilesError ? Level::kError : Level::kWarning,
            absl::StrCat(host->host, ": ", files, " at most"),
            "`ulimit -n 65536`: ranks and coordinators have a socket for each other and each "
            "client");
    }
    End(least < 0 ? "no limit" : absl::StrCat(least, " at least"));
  }

  // Of hosts that compute on their cores.
  void Ranks() {
    Begin("ranks");
    for (const RankFacts* const host : hosts_) {
      const int64_t ranks = RanksOn(*host);
      if (std::any_of(host->cards.begin(), host->cards.end(), IsGpu)) continue;
      if (host->cores == 0 || ranks <= host->cores) continue;
      Found(Level::kWarning,
            absl::StrCat(host->host, ": ", FormatCount(ranks, "rank"), " on ",
                         FormatCount(host->cores, "core")),
            "start as many as there are cores, or fewer: `skein plan` says how many are worth it");
    }
  }

  void Cores() {
    Begin("cores");
    std::vector<double> rates;
    for (const RankFacts& rank : ranks_) rates.push_back(rank.operations_per_s);
    std::sort(rates.begin(), rates.end());
    const double median = rates[rates.size() / 2];
    if (median <= 0) return;  // nothing was timed
    for (const RankFacts& rank : ranks_) {
      if (rank.operations_per_s >= kSlow * median) continue;
      Found(Level::kWarning,
            absl::StrFormat("%s: its core does %.0f%% of what its peers' do", Who(rank),
                            100 * rank.operations_per_s / median),
            "look for another process there (top), heat (sensors), a power limit or the governor "
            "(cpupower frequency-info): all ranks wait for the slowest");
    }
    End(absl::StrFormat("the slowest does %.0f%% of the median", 100 * rates.front() / median));
  }

  void Gpus() {
    Begin("GPUs");
    int64_t count = 0, most = 0;
    const auto gpus_of = [](const RankFacts& host) {
      return std::count_if(host.cards.begin(), host.cards.end(), IsGpu);
    };
    for (const RankFacts* const host : hosts_) most = std::max<int64_t>(most, gpus_of(*host));
    for (const RankFacts* const host : hosts_) {
      if (gpus_of(*host) < most && host->no_gpus.empty()) {
        Found(Level::kWarning,
              absl::StrCat(host->host, ": ", FormatCount(gpus_of(*host), "GPU"),
                           ", where another host has ", most),
              "see `nvidia-smi -L`, the driver, and CUDA_VISIBLE_DEVICES there");
      }
      if (!host->no_gpus.empty()) {
        Found(Level::kError, absl::StrCat(host->host, ": ", host->no_gpus),
              "see what `nvidia-smi` says there");
      }
      for (const CardFacts& card : host->cards) {
        count += IsGpu(card) ? 1 : 0;
        const std::string who = absl::StrCat(host->host, ": ", card.name);
        if (card.ecc_errors > 0) {
          Found(Level::kError,
                absl::StrCat(who, " had ", FormatCount(card.ecc_errors, "memory error"),
                             " that ECC could not correct"),
                "reset it, and have it replaced if they come again (nvidia-smi -q -d ECC)");
        }
        if (!card.slowed_by.empty()) {
          Found(Level::kWarning,
                absl::StrCat(who, " is slowed by ", absl::StrJoin(card.slowed_by, ", ")),
                "see its settings (nvidia-smi -q -d CLOCK,POWER), and to its power and cooling");
        }
      }
    }
    if (count > 0) End(absl::StrCat(FormatCount(count, "GPU"), ", no errors, not slowed"));
  }

  void Links() {
    Begin("links");
    std::map<std::string, double> fastest;  // by card
    std::map<std::string, size_t> hosts_with;
    for (const RankFacts* const host : hosts_) {
      for (const CardFacts& card : host->cards) {
        fastest[card.name] = std::max(fastest[card.name], card.bytes_per_s);
        hosts_with[card.name] += card.rdma ? 1 : 0;
      }
    }
    const size_t count = fastest.size();
    for (const RankFacts* const host : hosts_) {
      for (const auto& [name, with] : hosts_with) {
        if (with == 0 || with == hosts_.size()) continue;
        if (std::any_of(host->cards.begin(), host->cards.end(),
                        [&name = name](const CardFacts& card) { return card.name == name; })) {
          continue;
        }
        Found(Level::kWarning,
              absl::StrCat(host->host, ": no ", name, " is up, which other hosts have"),
              "look at its cable and port (ibstat)");
      }
      for (const CardFacts& card : host->cards) {
        const std::string who = absl::StrCat(host->host, ": ", card.name);
        if (card.pcie_width > 0 && card.pcie_width < card.most_pcie_width) {
          Found(Level::kWarning,
                absl::StrCat(who, " has ", card.pcie_width, " of ", card.most_pcie_width,
                             " lanes of PCIe"),
                "seat the card anew, or take another slot");
        }
        if (card.nvlinks_down > 0) {
          Found(Level::kWarning,
                absl::StrCat(who, ": ", FormatCount(card.nvlinks_down, "NVLink"), " down"),
                "reset the GPU, and see `nvidia-smi nvlink -e`");
        }
        if (card.bytes_per_s > 0 && card.bytes_per_s < kSlow * fastest[card.name]) {
          Found(Level::kWarning,
                absl::StrCat(who, " runs at ", FormatBytesPerSecond(card.bytes_per_s),
                             ", on another host at ", FormatBytesPerSecond(fastest[card.name])),
                "look at cable and switch port (ethtool, ibstat): all wait for the slowest link");
        }
      }
    }
    if (count > 0) End("no card has fewer lanes, links or a lower rate than it could");
  }

  void Port() {
    Begin("port");
    for (const RankFacts& rank : ranks_) {
      if (rank.port == 0) continue;
      if (!rank.port_taken.empty()) {
        Found(Level::kError, absl::StrCat(rank.host, ": ", rank.port, ": ", rank.port_taken),
              "end what listens there (ss -ltnp), or give the coordinator another --listen");
      }
      End(absl::StrCat(rank.port, " of ", rank.host, " is free for a coordinator"));
    }
  }

  const absl::Span<const RankFacts> ranks_;
  const std::vector<const RankFacts*> hosts_;
  std::vector<Finding> findings_;
  const char* check_ = "";
  int wrong_ = 0;  // findings of this check
};

}  // namespace

std::vector<Finding> Diagnose(absl::Span<const RankFacts> ranks) { return Doctor(ranks).Run(); }

std::string FormatFindings(absl::Span<const Finding> findings) {
  std::string text;
  int64_t errors = 0, warnings = 0;
  for (const Finding& finding : findings) {
    const char* const level = finding.level == Level::kOk        ? "ok"
                              : finding.level == Level::kWarning ? "warning"
                                                                 : "error";
    errors += finding.level == Level::kError ? 1 : 0;
    warnings += finding.level == Level::kWarning ? 1 : 0;
    absl::StrAppendFormat(&text, "%-8s %-11s %s\n", level, finding.check, finding.says);
    if (!finding.advice.empty()) absl::StrAppendFormat(&text, "%21s-> %s\n", "", finding.advice);
  }
  absl::StrAppend(&text, FormatCount(errors, "error"), ", ", FormatCount(warnings, "warning"),
                  "\n");
  return text;
}

}  // namespace skein::topology
