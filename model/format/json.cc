#include "model/format/json.h"

#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::model {
namespace {

using nlohmann::json;

// Watches the parser's events; throws, since a callback cannot stop the parser otherwise.
class Watcher {
 public:
  explicit Watcher(const JsonLimits& limits) : limits_(limits) {}

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        if (depth >= limits_.max_depth) {
          throw std::length_error(
              absl::StrCat("nested deeper than ", limits_.max_depth, " levels"));
        }
        keys_.emplace_back();
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        keys_.pop_back();
        break;
      case json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get<std::string>()).second) {
          throw std::invalid_argument(
              absl::StrCat("key '", parsed.get<std::string>(), "' appears twice"));
        }
        break;
      case json::parse_event_t::value:
        break;
    }
    if (++values_ > limits_.max_values) {
      throw std::length_error(absl::StrCat("more than ", limits_.max_values, " values"));
    }
    return true;
  }

 private:
  const JsonLimits limits_;
  int64_t values_ = 0;
  std::vector<std::set<std::string>> keys_;  // of the objects and arrays that are open
};

}  // namespace

std::string JsonErrorText(const std::exception& error) {
  constexpr size_t kMaxText = 200;
  std::string text = error.what();
  if (text.size() > kMaxText) text = text.substr(0, kMaxText) + "...";
  return text;
}

absl::StatusOr<json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    return absl::InvalidArgumentError(  // the parser takes it for the end
        absl::StrCat("bad JSON: a zero byte at offset ", zero));
  }
  Watcher watcher(limits);
  try {
    return json::parse(text.begin(), text.end(), std::ref(watcher));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("bad JSON: ", JsonErrorText(error)));
  }
}

}  // namespace skein::model
