#include "tests/flags/ask.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::testing {

std::string Asked::reason() const {
  return finished.empty() ? "" : finished.front().at("reason").get<std::string>();
}

int64_t Asked::prompt_tokens() const {
  return finished.empty() ? -1 : finished.front().at("usage").at("prompt_tokens").get<int64_t>();
}

Asked Ask(const std::string& coordinator, const std::string& flags) {
  Asked asked;
  asked.outcome =
      Run(kSkein, absl::StrCat("generate --json --coordinator=", coordinator, " ", flags));
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(asked.outcome.out, '\n', absl::SkipEmpty()))) {
    const nlohmann::json event = nlohmann::json::parse(line);
    if (event.contains("accepted")) asked.accepted = event["accepted"];
    if (event.contains("finished")) asked.finished.push_back(event["finished"]);
    if (!event.contains("tokens")) continue;
    const nlohmann::json& tokens = event["tokens"];
    asked.text += tokens.at("text").get<std::string>();
    for (const auto& token : tokens.at("tokens")) {
      asked.tokens.push_back(token);
      asked.ids.push_back(token.at("id"));
    }
    for (const auto& token : tokens.at("prompt_logprobs")) asked.prompt_logprobs.push_back(token);
  }
  return asked;
}

}  // namespace skein::testing
