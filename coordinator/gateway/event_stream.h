// Server-sent events: what streams of answers are made of.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// JSON in one line; bytes that are no UTF-8 become U+FFFD.
inline std::string JsonText(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

// An event of which one text changes: its tree is written out once.
class EventAround {
 public:
  // `event` has `field` once, with an empty text.
  EventAround(const nlohmann::ordered_json& event, std::string_view field) {
    const std::string whole = JsonText(event);
    const std::string hole = absl::StrCat("\"", std::string(field), "\":\"\"");
    const size_t text = whole.find(hole) + hole.size() - 2;
    before_ = whole.substr(0, text);
    after_ = whole.substr(text + 2);
  }

  std::string With(const std::string& text) const {
    return absl::StrCat(before_, JsonText(text), after_);
  }

 private:
  std::string before_, after_;
};

// One of each of several choices, made when it is first asked for.
class EventsAround {
 public:
  // `make` gives the event of a choice, whose `field` is empty.
  template <typename Make>
  const EventAround& Of(int32_t choice, std::string_view field, Make make) {
    const auto found = events_.find(choice);
    if (found != events_.end()) return found->second;
    return events_.emplace(choice, EventAround(make(), field)).first->second;
  }

 private:
  std::map<int32_t, EventAround> events_;
};

// Collects events until they are taken. Not thread-safe.
//
// Events may be numbered, from 1 on: then each has its number as its id, and those that a client
// has already are passed over.
class EventStream {
 public:
  using Json = nlohmann::ordered_json;

  void SayText(std::string_view data) { Write("", data); }
  void Say(const Json& event) { SayText(JsonText(event)); }
  // With a line that names it: by its "type".
  void SayNamedText(std::string_view name, std::string_view data) { Write(name, data); }
  void SayNamed(const Json& event) {
    SayNamedText(event["type"].get_ref<const std::string&>(), JsonText(event));
  }
  void SayDone() { SayText("[DONE]"); }

  // From now on. `have`: the last one that the client has; 0: none.
  void Number(int64_t have) {
    numbered_ = true;
    have_ = have;
  }
  void StopNumbers() { numbered_ = false; }
  int64_t said() const { return said_; }

  bool empty() const { return text_.empty(); }
  std::string Take() { return std::exchange(text_, ""); }

 private:
  void Write(std::string_view name, std::string_view data) {
    ++said_;
    if (numbered_ && said_ <= have_) return;
    if (!name.empty()) text_.append("event: ").append(name).append("\n");
    if (numbered_) absl::StrAppend(&text_, "id: ", said_, "\n");
    text_.append("data: ").append(data).append("\n\n");
  }

  std::string text_;
  bool numbered_ = false;
  int64_t have_ = 0;
  int64_t said_ = 0;
};

}  // namespace skein::coordinator
