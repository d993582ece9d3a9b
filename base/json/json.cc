#include "base/json/json.h"

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_util.h"

namespace skein {
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
        return true;  // counted at its start
      case json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get<std::string>()).second) {
          throw std::invalid_argument(
              absl::StrCat("key '", parsed.get<std::string>(), "' appears twice"));
        }
        return true;  // counted with its value
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

absl::Status JsonError(int64_t offset, std::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("bad JSON at offset ", offset, ": ", std::string(reason)));
}

absl::Status JsonError(int64_t offset, const std::exception& error) {
  constexpr size_t kMaxText = 150;  // some two lines of a terminal, with offset and path
  std::string_view text = error.what();
  // Such as "[json.exception.parse_error.101] parse error at line 1, ...".
  if (const size_t id = text.find("] "); text.starts_with("[json.") && id != text.npos) {
    text.remove_prefix(id + 2);
  }
  if (text.size() <= kMaxText) return JsonError(offset, text);
  return JsonError(offset, absl::StrCat(std::string(text.substr(0, kMaxText)), "..."));
}

absl::StatusOr<json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    // The parser takes it for the end.
    return JsonError(static_cast<int64_t>(zero), "a zero byte");
  }
  Watcher watcher(limits);
  const char* const begin = text.data();
  const char* next = begin;
  try {
    return json::parse(JsonCursor(begin, &next), JsonCursor(begin + text.size(), &next),
                       std::ref(watcher));
  } catch (const json::parse_error& error) {
    return JsonError(static_cast<int64_t>(error.byte) - 1, error);
  } catch (const std::exception& error) {
    const int64_t offset = std::max<int64_t>(0, next - begin - 1);
    const auto line = 1 + std::count(begin, begin + offset, '\n');
    const absl::Status status = JsonError(offset, error);
    return line == 1 ? status : Annotate(status, absl::StrCat("line ", line));
  }
}

}  // namespace skein
