#include "model/template/attribute_path.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "model/template/attributes.h"
#include "model/template/errors.h"
#include "model/template/numbers.h"
#include "model/template/text_edits.h"

namespace skein::model {
namespace {

absl::StatusOr<std::vector<Value>> PartsOf(const Text& path) {
  std::vector<Value> parts;
  for (Text& part : Split(path, ".", -1)) {
    const std::string& bytes = part.bytes();
    if (!bytes.empty() && bytes.find_first_not_of("0123456789") == std::string::npos) {
      SKEIN_ASSIGN_OR_RETURN(const auto index, ParseInteger(bytes, 10));
      parts.emplace_back(index.value_or(0));
    } else {
      parts.emplace_back(std::make_shared<const String>(String{.text = std::move(part)}));
    }
  }
  return parts;
}

}  // namespace

absl::StatusOr<AttributePath> AttributePath::Parse(const Value* attribute) {
  AttributePath path;
  if (attribute == nullptr || IsNone(*attribute)) return path;
  if (IsString(*attribute)) {
    SKEIN_ASSIGN_OR_RETURN(path.parts_, PartsOf(TextOf(*attribute)));
  } else {
    path.parts_.push_back(*attribute);
  }
  return path;
}

absl::StatusOr<std::vector<AttributePath>> AttributePath::ParseSeveral(const Value* attribute) {
  std::vector<AttributePath> paths;
  if (attribute == nullptr || !IsString(*attribute)) {
    SKEIN_ASSIGN_OR_RETURN(AttributePath path, Parse(attribute));
    paths.push_back(std::move(path));
    return paths;
  }
  for (const Text& part : Split(TextOf(*attribute), ",", -1)) {
    AttributePath path;
    SKEIN_ASSIGN_OR_RETURN(path.parts_, PartsOf(part));
    paths.push_back(std::move(path));
  }
  return paths;
}

absl::StatusOr<Value> AttributePath::Get(Runtime& runtime, const Value& item,
                                         const Value* fallback) const {
  Value value = item;
  for (const Value& part : parts_) {
    SKEIN_RETURN_IF_ERROR(runtime.Step());
    SKEIN_ASSIGN_OR_RETURN(value, GetItem(runtime, value, part));
    if (fallback != nullptr && !IsNone(*fallback) && IsUndefined(value)) value = *fallback;
  }
  return value;
}

}  // namespace skein::model
