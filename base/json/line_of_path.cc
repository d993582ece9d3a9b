#include "base/json/line_of_path.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace skein {
namespace {

// Walks over values of a text that is known to be well-formed.
class Walker {
 public:
  explicit Walker(std::string_view json) : json_(json) {}

  char At(size_t offset) const { return offset < json_.size() ? json_[offset] : '\0'; }
  size_t Begin(size_t offset) const {
    return std::min(json_.find_first_not_of(" \t\r\n", offset), json_.size());
  }

  // The value of the key, in the object or in one within it.
  std::optional<size_t> Member(size_t object, std::string_view key) const {
    if (const std::optional<size_t> own = OwnMember(object, key)) return own;
    if (At(object) != '{') return std::nullopt;
    std::optional<size_t> found;
    ForEach(object, [&](std::string_view, size_t value) {
      found = OwnMember(value, key);
      return !found.has_value();
    });
    return found;
  }
  std::optional<size_t> Element(size_t array, int64_t index) const {
    if (At(array) != '[') return std::nullopt;
    std::optional<size_t> found;
    ForEach(array, [&](std::string_view, size_t value) {
      if (index-- == 0) found = value;
      return !found.has_value();
    });
    return found;
  }

 private:
  std::optional<size_t> OwnMember(size_t object, std::string_view key) const {
    if (At(object) != '{') return std::nullopt;
    std::optional<size_t> found;
    ForEach(object, [&](std::string_view name, size_t value) {
      if (name == key) found = value;
      return !found.has_value();
    });
    return found;
  }

  // Calls visit(key, offset of the value), without keys in arrays, until it returns false.
  template <typename Visit>
  void ForEach(size_t of, const Visit& visit) const {
    const bool has_keys = At(of) == '{';
    if (!has_keys && At(of) != '[') return;
    for (size_t at = Begin(of + 1); At(at) != '}' && At(at) != ']';) {
      if (at >= json_.size()) return;
      std::string_view key;
      if (has_keys) {
        const size_t end = EndOf(at);
        key = json_.substr(at + 1, end - at - 2);
        at = Begin(Begin(end) + 1);  // behind the colon
      }
      if (!visit(key, at)) return;
      at = Begin(EndOf(at));
      if (At(at) == ',') at = Begin(at + 1);
    }
  }

  // Behind the value that begins here.
  size_t EndOf(size_t begin) const {
    int64_t depth = 0;
    for (size_t at = begin; at < json_.size(); ++at) {
      const char c = json_[at];
      if (c == '"') {
        for (++at; at < json_.size() && json_[at] != '"'; ++at) at += json_[at] == '\\' ? 1 : 0;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        --depth;
      }
      if (depth > 0) continue;
      if (c == '"' || c == '}' || c == ']') return at + 1;
      const size_t end = json_.find_first_of(",]} \t\r\n", at);  // of a number or a word
      return std::min(end, json_.size());
    }
    return json_.size();
  }

  const std::string_view json_;
};

// Takes the name that the text begins with; empty where it begins with none.
std::string_view TakeName(std::string_view& text) {
  constexpr std::string_view kName =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  const std::string_view name = text.substr(0, text.find_first_not_of(kName));
  text.remove_prefix(name.size());
  return name;
}

std::optional<int64_t> TakeIndex(std::string_view& text) {
  if (text.empty() || text.front() != '[') return std::nullopt;
  int64_t index = 0;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), index);
  if (error != std::errc() || end == text.data() + text.size() || *end != ']') return std::nullopt;
  text.remove_prefix(end + 1 - text.data());
  return index;
}

}  // namespace

int64_t LineOfPath(std::string_view json, std::string_view error) {
  const Walker walker(json);
  size_t place = walker.Begin(0);
  if (!error.empty() && error.front() == '(') error.remove_prefix(1);
  while (true) {
    const std::string_view name = TakeName(error);
    if (name.empty()) break;
    std::optional<size_t> next = walker.Member(place, name);
    // A word of a sentence is no part of a path.
    if (!next.has_value() || (!error.empty() && error.find_first_of(".:)[") != 0)) break;
    place = *next;
    while (const std::optional<int64_t> index = TakeIndex(error)) {
      next = walker.Element(place, *index);
      if (!next.has_value()) break;
      place = *next;
    }
    if (!next.has_value()) break;
    const size_t part = error.find_first_not_of(".:) ");
    if (part == std::string_view::npos) break;
    error.remove_prefix(part);
  }
  const auto before = json.substr(0, place);
  return 1 + std::count(before.begin(), before.end(), '\n');
}

}  // namespace skein
