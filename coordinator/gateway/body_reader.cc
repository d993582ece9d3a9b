#include "coordinator/gateway/body_reader.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::coordinator {

using nlohmann::json;

std::optional<std::vector<uint32_t>> TokenIdsOf(const json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<uint32_t> ids;
  for (const json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > kMaxInt32) return std::nullopt;
    ids.push_back(id.get<uint32_t>());
  }
  return ids;
}

const json* BodyReader::Find(std::string_view field) const {
  const auto found = object_.find(std::string(field));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> BodyReader::Bool(std::string_view field) {
  const json* const value = Find(field);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Fail(field, "true or false is expected");
  return std::nullopt;
}

std::optional<int64_t> BodyReader::Int(std::string_view field, int64_t low, int64_t high) {
  const json* const value = Find(field);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> number;
  if (value->is_number_unsigned()) {
    const auto large = value->get<uint64_t>();
    if (large <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      number = static_cast<int64_t>(large);
    }
  } else if (value->is_number_integer()) {
    number = value->get<int64_t>();
  } else if (value->is_number_float()) {
    // Some clients write 16.0.
    const double real = value->get<double>();
    if (real == std::floor(real) && std::abs(real) < 1e15) number = static_cast<int64_t>(real);
  }
  if (number.has_value() && *number >= low && *number <= high) return number;
  Fail(field, value->is_number() ? absl::StrCat(value->dump(), " is not in [", low, ", ", high, "]")
                                 : std::string("an integer is expected"));
  return std::nullopt;
}

std::optional<double> BodyReader::Number(std::string_view field) {
  const json* const value = Find(field);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return value->get<double>();
  Fail(field, "a number is expected");
  return std::nullopt;
}

std::optional<std::string> BodyReader::String(std::string_view field) {
  const json* const value = Find(field);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Fail(field, "a string is expected");
  return std::nullopt;
}

void BodyReader::Fail(std::string_view field, std::string_view why) {
  Fail(BadField(absl::StrCat(where_, std::string(field)), why));
}

}  // namespace skein::coordinator
