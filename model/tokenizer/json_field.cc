#include "model/tokenizer/json_field.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::model {

absl::Status JsonField::Error(std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ": ", std::string(what)));
}

absl::Status JsonField::Unimplemented(std::string_view what) const {
  return absl::UnimplementedError(absl::StrCat(path_, ": ", std::string(what)));
}

absl::Status JsonField::WrongType(std::string_view wanted) const {
  return Error(absl::StrCat("must be ", std::string(wanted), ", but is ", value_->type_name()));
}

absl::StatusOr<bool> JsonField::Has(const std::string& key) const {
  if (!value_->is_object()) return WrongType("an object");
  const auto member = value_->find(key);
  return member != value_->end() && !member->is_null();
}

absl::StatusOr<JsonField> JsonField::Get(const std::string& key) const {
  if (!value_->is_object()) return WrongType("an object");
  const auto member = value_->find(key);
  std::string path = path_.empty() ? key : absl::StrCat(path_, ".", key);
  if (member == value_->end()) return absl::InvalidArgumentError(path + ": is missing");
  return JsonField(*member, std::move(path));
}

absl::StatusOr<std::string> JsonField::String() const {
  if (!value_->is_string()) return WrongType("a string");
  return value_->get<std::string>();
}

absl::StatusOr<bool> JsonField::Bool() const {
  if (!value_->is_boolean()) return WrongType("true or false");
  return value_->get<bool>();
}

absl::StatusOr<int32_t> JsonField::Index(int32_t limit) const {
  if (!value_->is_number_integer()) return WrongType("an integer");
  // Kept unsigned by the parser when it is not negative.
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() >= static_cast<uint64_t>(limit)) {
    return Error(absl::StrCat("must be in [0, ", limit, "), but is ", value_->dump()));
  }
  return static_cast<int32_t>(value_->get<uint64_t>());
}

absl::StatusOr<std::vector<JsonField>> JsonField::Elements() const {
  if (!value_->is_array()) return WrongType("an array");
  std::vector<JsonField> elements;
  elements.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    elements.emplace_back((*value_)[i], absl::StrCat(path_, "[", i, "]"));
  }
  return elements;
}

absl::StatusOr<std::string> JsonField::String(const std::string& key) const {
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, Get(key));
  return field.String();
}

absl::StatusOr<bool> JsonField::Bool(const std::string& key) const {
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, Get(key));
  return field.Bool();
}

absl::StatusOr<bool> JsonField::Bool(const std::string& key, bool fallback) const {
  SKEIN_ASSIGN_OR_RETURN(const bool has, Has(key));
  if (!has) return fallback;
  return Bool(key);
}

}  // namespace skein::model
