#include "topology/formats/nvidia_smi.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "topology/cpus.h"

namespace skein::topology {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kMostDevices = 64;  // of a node: the largest have 16 GPUs and as many NICs
constexpr int32_t kMostNvlinks = 1000;

absl::Status At(size_t line, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line + 1, ": ", what));
}
std::string Quoted(absl::string_view word) {
  return absl::StrCat("'", Printable({word.data(), word.size()}, /*max_bytes=*/40), "'");
}

// Without colours, "ESC [ 4 m", of which pasting may have lost the first character.
std::string WithoutColours(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t bracket = text[i] == '\033' ? i + 1 : i;
    if (bracket < text.size() && text[bracket] == '[') {
      const size_t end = text.find_first_not_of("0123456789;", bracket + 1);
      if (end != absl::string_view::npos && text[end] == 'm') {
        i = end;
        continue;
      }
    }
    plain.push_back(text[i]);
  }
  return plain;
}

std::vector<absl::string_view> Words(absl::string_view line) {
  return absl::StrSplit(line, absl::ByAnyChar(" \t\r\v\f"), absl::SkipEmpty());
}

bool IsGpu(absl::string_view name) {
  return absl::ConsumePrefix(&name, "GPU") && !name.empty() &&
         std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

// The cells of a row: its device, then a word for each of `devices`, then what stands behind. Tabs
// keep empty cells; where they are gone, words are cells.
std::vector<absl::string_view> CellsOf(absl::string_view line, size_t devices) {
  std::vector<absl::string_view> cells = absl::StrSplit(line, '\t');
  for (absl::string_view& cell : cells) cell = absl::StripAsciiWhitespace(cell);
  const bool whole = cells.size() > devices &&
                     std::none_of(cells.begin(), cells.begin() + devices + 1,
                                  [](auto cell) { return cell.empty() || Words(cell).size() > 1; });
  return whole ? cells : Words(line);
}

std::optional<Connection> ConnectionOf(absl::string_view word) {
  for (const Path path :
       {Path::kSelf, Path::kSwitch, Path::kSwitches, Path::kBridge, Path::kNode, Path::kSystem}) {
    if (word == std::string(PathName(path))) return Connection{.path = path};
  }
  if (word == "SOC") return Connection{.path = Path::kSystem};  // as it was called before
  int32_t links = 0;
  if (absl::ConsumePrefix(&word, "NV") && absl::SimpleAtoi(word, &links) && links > 0 &&
      links < kMostNvlinks) {
    return Connection{.path = Path::kNvlink, .nvlinks = links};
  }
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(absl::string_view text)
      : plain_(WithoutColours(text)), lines_(absl::StrSplit(plain_, '\n')) {}

  absl::StatusOr<Interconnect> Read() {
    SKEIN_RETURN_IF_ERROR(ReadHeader());
    rows_.resize(devices_.size());
    for (size_t line = header_ + 1; line < lines_.size() && !whole(); ++line) {
      SKEIN_RETURN_IF_ERROR(ReadRow(line));
    }
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (rows_[i].connections.empty()) {
        return At(header_, absl::StrCat(Quoted(devices_[i]), " has no row of its own"));
      }
    }
    SKEIN_RETURN_IF_ERROR(CheckSymmetry());
    return Assemble();
  }

 private:
  struct Row {
    size_t line = 0;
    std::vector<Connection> connections;  // empty: not read yet
    Cpus cpus;
    int32_t numa_node = -1;
  };

  bool whole() const {
    return std::none_of(rows_.begin(), rows_.end(),
                        [](const Row& row) { return row.connections.empty(); });
  }

  absl::Status ReadHeader() {
    while (header_ < lines_.size()) {
      const std::vector<absl::string_view> words = Words(lines_[header_]);
      if (!words.empty() && IsGpu(words.front())) break;
      ++header_;
    }
    if (header_ == lines_.size()) {
      return absl::InvalidArgumentError(
          "no line names GPUs: this is not what `nvidia-smi topo -m` prints");
    }
    for (const absl::string_view word : Words(lines_[header_])) {
      if (word == "CPU" || word == "NUMA") break;  // "CPU Affinity"
      if (std::find(devices_.begin(), devices_.end(), word) != devices_.end()) {
        return At(header_, absl::StrCat(Quoted(word), " is named twice"));
      }
      devices_.push_back(word);
    }
    if (devices_.size() <= kMostDevices) return absl::OkStatus();
    return At(header_, absl::StrCat(devices_.size(), " devices: ", kMostDevices, " at most"));
  }

  absl::Status ReadRow(size_t line) {
    if (Words(lines_[line]).empty()) return absl::OkStatus();
    const std::vector<absl::string_view> cells = CellsOf(lines_[line], devices_.size());
    const auto device = std::find(devices_.begin(), devices_.end(), cells.front());
    if (device == devices_.end()) {
      return At(line, absl::StrCat(Quoted(cells.front()),
                                   " is no device of the header, and rows are missing"));
    }
    const size_t self = device - devices_.begin();
    Row& row = rows_[self];
    if (!row.connections.empty()) {
      return At(line, absl::StrCat(Quoted(*device), " has a second row"));
    }
    if (cells.size() <= devices_.size()) {
      return At(line, absl::StrCat("the row of ", Quoted(*device), " is cut: it has ",
                                   cells.size() - 1, " connections of ", devices_.size()));
    }
    row.line = line;
    for (size_t other = 0; other < devices_.size(); ++other) {
      const absl::string_view word = cells[other + 1];
      const std::optional<Connection> connection = ConnectionOf(word);
      if (!connection.has_value() || (connection->path == Path::kSelf) != (self == other)) {
        return At(line, absl::StrCat(Quoted(word), " between ", Quoted(*device), " and ",
                                     Quoted(devices_[other]),
                                     " is no connection: NV#, PIX, PXB, PHB, NODE or SYS, and X of "
                                     "a device and itself"));
      }
      row.connections.push_back(*connection);
    }
    if (!IsGpu(*device)) return absl::OkStatus();
    const size_t behind = devices_.size() + 1;
    if (cells.size() > behind) row.cpus = ParseCpus(std::string(cells[behind]));
    if (cells.size() > behind + 1 && !absl::SimpleAtoi(cells[behind + 1], &row.numa_node)) {
      row.numa_node = -1;
    }
    return absl::OkStatus();
  }

  absl::Status CheckSymmetry() const {
    for (size_t i = 0; i < devices_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const Connection& here = rows_[i].connections[j];
        const Connection& there = rows_[j].connections[i];
        if (here == there) continue;
        return At(rows_[i].line, absl::StrCat(ToString(here), " between ", Quoted(devices_[i]),
                                              " and ", Quoted(devices_[j]), ", and ",
                                              ToString(there), " in line ", rows_[j].line + 1));
      }
    }
    return absl::OkStatus();
  }

  // "NIC0: mlx5_0", of a legend behind the rows.
  std::string DeviceOfNic(absl::string_view name) const {
    if (!absl::StartsWith(name, "NIC")) return std::string(name);  // older versions'
    for (const absl::string_view line : lines_) {
      const std::vector<absl::string_view> words = Words(line);
      if (words.size() == 2 && words[0] == absl::StrCat(name, ":")) return std::string(words[1]);
    }
    return "";
  }

  Interconnect Assemble() const {
    Interconnect read;
    std::vector<size_t> order;  // GPUs, then NICs
    for (const bool gpus : {true, false}) {
      for (size_t i = 0; i < devices_.size(); ++i) {
        if (IsGpu(devices_[i]) != gpus) continue;
        order.push_back(i);
        const std::string name(devices_[i]);
        if (gpus) {
          read.gpus.push_back(
              {.name = name, .cpus = rows_[i].cpus, .numa_node = rows_[i].numa_node});
        } else {
          read.nics.push_back({.name = name, .device = DeviceOfNic(name)});
        }
      }
    }
    for (const size_t i : order) {
      std::vector<Connection>& row = read.connections.emplace_back();
      for (const size_t j : order) row.push_back(rows_[i].connections[j]);
    }
    return read;
  }

  const std::string plain_;
  const std::vector<absl::string_view> lines_;
  size_t header_ = 0;  // its line
  std::vector<absl::string_view> devices_;
  std::vector<Row> rows_;  // [devices]
};

}  // namespace

absl::StatusOr<Interconnect> ParseNvidiaSmi(std::string_view text) {
  if (text.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        "more than a MiB: this is not what `nvidia-smi topo -m` prints");
  }
  return Reader({text.data(), text.size()}).Read();
}

}  // namespace skein::topology
