#include "coordinator/service/chat_prompt.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "model/tokenizer/tokenizer.h"

namespace skein::coordinator {
namespace {

using Json = nlohmann::ordered_json;

std::string TokenOf(std::optional<int32_t> id, const ServedModel& model) {
  return id.has_value() ? model.tokenizer->TokenBytes(*id, /*skip_special=*/false) : "";
}

}  // namespace

absl::StatusOr<model::RenderedText> RenderPrompt(const Conversation& conversation,
                                                 const ServedModel& model, absl::Time now) {
  if (!model.chat_template.ok()) return model.chat_template.status();
  const std::optional<int32_t> eos = model.config.eos_token_ids.empty()
                                         ? std::nullopt
                                         : std::optional(model.config.eos_token_ids.front());
  const Json trusted = {{"bos_token", TokenOf(model.config.bos_token_id, model)},
                        {"eos_token", TokenOf(eos, model)},
                        {"add_generation_prompt", conversation.add_generation_prompt}};
  return model.chat_template->Render(conversation.values, trusted, now);
}

absl::StatusOr<std::vector<uint32_t>> EncodePrompt(const model::RenderedText& prompt,
                                                   const ServedModel& model) {
  // Every token stands for at most longest_token_bytes.
  const int64_t most_bytes = model.context_length * model.longest_token_bytes;
  if (static_cast<int64_t>(prompt.text.size()) > most_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("prompt: ", prompt.text.size(),
                                                   " bytes are more than the context of ",
                                                   model.context_length, " tokens holds"));
  }
  std::vector<Range> plain;
  for (const model::ByteRange& range : prompt.user) {
    plain.push_back({static_cast<int64_t>(range.begin), static_cast<int64_t>(range.end)});
  }
  SKEIN_ASSIGN_OR_RETURN(
      const std::vector<int32_t> ids,
      model.tokenizer->Encode(prompt.text, {.add_special_tokens = false,  // the template has them
                                            .parse_special = true,
                                            .plain = plain}));
  return std::vector<uint32_t>(ids.begin(), ids.end());
}

}  // namespace skein::coordinator
