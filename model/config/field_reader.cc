#include "model/config/field_reader.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

namespace skein::model {
namespace {

using nlohmann::json;

std::optional<int64_t> AsInt(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

std::string Quote(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  constexpr size_t kMaxQuote = 60;
  if (text.size() > kMaxQuote) text = text.substr(0, kMaxQuote) + "...";
  return text;
}

}  // namespace

const json& FieldReader::Get(const char* field) const {
  static const json null;
  const auto found = object_.find(field);
  return found == object_.end() ? null : *found;
}

bool FieldReader::Has(const char* field) const { return !Get(field).is_null(); }

std::string FieldReader::Describe(const char* field, std::string_view reason) const {
  if (!Has(field)) return absl::StrCat(prefix_, field, " is missing: ", std::string(reason));
  return absl::StrCat(prefix_, field, " is ", Quote(Get(field)), ": ", std::string(reason));
}

void FieldReader::FailField(const char* field, std::string_view reason) {
  Fail(absl::InvalidArgumentError(Describe(field, reason)));
}

void FieldReader::FailUnimplemented(const char* field, std::string_view reason) {
  Fail(absl::UnimplementedError(Describe(field, reason)));
}

void FieldReader::RequiredInt(const char* field, int64_t low, int64_t high, int64_t* value) {
  const std::optional<int64_t> number = AsInt(Get(field));
  if (!number || *number < low || *number > high) {
    FailField(field, absl::StrCat("must be an integer in [", low, ", ", high, "]"));
    return;
  }
  *value = *number;
}

void FieldReader::Int(const char* field, int64_t low, int64_t high, int64_t* value) {
  if (Has(field)) RequiredInt(field, low, high, value);
}

void FieldReader::OptionalInt(const char* field, int64_t low, int64_t high,
                              std::optional<int64_t>* value) {
  if (Has(field)) RequiredInt(field, low, high, &value->emplace());
}

void FieldReader::RequiredDouble(const char* field, double low, double high, double* value) {
  const json& found = Get(field);
  const double number = found.is_number() ? found.get<double>() : 0.0;
  if (!found.is_number() || !(number >= low && number <= high)) {
    FailField(field, absl::StrCat("must be a number in [", low, ", ", high, "]"));
    return;
  }
  *value = number;
}

void FieldReader::Double(const char* field, double low, double high, double* value) {
  if (Has(field)) RequiredDouble(field, low, high, value);
}

void FieldReader::OptionalDouble(const char* field, double low, double high,
                                 std::optional<double>* value) {
  if (Has(field)) RequiredDouble(field, low, high, &value->emplace());
}

void FieldReader::RequiredDoubles(const char* field, size_t count, double low, double high,
                                  std::vector<double>* values) {
  const json& found = Get(field);
  const auto is_right = [&](const json& value) {
    return value.is_number() && value.get<double>() >= low && value.get<double>() <= high;
  };
  if (!found.is_array() || found.size() != count ||
      !std::all_of(found.begin(), found.end(), is_right)) {
    FailField(field,
              absl::StrCat("must be a list of ", count, " numbers in [", low, ", ", high, "]"));
    return;
  }
  *values = found.get<std::vector<double>>();
}

void FieldReader::Bool(const char* field, bool* value) {
  if (!Has(field)) return;
  if (!Get(field).is_boolean()) {
    FailField(field, "must be true or false");
    return;
  }
  *value = Get(field).get<bool>();
}

void FieldReader::String(const char* field, std::string* value) {
  if (!Has(field)) return;
  if (!Get(field).is_string()) {
    FailField(field, "must be a string");
    return;
  }
  *value = Get(field).get<std::string>();
}

void FieldReader::TokenIds(const char* field, std::vector<int32_t>* ids) {
  if (!Has(field)) return;
  const json& found = Get(field);
  const json list = found.is_array() ? found : json::array({found});
  ids->clear();
  for (const json& element : list) {
    const std::optional<int64_t> id = AsInt(element);
    if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
      FailField(field, "must be a token id (an integer in [0, 2147483647]) or a list of them");
      return;
    }
    ids->push_back(static_cast<int32_t>(*id));
  }
}

void FieldReader::Object(const char* field, absl::FunctionRef<void(FieldReader&)> read) {
  if (!Get(field).is_object()) {
    Fail(absl::InvalidArgumentError(absl::StrCat(prefix_, field, " must be an object")));
    return;
  }
  FieldReader object(Get(field), absl::StrCat(prefix_, field, "."));
  read(object);
  Fail(object.status());
}

}  // namespace skein::model
