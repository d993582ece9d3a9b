#include "topology/host/nics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "base/printable.h"
#include "topology/host/pci.h"

namespace skein::topology {
namespace {

constexpr size_t kMostNics = 64;  // as CheckTopology has it

// Of a file with a line, in /sys.
std::string ReadLine(const std::string& path) {
  return std::string(absl::StripAsciiWhitespace(ReadFileOrEmpty(path)));
}

// The names in a folder, mlx5_2 before mlx5_10.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  const auto key = [](const std::string& name) {
    size_t digits = name.size();
    while (digits > 0 && absl::ascii_isdigit(name[digits - 1])) --digits;
    uint64_t number = 0;
    if (!absl::SimpleAtoi(absl::string_view(name).substr(digits), &number)) number = 0;
    return std::make_pair(name.substr(0, digits), number);
  };
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    const auto of_a = key(a), of_b = key(b);
    return of_a == of_b ? a < b : of_a < of_b;
  });
  return names;
}

// "400 Gb/sec (4X NDR)".
double BytesPerSecondOfPort(const std::string& rate) {
  double gigabits = 0;
  const absl::string_view number = absl::string_view(rate).substr(0, rate.find(' '));
  if (!absl::StrContains(rate, "Gb/sec") || !absl::SimpleAtod(number, &gigabits) ||
      !std::isfinite(gigabits) || gigabits < 0) {
    return 0;
  }
  return gigabits * 1e9 / 8;
}

// "400000", Mb/s; -1 where the driver does not know.
double BytesPerSecondOfNet(const std::string& speed) {
  int32_t megabits = 0;
  return absl::SimpleAtoi(speed, &megabits) && megabits > 0 ? megabits * 1e6 / 8 : 0;
}

NicKind KindOf(const std::string& link_layer) {
  if (link_layer == "InfiniBand") return NicKind::kInfiniBand;
  if (link_layer == "Ethernet") return NicKind::kEthernet;
  return NicKind::kUnknown;
}

class Finder {
 public:
  explicit Finder(const std::string& root)
      : pci_(root + "/sys/bus/pci/devices/"),
        rdma_(root + "/sys/class/infiniband/"),
        net_(root + "/sys/class/net/") {}

  std::vector<Nic> Find() {
    for (const std::string& name : NamesIn(rdma_)) AddRdma(name);
    for (const std::string& name : NamesIn(net_)) AddNet(name);
    std::vector<Nic> nics;
    for (Nic& nic : found_) {
      if (nics.size() == kMostNics) break;
      if (!functions_.contains(PhysicalFunctionOf(nic.bus_id))) nics.push_back(std::move(nic));
    }
    for (size_t i = 0; i < nics.size(); ++i) nics[i].name = absl::StrCat("NIC", i);
    return nics;
  }

 private:
  // The ports that are up share its traffic.
  void AddRdma(const std::string& name) {
    Nic nic{.device = Printable(name, kMaxNameBytes),
            .bus_id = PciAddressOfFile(rdma_ + name + "/device")};
    if (nic.bus_id.empty() || !functions_.insert(nic.bus_id).second) return;
    bool down = false, up = false;
    const std::string ports = rdma_ + name + "/ports/";
    for (const std::string& port : NamesIn(ports)) {
      const std::string state = ReadLine(ports + port + "/state");  // "4: ACTIVE"
      if (!state.empty() && !absl::StrContains(state, "ACTIVE")) {
        down = true;
        continue;
      }
      nic.bytes_per_s += BytesPerSecondOfPort(ReadLine(ports + port + "/rate"));
      if (!up) nic.kind = KindOf(ReadLine(ports + port + "/link_layer"));
      up = true;
    }
    if (up || !down) found_.push_back(std::move(nic));
  }

  void AddNet(const std::string& name) {
    const std::string folder = net_ + name;
    std::error_code missing;
    const std::string device = std::filesystem::canonical(folder + "/device", missing).string();
    if (missing || absl::StrContains(device, "/usb")) return;
    if (ReadLine(folder + "/operstate") == "down") return;
    Nic nic{.device = Printable(name, kMaxNameBytes),
            .bus_id = PciAddressOfFile(device),
            .bytes_per_s = BytesPerSecondOfNet(ReadLine(folder + "/speed"))};
    const std::string type = ReadLine(folder + "/type");  // ARPHRD_ETHER, ARPHRD_INFINIBAND
    if (type == "1") nic.kind = NicKind::kEthernet;
    if (type == "32") nic.kind = NicKind::kInfiniBand;
    if (nic.bus_id.empty() || functions_.insert(nic.bus_id).second)
      found_.push_back(std::move(nic));
  }

  // Empty for what is none of one's virtual functions.
  std::string PhysicalFunctionOf(const std::string& bus_id) const {
    return bus_id.empty() ? "" : PciAddressOfFile(pci_ + bus_id + "/physfn");
  }

  const std::string pci_, rdma_, net_;
  std::set<std::string> functions_;  // of PCI, that are NICs, up or down
  std::vector<Nic> found_;
};

}  // namespace

std::vector<Nic> FindNics(const std::string& root) { return Finder(root).Find(); }

}  // namespace skein::topology
