#include "topology/formats/nvlinks.h"

#include "absl/strings/str_cat.h"

namespace skein::topology {

absl::Status ConnectByNvlinks(const NvlinksBetween& between, std::optional<int32_t> nvlinks,
                              const std::function<std::string(size_t, size_t)>& left_out,
                              Interconnect& into) {
  if (nvlinks.has_value() && (*nvlinks < 0 || *nvlinks > kMostNvlinks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nvlinks=", *nvlinks, " is no number of 0 to ", kMostNvlinks));
  }
  bool complete = true;
  std::string contradiction;
  for (size_t i = 0; i < into.gpus.size(); ++i) {
    for (size_t j = i + 1; j < into.gpus.size(); ++j) {
      const bool told = between[i][j].has_value();
      if (!told && !nvlinks.has_value()) {
        return absl::FailedPreconditionError(
            absl::StrCat(left_out(i, j),
                         ". Say how many connect each two GPUs, --nvlinks=N (0: there are "
                         "none), or plan for a preset such as dgx-a100"));
      }
      complete = complete && told;
      const int32_t links = told ? *between[i][j] : *nvlinks;
      if (nvlinks.has_value() && links != *nvlinks && contradiction.empty()) {
        contradiction = absl::StrCat("by the file ", into.gpus[i].name, " and ", into.gpus[j].name,
                                     " have ", links, " NVLinks, by --nvlinks ", *nvlinks,
                                     ": leave the flag out, as the file tells all of them");
      }
      if (links == 0) continue;
      into.connections[i][j] = into.connections[j][i] = {Path::kNvlink, links};
    }
  }
  if (!complete || contradiction.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(contradiction);
}

}  // namespace skein::topology
