#include "topology/host/visible_devices.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace skein::topology {
namespace {

std::vector<absl::string_view> EntriesOf(absl::string_view value) {
  std::vector<absl::string_view> entries = absl::StrSplit(value, ',');
  for (absl::string_view& entry : entries) entry = absl::StripAsciiWhitespace(entry);
  return entries;
}

// The number that an entry begins with, where it is one of `count`.
std::optional<int> AsNumber(absl::string_view entry, size_t count) {
  size_t digits = !entry.empty() && entry[0] == '+' ? 1 : 0;
  while (digits < entry.size() && absl::ascii_isdigit(entry[digits])) ++digits;
  int number = 0;
  if (!absl::SimpleAtoi(entry.substr(0, digits), &number)) return std::nullopt;
  if (number < 0 || static_cast<size_t>(number) >= count) return std::nullopt;
  return number;
}

// The only one of `uuids` that begins with an entry.
std::optional<int> AsUuid(absl::string_view entry, absl::Span<const std::string> uuids) {
  if (!absl::StartsWith(entry, "GPU-")) return std::nullopt;
  std::optional<int> found;
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (!absl::StartsWith(uuids[i], entry)) continue;
    if (found) return std::nullopt;
    found = static_cast<int>(i);
  }
  return found;
}

}  // namespace

std::vector<int> VisibleDevices(std::string_view value, absl::Span<const std::string> uuids) {
  const std::vector<absl::string_view> entries = EntriesOf({value.data(), value.size()});
  const bool by_uuid = absl::StartsWith(entries.front(), "GPU-");
  std::vector<int> visible;
  for (const absl::string_view entry : entries) {
    const std::optional<int> gpu = by_uuid ? AsUuid(entry, uuids) : AsNumber(entry, uuids.size());
    if (!gpu) break;
    if (std::find(visible.begin(), visible.end(), *gpu) != visible.end()) return {};
    visible.push_back(*gpu);
  }
  return visible;
}

std::string VisibleSlice(std::string_view value) {
  const absl::string_view first = EntriesOf({value.data(), value.size()}).front();
  return absl::StartsWith(first, "MIG-") ? std::string(first) : "";
}

}  // namespace skein::topology
