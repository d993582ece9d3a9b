#include "coordinator/gateway/text_tools.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/body_reader.h"
#include "coordinator/gateway/json_answer.h"
#include "model/tokenizer/tokenizer.h"

namespace skein::coordinator {

using nlohmann::json;

std::unique_ptr<HttpAnswer> Tokenize(const json& body, const ServedModel& model) {
  BodyReader reader(body);
  std::optional<std::string> text = reader.String("prompt");
  if (!text.has_value()) text = reader.String("content");
  model::EncodeOptions options;
  options.add_special_tokens = reader.Bool("add_special_tokens").value_or(true);
  options.parse_special = reader.Bool("parse_special").value_or(false);
  if (!text.has_value()) reader.Fail("prompt", "is missing");
  if (reader.error().has_value()) return ToAnswer(*reader.error());
  absl::StatusOr<std::vector<int32_t>> ids = model.tokenizer->Encode(*text, options);
  if (!ids.ok()) return ToAnswer(BadField("prompt", std::string(ids.status().message())));
  return JsonAnswer(
      {{"tokens", *ids}, {"count", ids->size()}, {"max_model_len", model.context_length}});
}

std::unique_ptr<HttpAnswer> Detokenize(const json& body, const ServedModel& model) {
  BodyReader reader(body);
  const json* const list = reader.Find("tokens");
  if (list == nullptr || !list->is_array()) reader.Fail("tokens", "a list of ids is expected");
  if (reader.error().has_value()) return ToAnswer(*reader.error());
  model::StreamingDetokenizer detokenizer(model.tokenizer.get());
  std::string text;
  for (size_t i = 0; i < list->size(); ++i) {
    const json& id = (*list)[i];
    if (!id.is_number_unsigned() ||
        id.get<uint64_t>() >= static_cast<uint64_t>(model.config.vocab_size)) {
      return ToAnswer(BadField(absl::StrCat("tokens[", i, "]"),
                               absl::StrCat("not in [0, ", model.config.vocab_size - 1, "]")));
    }
    text += detokenizer.Push(id.get<int32_t>());
  }
  text += detokenizer.Finish();
  return JsonAnswer({{"prompt", text}, {"content", text}});
}

}  // namespace skein::coordinator
