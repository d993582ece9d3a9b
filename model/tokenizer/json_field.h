// A value in a JSON document that knows its path, so that errors name the field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::model {

// A view: the document must outlive it. Errors are InvalidArgument: "model.vocab: must be ...".
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  // The member `key` of an object; Has: it is there and not null.
  absl::StatusOr<JsonField> Get(const std::string& key) const;
  absl::StatusOr<bool> Has(const std::string& key) const;

  absl::StatusOr<std::string> String() const;
  absl::StatusOr<bool> Bool() const;
  // An integer in [0, limit).
  absl::StatusOr<int32_t> Index(int32_t limit) const;
  absl::StatusOr<std::vector<JsonField>> Elements() const;

  // Get and convert at once. With `fallback`, a member that is missing or null has that value.
  absl::StatusOr<std::string> String(const std::string& key) const;
  absl::StatusOr<bool> Bool(const std::string& key) const;
  absl::StatusOr<bool> Bool(const std::string& key, bool fallback) const;

  bool IsObject() const { return value_->is_object(); }
  bool IsString() const { return value_->is_string(); }
  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  absl::Status Error(std::string_view what) const;          // "path: what", InvalidArgument
  absl::Status Unimplemented(std::string_view what) const;  // "path: what", Unimplemented

 private:
  absl::Status WrongType(std::string_view wanted) const;

  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace skein::model
