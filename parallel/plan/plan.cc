#include "parallel/plan/plan.h"

#include <charconv>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace skein::plan {
namespace {

absl::Status BadLayout(std::string_view text, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("layout \"", std::string(text), "\": ", std::string(what),
                   "; a layout is some of tp, pp, dp and ep, as in tp=2,pp=2,dp=2"));
}

absl::Status ParsePart(std::string_view text, std::string_view part, LayoutRequest& request) {
  const size_t equals = part.find('=');
  const std::string_view key = part.substr(0, equals);
  std::optional<int32_t>* field = key == "tp"   ? &request.tp_size
                                  : key == "pp" ? &request.pp_size
                                  : key == "dp" ? &request.dp_size
                                  : key == "ep" ? &request.ep_size
                                                : nullptr;
  const std::string name(key);
  if (field == nullptr) return BadLayout(text, absl::StrCat("\"", name, "\" is not known"));
  if (field->has_value()) return BadLayout(text, absl::StrCat(name, " is given twice"));
  if (equals == std::string_view::npos)
    return BadLayout(text, absl::StrCat(name, " has no number"));

  const std::string_view digits = part.substr(equals + 1);
  int32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 1 ||
      value > kMaxWays) {
    return BadLayout(text, absl::StrCat(name, " is \"", std::string(digits),
                                        "\", not a number from 1 to ", kMaxWays));
  }
  *field = value;
  return absl::OkStatus();
}

constexpr std::pair<KvDType, std::string_view> kKvDTypeNames[] = {{KvDType::kF32, "f32"},
                                                                  {KvDType::kBF16, "bf16"},
                                                                  {KvDType::kF16, "f16"},
                                                                  {KvDType::kInt8, "int8"}};
constexpr std::pair<DType, std::string_view> kHopDTypeNames[] = {
    {DType::kF32, "f32"}, {DType::kBF16, "bf16"}, {DType::kF16, "f16"}};

}  // namespace

std::string_view KvDTypeName(KvDType dtype) {
  for (const auto& [known, name] : kKvDTypeNames) {
    if (known == dtype) return name;
  }
  return "unknown";
}

absl::StatusOr<KvDType> ParseKvDType(std::string_view name) {
  for (const auto& [dtype, known] : kKvDTypeNames) {
    if (known == name) return dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "KV dtype \"", std::string(name), "\" is not known; there are f32, bf16, f16, int8"));
}

std::string_view HopDTypeName(DType dtype) {
  for (const auto& [known, name] : kHopDTypeNames) {
    if (known == dtype) return name;
  }
  return "unknown";
}

absl::StatusOr<DType> ParseHopDType(std::string_view name) {
  for (const auto& [dtype, known] : kHopDTypeNames) {
    if (known == name) return dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("hop dtype \"", std::string(name), "\" is not known; there are f32, bf16, f16"));
}

std::string Layout::ToString() const {
  return absl::StrCat("tp=", tp_size, ",pp=", pp_size, ",dp=", dp_size,
                      ep_size == 1 ? "" : absl::StrCat(",ep=", ep_size));
}

std::string LayoutRequest::ToString() const {
  std::vector<std::string> parts;
  if (tp_size) parts.push_back(absl::StrCat("tp=", *tp_size));
  if (pp_size) parts.push_back(absl::StrCat("pp=", *pp_size));
  if (dp_size) parts.push_back(absl::StrCat("dp=", *dp_size));
  if (ep_size) parts.push_back(absl::StrCat("ep=", *ep_size));
  return absl::StrJoin(parts, ",");
}

absl::StatusOr<LayoutRequest> ParseLayoutRequest(std::string_view text) {
  LayoutRequest request;
  std::string_view rest = text;
  while (!text.empty()) {
    const size_t comma = rest.find(',');
    SKEIN_RETURN_IF_ERROR(ParsePart(text, rest.substr(0, comma), request));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return request;
}

}  // namespace skein::plan
