// Renders a chat template for scripts: reads lines of JSON {"template": source, "user": {...},
// "trusted": {...}, "now": seconds}, prints for each a line {"text", "user"} or {"error"}.
#include <iostream>
#include <string>

#include "absl/time/time.h"
#include "model/template/chat_template.h"
#include "nlohmann/json.hpp"

int main() {
  using Json = nlohmann::ordered_json;
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json request = Json::parse(line);
    Json answer;
    const auto parsed =
        skein::model::ChatTemplate::Parse(request["template"].get_ref<const std::string&>());
    if (!parsed.ok()) {
      answer["error"] = parsed.status().ToString();
      answer["at_parse"] = true;
    } else {
      const auto text = parsed->Render(request["user"], request["trusted"],
                                       absl::FromUnixSeconds(request["now"].get<int64_t>()));
      if (text.ok()) {
        answer["text"] = text->text;
        answer["user"] = Json::array();
        for (const auto& range : text->user) answer["user"].push_back({range.begin, range.end});
      } else {
        answer["error"] = std::string(text.status().message());
      }
    }
    std::cout << answer.dump() << "\n";
  }
  return 0;
}
