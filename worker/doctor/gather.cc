#include "worker/doctor/gather.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/version.h"
#include "model/format/identity.h"
#include "model/format/open.h"
#include "model/synthetic/synthetic.h"
#include "parallel/comm/host_identity.h"
#include "topology/host/host.h"
#include "topology/machine.h"

namespace skein::worker {
namespace {

using topology::RankFacts;

int64_t LimitOf(int resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<int64_t>(limit.rlim_cur);
}

std::string TextOf(const sockaddr* address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  return text;
}

std::vector<topology::InterfaceFacts> Interfaces() {
  std::vector<topology::InterfaceFacts> interfaces;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return interfaces;
  const auto add = [&](const ifaddrs& at, std::string address, int32_t prefix) {
    interfaces.push_back({.name = at.ifa_name,
                          .address = std::move(address),
                          .prefix = prefix,
                          .up = (at.ifa_flags & IFF_UP) != 0 && (at.ifa_flags & IFF_RUNNING) != 0,
                          .loopback = (at.ifa_flags & IFF_LOOPBACK) != 0});
  };
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    const auto* const mask = reinterpret_cast<const sockaddr_in*>(at->ifa_netmask);
    add(*at, TextOf(at->ifa_addr), mask == nullptr ? 32 : std::popcount(mask->sin_addr.s_addr));
  }
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    const bool known = std::any_of(interfaces.begin(), interfaces.end(),
                                   [&](const auto& other) { return other.name == at->ifa_name; });
    if (!known) add(*at, "", 0);
  }
  freeifaddrs(first);
  return interfaces;
}

std::string AddressOf(const std::string& host) {
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0 || found == nullptr) return "";
  char text[NI_MAXHOST] = {};
  getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  freeaddrinfo(found);
  return text;
}

// Why nobody can listen there.
std::string WhyTaken(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::strerror(errno);
  const int reuse = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  std::string why;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd, 1) != 0) {
    why = errno == EADDRINUSE ? "another program listens there" : std::strerror(errno);
  }
  close(fd);
  return why;
}

absl::StatusOr<std::string> IdentityOf(const std::string& model) {
  const bool synthetic = model::IsSyntheticSpec(model);
  const auto tensors = model::OpenTensorSource(model);
  if (!tensors.ok()) return tensors.status();
  return model::ComputeModelIdentity(synthetic ? "" : model, **tensors);
}

// A number that a file of the kernel has; 0: none.
int32_t NumberIn(const std::string& path) {
  int32_t number = 0;
  return absl::SimpleAtoi(ReadFileOrEmpty(path), &number) ? number : 0;
}

void AddLanes(const std::string& root, const std::string& bus_id, topology::CardFacts& card) {
  if (bus_id.empty()) return;
  const std::string device = absl::StrCat(root, "/sys/bus/pci/devices/", bus_id, "/");
  card.pcie_width = NumberIn(device + "current_link_width");
  card.most_pcie_width = NumberIn(device + "max_link_width");
}

void AddCards(const topology::DetectOptions& options, RankFacts& facts) {
  const absl::StatusOr<topology::DetectedHost> found = topology::DetectHostAndHealth(options);
  if (!found.ok()) {
    facts.no_gpus = std::string(found.status().message());
    return;
  }
  const topology::Interconnect& of = found->host.interconnect;
  for (size_t i = 0; i < of.gpus.size(); ++i) {
    const topology::GpuHealth& health = found->health[i];
    topology::CardFacts& card = facts.cards.emplace_back();
    card.name = of.gpus[i].name;
    card.ecc_errors = health.errors_since_boot.value_or(0);
    card.slowed_by = health.slowed_by;
    card.nvlinks_down = health.nvlinks_down;
    AddLanes(options.root, of.gpus[i].bus_id, card);
  }
  for (const topology::Nic& nic : of.nics) {
    topology::CardFacts& card = facts.cards.emplace_back();
    card.name = nic.device.empty() ? nic.name : nic.device;
    card.bytes_per_s = nic.bytes_per_s;
    card.rdma =
        std::filesystem::exists(absl::StrCat(options.root, "/sys/class/infiniband/", card.name));
    AddLanes(options.root, nic.bus_id, card);
  }
}

}  // namespace

RankFacts GatherFacts(const GatherOptions& options) {
  RankFacts facts;
  facts.version = std::string(kVersion);
  if (const absl::StatusOr<comm::HostIdentity> own = comm::ReadHostIdentity(); own.ok()) {
    facts.host = own->name;
    facts.boot = own->boot_id;
  }
  if (!options.model.empty()) {
    facts.model_path = options.model;
    absl::StatusOr<std::string> identity = IdentityOf(options.model);
    if (identity.ok()) {
      facts.model = *std::move(identity);
    } else {
      facts.no_model = std::string(identity.status().message());
    }
  }
  const absl::StatusOr<topology::Host> host =
      topology::DetectHost({.root = options.detect.root, .visible_devices = ""});
  if (host.ok()) facts.cores = host->cores;
  std::error_code none;
  const auto shm = std::filesystem::space(options.detect.root + "/dev/shm", none);
  if (!none && shm.available <= std::numeric_limits<int64_t>::max()) {
    facts.shm_bytes = static_cast<int64_t>(shm.available);
  }
  const topology::HostOptions files = {.root = options.detect.root};
  if (const absl::StatusOr<topology::Node> node = topology::DescribeHost(files); node.ok()) {
    facts.memory_bytes = node->memory_bytes;
    facts.free_bytes = topology::FreeMemory(files).value_or(0);
  }
  facts.memlock_bytes = LimitOf(RLIMIT_MEMLOCK);
  facts.open_files = LimitOf(RLIMIT_NOFILE);
  facts.interfaces = Interfaces();
  facts.own_address = AddressOf(facts.host);
  for (const char* setting :
       {"OMPI_MCA_btl", "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude",
        "OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_oob_tcp_if_exclude", "PRTE_MCA_prte_if_include",
        "NCCL_SOCKET_IFNAME"}) {
    if (const char* const value = std::getenv(setting)) facts.settings[setting] = value;
  }
  if (options.port > 0) {
    facts.port = options.port;
    facts.port_taken = WhyTaken(options.port);
  }
  if (options.cards) AddCards(options.detect, facts);
  return facts;
}

}  // namespace skein::worker
