#include "topology/formats/hwloc_nvlinks.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace skein::topology {
namespace {

// 64 GPUs and as many switches, with room. Values then need no more than what a file may have.
constexpr int64_t kMostObjects = 256;
constexpr int64_t kMostMbPerS = 1'000'000'000;

std::vector<std::string> WordsOf(pugi::xml_node matrix, const char* name) {
  std::vector<std::string> words;
  for (const pugi::xml_node part : matrix.children(name)) {
    const std::string text = part.text().get();
    for (const absl::string_view word :
         absl::StrSplit(text, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty())) {
      words.emplace_back(word);
    }
  }
  return words;
}

class Matrix {
 public:
  Matrix(const XmlFile& file, pugi::xml_node node, const HwlocObjects& objects)
      : file_(file), node_(node), objects_(objects) {}

  absl::Status Read() {
    SKEIN_ASSIGN_OR_RETURN(const int64_t count,
                           file_.RequiredInteger(node_, "nbobjs", 1, kMostObjects));
    const bool mixed = std::string_view(node_.name()) == "distances2hetero";
    if (!mixed && std::string_view(node_.attribute("indexing").value()) != "gp") {
      return file_.Error(node_, "NVLinkBandwidth is not of indexing=\"gp\"");
    }
    const std::vector<std::string> indexes = WordsOf(node_, "indexes");
    if (static_cast<int64_t>(indexes.size()) != count) {
      return file_.Error(node_, absl::StrCat(indexes.size(), " indexes of ", count, " objects"));
    }
    for (const std::string& index : indexes) SKEIN_RETURN_IF_ERROR(ReadIndex(index, mixed));
    return ReadValues();
  }

  // Of two GPUs, by links that connect them, and by those that lead to switches.
  HwlocNvlinks Count() const {
    const size_t gpus = objects_.mb_per_s_of_link.size();
    HwlocNvlinks found;
    found.matrix = node_;
    found.nvswitches =
        static_cast<int32_t>(std::count(roles_.begin(), roles_.end(), HwlocObjects::kSwitch));
    found.between.assign(gpus, std::vector<std::optional<int32_t>>(gpus));
    for (size_t i = 0; i < roles_.size(); ++i) {
      for (size_t j = 0; j < roles_.size(); ++j) {
        if (i == j || roles_[i] < 0 || roles_[j] < 0) continue;
        const int64_t a = objects_.mb_per_s_of_link[roles_[i]];
        if (a != objects_.mb_per_s_of_link[roles_[j]]) continue;  // of two makes
        const std::optional<int32_t> direct = Links(values_[i][j], a);
        const std::optional<int32_t> over = Links(std::min(ToSwitches(i), ToSwitches(j)), a);
        if (direct.has_value() && over.has_value()) {
          found.between[roles_[i]][roles_[j]] = *direct + *over;
        }
      }
    }
    return found;
  }

 private:
  absl::Status ReadIndex(const std::string& index, bool mixed) {
    const size_t colon = mixed ? index.find(':') : std::string::npos;
    int64_t number = 0;
    const std::string digits = colon == std::string::npos ? index : index.substr(colon + 1);
    if ((mixed && colon == std::string::npos) || !absl::SimpleAtoi(digits, &number)) {
      return file_.Error(node_, absl::StrCat(QuotedXml(index), " is no index of an object"));
    }
    const auto role = objects_.roles.find(number);
    if (role == objects_.roles.end()) {
      return file_.Error(
          node_, absl::StrCat("no object of gp_index ", number, ", which NVLinkBandwidth names"));
    }
    if (role->second >= 0 && std::count(roles_.begin(), roles_.end(), role->second) > 0) {
      return file_.Error(
          node_, absl::StrCat("the GPU of gp_index ", number, " is twice in NVLinkBandwidth"));
    }
    roles_.push_back(role->second);
    return absl::OkStatus();
  }

  absl::Status ReadValues() {
    const std::vector<std::string> values = WordsOf(node_, "u64values");
    const size_t count = roles_.size();
    if (values.size() != count * count) {
      return file_.Error(node_, absl::StrCat(values.size(), " bandwidths of ", count, " objects"));
    }
    for (size_t i = 0; i < count; ++i) {
      std::vector<int64_t>& row = values_.emplace_back(count);
      for (size_t j = 0; j < count; ++j) {
        const std::string& value = values[i * count + j];
        if (!absl::SimpleAtoi(value, &row[j]) || row[j] < 0 || row[j] > kMostMbPerS) {
          return file_.Error(node_, absl::StrCat(QuotedXml(value), " is no bandwidth in MB/s"));
        }
        if (j < i && row[j] != values_[j][i]) {
          return file_.Error(node_, absl::StrCat(row[j], " MB/s in row ", i, " and column ", j,
                                                 ", and ", values_[j][i], " the other way"));
        }
      }
    }
    return absl::OkStatus();
  }

  int64_t ToSwitches(size_t i) const {
    int64_t sum = 0;
    for (size_t j = 0; j < roles_.size(); ++j) {
      if (roles_[j] == HwlocObjects::kSwitch) sum += values_[i][j];
    }
    return sum;
  }

  static std::optional<int32_t> Links(int64_t mb_per_s, int64_t of_link) {
    if (mb_per_s == 0) return 0;
    if (of_link == 0 || mb_per_s % of_link != 0 || mb_per_s / of_link > kMostNvlinks) {
      return std::nullopt;
    }
    return static_cast<int32_t>(mb_per_s / of_link);
  }

  const XmlFile& file_;
  const pugi::xml_node node_;
  const HwlocObjects& objects_;
  std::vector<int> roles_;                    // [objects]
  std::vector<std::vector<int64_t>> values_;  // [objects][objects]
};

}  // namespace

int64_t HwlocMbPerSOfLink(uint32_t device) {
  if (device >= 0x15f0 && device <= 0x15ff) return 20'000;  // GP100
  // From GV100 to GH100; those between without NVLink are in no matrix.
  if (device >= 0x1d80 && device <= 0x28ff) return 25'000;
  return 0;
}

absl::StatusOr<HwlocNvlinks> ReadHwlocNvlinks(const XmlFile& file, const HwlocObjects& objects) {
  const size_t gpus = objects.mb_per_s_of_link.size();
  HwlocNvlinks found;
  found.between.assign(gpus, std::vector<std::optional<int32_t>>(gpus));
  for (const pugi::xml_node node : file.root()) {
    const std::string_view name = node.name();
    if (name != "distances2" && name != "distances2hetero") continue;
    if (std::string_view(node.attribute("name").value()) != "NVLinkBandwidth") continue;
    if (found.matrix) return file.Error(node, "a second NVLinkBandwidth");
    Matrix matrix(file, node, objects);
    SKEIN_RETURN_IF_ERROR(matrix.Read());
    found = matrix.Count();
  }
  return found;
}

}  // namespace skein::topology
