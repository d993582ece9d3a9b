// The metadata of a GGUF file: values by key.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace skein::model {

// Types of metadata, with the numbers by which files name them.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

std::string_view GgufTypeName(GgufType type);  // "uint8", "array"

// Bytes of an element; 0 for strings and arrays, whose lengths differ.
int64_t GgufTypeBytes(GgufType type);

// A value, or an array of values of one type.
struct GgufValue {
  bool is_array = false;
  GgufType type = GgufType::kUint8;  // of the value or the elements
  int64_t count = 1;                 // elements
  // One of these holds the elements.
  std::string numbers;               // little-endian, as in the file
  std::vector<std::string> strings;  // any bytes
  std::vector<GgufValue> arrays;
};

class GgufMetadata {
 public:
  using Values = std::map<std::string, GgufValue, std::less<>>;

  GgufMetadata() = default;
  explicit GgufMetadata(Values values) : values_(std::move(values)) {}

  const Values& values() const { return values_; }
  bool Has(std::string_view key) const { return values_.find(key) != values_.end(); }

  // These return the value of `key`. NotFound where there is none; InvalidArgument, with key and
  // types, where it is of another type or out of range. Any type of integer is an integer, any
  // number a number.
  absl::StatusOr<int64_t> Integer(std::string_view key) const;
  absl::StatusOr<double> Number(std::string_view key) const;
  absl::StatusOr<bool> Bool(std::string_view key) const;
  absl::StatusOr<std::string_view> String(std::string_view key) const;
  // An integer, or an array with one for each layer, which must be the same: else Unimplemented.
  absl::StatusOr<int64_t> IntegerOfLayers(std::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> Integers(std::string_view key) const;
  absl::StatusOr<std::vector<double>> Numbers(std::string_view key) const;
  // Valid as long as this object.
  absl::StatusOr<absl::Span<const std::string>> Strings(std::string_view key) const;

 private:
  absl::StatusOr<const GgufValue*> Find(std::string_view key, bool is_array) const;

  Values values_;
};

}  // namespace skein::model
