#include "coordinator/gateway/token_text.h"

#include <algorithm>
#include <utility>

namespace skein::coordinator {
namespace {

using Json = nlohmann::ordered_json;

Json LogprobRow(int32_t id, float logprob, const model::Tokenizer& tokenizer) {
  const std::string text = TokenText(tokenizer, id);
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
  return {{"token", text}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

}  // namespace

std::string TokenText(const model::Tokenizer& tokenizer, int32_t id) {
  return tokenizer.TokenBytes(id, /*skip_special=*/false);
}

Json LogprobRows(const std::vector<AnswerToken>& tokens, const model::Tokenizer& tokenizer) {
  Json rows = Json::array();
  for (const AnswerToken& token : tokens) {
    Json row = LogprobRow(token.id, token.logprob.value_or(0), tokenizer);
    Json top = Json::array();
    for (const serving::TokenLogprob& of : token.top_logprobs) {
      top.push_back(LogprobRow(of.id, of.logprob, tokenizer));
    }
    row["top_logprobs"] = std::move(top);
    rows.push_back(std::move(row));
  }
  return rows;
}

Json PromptLogprobs(const std::vector<AnswerToken>& rows, const model::Tokenizer& tokenizer) {
  Json list = Json::array({nullptr});
  for (const AnswerToken& row : rows) {
    Json tokens = Json::object();
    const auto add = [&](int32_t id, float logprob) {
      tokens[std::to_string(id)] = {{"logprob", logprob},
                                    {"decoded_token", TokenText(tokenizer, id)}};
    };
    add(row.id, row.logprob.value_or(0));
    for (const serving::TokenLogprob& top : row.top_logprobs) add(top.id, top.logprob);
    list.push_back(std::move(tokens));
  }
  return list;
}

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

}  // namespace skein::coordinator
