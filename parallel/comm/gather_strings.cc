#include "parallel/comm/gather_strings.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::comm {

absl::StatusOr<std::vector<std::string>> GatherStrings(Communicator& group, std::string_view text) {
  const uint64_t size = text.size();
  std::vector<uint64_t> sizes(group.size());
  const View to = {sizes.data(), DType::kU8, group.size(), sizeof(size)};
  SKEIN_RETURN_IF_ERROR(
      group.AllGather(ConstView{&size, DType::kU8, 1, sizeof(size)}, to, kHostStream));
  const size_t width = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::byte> mine(width);
  std::vector<std::byte> all(width * group.size());
  if (!text.empty()) std::memcpy(mine.data(), text.data(), text.size());
  SKEIN_RETURN_IF_ERROR(
      group.AllGather(HostView(mine), HostView(absl::MakeSpan(all)), kHostStream));
  std::vector<std::string> texts;
  for (int rank = 0; rank < group.size(); ++rank) {
    texts.emplace_back(reinterpret_cast<const char*>(all.data()) + rank * width, sizes[rank]);
  }
  return texts;
}

absl::StatusOr<std::optional<RankText>> FirstText(Communicator& group, std::string_view text) {
  SKEIN_ASSIGN_OR_RETURN(std::vector<std::string> all, GatherStrings(group, text));
  for (int rank = 0; rank < group.size(); ++rank) {
    if (!all[rank].empty()) return RankText{rank, std::move(all[rank])};
  }
  return std::optional<RankText>();
}

absl::Status FirstError(Communicator& group, const absl::Status& mine) {
  SKEIN_ASSIGN_OR_RETURN(const std::optional<RankText> error,
                         FirstText(group, std::string(mine.message())));
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("rank ", error->rank, ": ", error->text));
}

}  // namespace skein::comm
