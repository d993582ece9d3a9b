// Typed, range-checked fields of one JSON object. Internal to model/config.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace skein::model {

// A field that is absent or null keeps its default. The first error is kept and ends in status().
// Values that are read after it mean nothing: read a whole object first, then look at status()
// once.
class FieldReader {
 public:
  // `object` is a JSON object that outlives the reader; `prefix` goes before field names in
  // messages ("rope_scaling.").
  explicit FieldReader(const nlohmann::json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  const nlohmann::json& object() const { return object_; }
  bool Has(const char* field) const;
  // True also for null, by which some fields mean "none" rather than their default.
  bool Says(const char* field) const { return object_.contains(field); }
  // The value, or null when the field is absent.
  const nlohmann::json& Get(const char* field) const;

  // [low, high], both included.
  void Int(const char* field, int64_t low, int64_t high, int64_t* value);
  void RequiredInt(const char* field, int64_t low, int64_t high, int64_t* value);
  void OptionalInt(const char* field, int64_t low, int64_t high, std::optional<int64_t>* value);
  void Double(const char* field, double low, double high, double* value);
  void RequiredDouble(const char* field, double low, double high, double* value);
  void OptionalDouble(const char* field, double low, double high, std::optional<double>* value);
  // So many numbers.
  void RequiredDoubles(const char* field, size_t count, double low, double high,
                       std::vector<double>* values);
  void Bool(const char* field, bool* value);
  void String(const char* field, std::string* value);
  // Reads one id or a list of ids.
  void TokenIds(const char* field, std::vector<int32_t>* ids);
  // Has an object's fields read; its errors are this reader's.
  void Object(const char* field, absl::FunctionRef<void(FieldReader&)> read);

  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  // "<field> is <value>: <reason>"
  void FailField(const char* field, std::string_view reason);
  void FailUnimplemented(const char* field, std::string_view reason);

  const absl::Status& status() const { return status_; }

 private:
  std::string Describe(const char* field, std::string_view reason) const;

  const nlohmann::json& object_;
  const std::string prefix_;
  absl::Status status_;
};

}  // namespace skein::model
