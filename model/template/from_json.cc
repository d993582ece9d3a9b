#include "model/template/from_json.h"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/template/errors.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

constexpr int kMaxDepth = 90;

using Json = nlohmann::ordered_json;

class Converter {
 public:
  Converter(Runtime& runtime, Origin origin) : runtime_(runtime), origin_(origin) {}

  absl::StatusOr<Value> Convert(const Json& json, int depth) {
    if (depth > kMaxDepth) {
      return absl::ResourceExhaustedError("JSON values are more than 90 deep");
    }
    switch (json.type()) {
      case Json::value_t::null:
        return None();
      case Json::value_t::boolean:
        return json.get<bool>();
      case Json::value_t::number_integer:
        return json.get<int64_t>();
      case Json::value_t::number_float:
        return json.get<double>();
      case Json::value_t::string:
        return ConvertString(json.get_ref<const std::string&>());
      case Json::value_t::array:
        return ConvertArray(json, depth);
      case Json::value_t::object:
        return ConvertObject(json, depth);
      case Json::value_t::number_unsigned:
        break;
      case Json::value_t::binary:
      case Json::value_t::discarded:
        return Invalid("a value that JSON has none for");
    }
    const auto number = json.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Invalid("an integer beyond 64 bits: ", number);
    }
    return static_cast<int64_t>(number);
  }

 private:
  absl::StatusOr<Value> ConvertString(const std::string& bytes) {
    if (FindInvalidUtf8(bytes) != std::string_view::npos) return Invalid("a string is not UTF-8");
    return runtime_.MakeString(Text(bytes, origin_));
  }

  absl::StatusOr<Value> ConvertArray(const Json& json, int depth) {
    std::vector<Value> items;
    for (const Json& element : json) {
      SKEIN_ASSIGN_OR_RETURN(Value item, Convert(element, depth + 1));
      items.push_back(std::move(item));
    }
    return runtime_.MakeList(std::move(items));
  }

  absl::StatusOr<Value> ConvertObject(const Json& json, int depth) {
    std::vector<std::pair<Value, Value>> entries;
    for (auto member = json.begin(); member != json.end(); ++member) {
      SKEIN_ASSIGN_OR_RETURN(Value key, ConvertString(member.key()));
      SKEIN_ASSIGN_OR_RETURN(Value value, Convert(*member, depth + 1));
      entries.emplace_back(std::move(key), std::move(value));
    }
    return runtime_.MakeDict(std::move(entries));
  }

  Runtime& runtime_;
  const Origin origin_;
};

}  // namespace

absl::StatusOr<Value> FromJson(Runtime& runtime, const Json& json, Origin origin) {
  return Converter(runtime, origin).Convert(json, 1);
}

}  // namespace skein::model
