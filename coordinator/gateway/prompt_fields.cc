#include "coordinator/gateway/prompt_fields.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

using nlohmann::json;

std::vector<PromptInput> ReadPrompts(BodyReader& body, std::string_view field, int64_t most) {
  constexpr std::string_view kForms =
      "a string, a list of token ids, or a list of either is expected";
  const json* const prompt = body.Find(field);
  if (prompt == nullptr) {
    body.Fail(field, "is missing");
    return {};
  }
  if (prompt->is_string()) return {prompt->get<std::string>()};
  std::vector<PromptInput> inputs;
  if (prompt->is_array() && !prompt->empty() && prompt->front().is_number()) {
    if (std::optional<std::vector<uint32_t>> ids = TokenIdsOf(*prompt)) return {*std::move(ids)};
  } else if (prompt->is_array() && !prompt->empty()) {
    if (std::ssize(*prompt) > most) {
      body.Fail(field, absl::StrCat(prompt->size(), " of them; at most ", most,
                                    " are allowed in a request"));
      return {};
    }
    for (const json& item : *prompt) {
      std::optional<PromptInput> input;
      if (item.is_string()) input = item.get<std::string>();
      if (item.is_array() && !item.empty()) input = TokenIdsOf(item);
      if (!input.has_value()) break;
      inputs.push_back(*std::move(input));
    }
    if (inputs.size() == prompt->size()) return inputs;
  }
  body.Fail(field, kForms);
  return {};
}

}  // namespace skein::coordinator
