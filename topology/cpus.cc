#include "topology/cpus.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace skein::topology {
Cpus ParseCpus(std::string_view list) {
  Cpus cpus;
  const std::string text(absl::StripAsciiWhitespace(absl::string_view(list.data(), list.size())));
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::vector<std::string> ends = absl::StrSplit(part, '-');
    int first = 0, last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first ||
        last >= kMaxProcessors) {
      return {};
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string FormatCpus(const Cpus& cpus) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    parts.push_back(end - i > 1 ? absl::StrCat(cpus[i], "-", cpus[end - 1])
                                : absl::StrCat(cpus[i]));
    i = end;
  }
  return absl::StrJoin(parts, ",");
}

std::optional<Cpus> ParseCpuMask(std::string_view mask) {
  const std::string text(mask);
  std::vector<std::string> words = absl::StrSplit(text, ',');
  std::reverse(words.begin(), words.end());
  if (words.size() > kMaxProcessors / 32 || words.back().empty()) return std::nullopt;
  Cpus cpus;
  for (size_t i = 0; i < words.size(); ++i) {
    absl::string_view digits = words[i];
    absl::ConsumePrefix(&digits, "0x");
    if (digits.empty() && !words[i].empty()) return std::nullopt;  // "0x"
    if (digits.size() > 8 || !std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit)) {
      return std::nullopt;
    }
    uint32_t word = 0;
    if (!digits.empty() && !absl::SimpleHexAtoi(digits, &word)) return std::nullopt;
    for (int bit = 0; bit < 32; ++bit) {
      if ((word >> bit & 1) != 0) cpus.push_back(static_cast<int>(i) * 32 + bit);
    }
  }
  return cpus;
}

}  // namespace skein::topology
