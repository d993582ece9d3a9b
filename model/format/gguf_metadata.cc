#include "model/format/gguf_metadata.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::model {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

template <typename Number>
Number At(const GgufValue& value, int64_t i) {
  Number number;
  std::memcpy(&number, value.numbers.data() + i * static_cast<int64_t>(sizeof(number)),
              sizeof(number));
  return number;
}

// Unset where element `i` is no integer or beyond 63 bits.
std::optional<int64_t> IntegerAt(const GgufValue& value, int64_t i) {
  switch (value.type) {
    case GgufType::kUint8:
      return At<uint8_t>(value, i);
    case GgufType::kInt8:
      return At<int8_t>(value, i);
    case GgufType::kUint16:
      return At<uint16_t>(value, i);
    case GgufType::kInt16:
      return At<int16_t>(value, i);
    case GgufType::kUint32:
      return At<uint32_t>(value, i);
    case GgufType::kInt32:
      return At<int32_t>(value, i);
    case GgufType::kInt64:
      return At<int64_t>(value, i);
    case GgufType::kUint64: {
      const auto number = At<uint64_t>(value, i);
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(number);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> NumberAt(const GgufValue& value, int64_t i) {
  if (value.type == GgufType::kFloat32) return At<float>(value, i);
  if (value.type == GgufType::kFloat64) return At<double>(value, i);
  if (value.type == GgufType::kUint64) return static_cast<double>(At<uint64_t>(value, i));
  const std::optional<int64_t> integer = IntegerAt(value, i);
  if (!integer) return std::nullopt;
  return static_cast<double>(*integer);
}

std::string Said(const GgufValue& value) {
  const std::string type(GgufTypeName(value.type));
  return value.is_array ? absl::StrCat("an array of ", value.count, " of type ", type)
                        : absl::StrCat("of type ", type);
}

absl::Status Unlike(std::string_view key, const GgufValue& value, std::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("metadata '", std::string(key), "' is ",
                                                 Said(value), ", not ", std::string(wanted)));
}

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return "uint8";
    case GgufType::kInt8:
      return "int8";
    case GgufType::kUint16:
      return "uint16";
    case GgufType::kInt16:
      return "int16";
    case GgufType::kUint32:
      return "uint32";
    case GgufType::kInt32:
      return "int32";
    case GgufType::kFloat32:
      return "float32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kUint64:
      return "uint64";
    case GgufType::kInt64:
      return "int64";
    case GgufType::kFloat64:
      return "float64";
  }
  return "?";
}

int64_t GgufTypeBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

absl::StatusOr<const GgufValue*> GgufMetadata::Find(std::string_view key, bool is_array) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    return absl::NotFoundError(absl::StrCat("has no metadata '", std::string(key), "'"));
  }
  if (found->second.is_array != is_array) {
    return Unlike(key, found->second, is_array ? "an array" : "a single value");
  }
  return &found->second;
}

absl::StatusOr<int64_t> GgufMetadata::Integer(std::string_view key) const {
  SKEIN_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, false));
  const std::optional<int64_t> integer = IntegerAt(*value, 0);
  if (!integer) return Unlike(key, *value, "an integer below 2^63");
  return *integer;
}

absl::StatusOr<int64_t> GgufMetadata::IntegerOfLayers(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end() || !found->second.is_array) return Integer(key);
  SKEIN_ASSIGN_OR_RETURN(const std::vector<int64_t> integers, Integers(key));
  const std::set<int64_t> kinds(integers.begin(), integers.end());
  if (kinds.size() == 1) return *kinds.begin();
  return absl::UnimplementedError(absl::StrCat("metadata '", std::string(key), "' has ",
                                               kinds.size(),
                                               " values; Skein runs layers that are alike"));
}

absl::StatusOr<double> GgufMetadata::Number(std::string_view key) const {
  SKEIN_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, false));
  const std::optional<double> number = NumberAt(*value, 0);
  if (!number || !std::isfinite(*number)) return Unlike(key, *value, "a number");
  return *number;
}

absl::StatusOr<bool> GgufMetadata::Bool(std::string_view key) const {
  SKEIN_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, false));
  if (value->type != GgufType::kBool) return Unlike(key, *value, "a bool");
  return At<uint8_t>(*value, 0) != 0;
}

absl::StatusOr<std::string_view> GgufMetadata::String(std::string_view key) const {
  SKEIN_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, false));
  if (value->type != GgufType::kString) return Unlike(key, *value, "a string");
  return value->strings[0];
}

absl::StatusOr<std::vector<int64_t>> GgufMetadata::Integers(std::string_view key) const {
  SKEIN_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, true));
  std::vector<int64_t> integers;
  for (int64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> integer = IntegerAt(*value, i);
    if (!integer) return Unlike(key, *value, "integers below 2^63");
    integers.push_back(*integer);
  }
  return integers;
}

absl::StatusOr<std::vector<double>> GgufMetadata::Numbers(std::string_view key) const {
  SKEIN_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, true));
  std::vector<double> numbers;
  for (int64_t i = 0; i < value->count; ++i) {
    const std::optional<double> number = NumberAt(*value, i);
    if (!number) return Unlike(key, *value, "numbers");
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<absl::Span<const std::string>> GgufMetadata::Strings(std::string_view key) const {
  SKEIN_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, true));
  if (value->type != GgufType::kString) return Unlike(key, *value, "strings");
  return absl::Span<const std::string>(value->strings);
}

}  // namespace skein::model
