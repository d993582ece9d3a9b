#include "coordinator/gateway/completions.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "coordinator/gateway/api_answer.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/body_reader.h"
#include "coordinator/gateway/finish_reason.h"
#include "coordinator/gateway/generation_fields.h"
#include "coordinator/gateway/prompt_fields.h"
#include "coordinator/gateway/token_text.h"

namespace skein::coordinator {
namespace {

using nlohmann::json;
using Json = ApiFormat::Json;

constexpr int64_t kMaxPrompts = 64;   // of a request: each takes a place in the queue
constexpr int64_t kMaxAnswers = 128;  // likewise: all of them are kept until the last has ended
constexpr uint32_t kDefaultMaxTokens = 16;

// What a request asks for beside its prompts.
struct Options {
  StreamOptions stream;
  bool echo = false;
  bool only_prompt = false;  // max_tokens 0: the one token that is drawn is left out
  int32_t n = 1;             // of best_of answers to each prompt
  int32_t best_of = 1;
  std::optional<int32_t> logprobs;  // asked for by the client
  bool prompt_logprobs = false;
};

class CompletionFormat final : public ApiFormat {
 public:
  CompletionFormat(const Options& options, std::vector<std::string> prompts,
                   const ServedModel& model, const AnswerName& name)
      : ApiFormat("cmpl-", name),
        options_(options),
        prompts_(std::move(prompts)),
        model_(model),
        of_prompts_(prompts_.size()) {}

  Json Whole(std::vector<Choice>& choices, const TokenUsage& usage) override {
    for (Choice& choice : choices) TakePromptRows(choice);
    Json list = Json::array();
    for (Choice* const choice : Best(choices)) {
      list.push_back(ChoiceJson(*choice, static_cast<int32_t>(list.size()), /*first=*/true));
    }
    Json response = Frame(std::move(list));
    response["usage"] = Usage(usage);
    return response;
  }

  // All answers begin with what their prompt's tokens have, which comes with the first answer,
  // before its first token: until then the others wait.
  void Piece(const Choice& piece, const TokenUsage& /*usage*/, EventStream& out) override {
    OfPrompt& prompt = of_prompts_[static_cast<size_t>(piece.prompt)];
    if (prompt.whole || !tells_of_prompts()) return Tell(piece, out);
    Choice waits = piece;
    TakePromptRows(waits);
    if (waits.tokens.empty() && waits.text.empty() && !waits.finished.has_value()) return;
    prompt.whole = piece.index % options_.n == 0;
    prompt.waiting.push_back(std::move(waits));
    if (!prompt.whole) return;
    for (const Choice& choice : std::exchange(prompt.waiting, {})) Tell(choice, out);
  }

  void End(const TokenUsage& usage, EventStream& out) override {
    if (options_.stream.include_usage) {
      Json response = Frame(Json::array());
      response["usage"] = Usage(usage);
      out.Say(response);
    }
    out.SayDone();
  }

 private:
  struct OfPrompt {
    std::vector<AnswerToken> rows;  // from its second token on
    // In a stream:
    bool whole = false;           // there is no further row
    std::vector<Choice> waiting;  // for the rows
    int32_t begun = 0;            // answers
  };

  bool tells_of_prompts() const {
    return options_.prompt_logprobs || (options_.echo && options_.logprobs.has_value());
  }

  void TakePromptRows(Choice& choice) {
    std::vector<AnswerToken>& rows = of_prompts_[static_cast<size_t>(choice.prompt)].rows;
    std::move(choice.prompt_logprobs.begin(), choice.prompt_logprobs.end(),
              std::back_inserter(rows));
    choice.prompt_logprobs.clear();
  }

  void Tell(const Choice& piece, EventStream& out) {
    const bool first = begun_.emplace(piece.index, true).second;
    const bool text_alone = !first && !piece.finished.has_value() && !options_.logprobs.has_value();
    if (text_alone && !options_.only_prompt) {
      const auto event = [&] {
        return Frame(Json::array({ChoiceJson({.index = piece.index}, piece.index, false)}));
      };
      out.SayText(around_.Of(piece.index, "text", event).With(piece.text));
    } else {
      out.Say(Frame(Json::array({ChoiceJson(piece, piece.index, first)})));
    }
    OfPrompt& prompt = of_prompts_[static_cast<size_t>(piece.prompt)];
    if (first && ++prompt.begun == options_.n) prompt.rows = {};
  }

  Json Frame(Json choices) const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", model_.name},
            {"choices", std::move(choices)}};
  }

  Json Usage(const TokenUsage& usage) const {
    TokenUsage told = usage;
    if (options_.only_prompt) told.completion = 0;
    return ToJson(told);
  }

  // Of each prompt the n most likely answers, by the mean of their tokens, in the order of indices.
  std::vector<Choice*> Best(std::vector<Choice>& choices) const {
    const auto mean = [](const Choice* choice) {
      double sum = 0;
      for (const AnswerToken& token : choice->tokens) sum += token.logprob.value_or(0);
      return sum / std::max<double>(1, static_cast<double>(choice->tokens.size()));
    };
    std::vector<Choice*> best;
    for (size_t begin = 0; begin < choices.size(); begin += static_cast<size_t>(options_.best_of)) {
      std::vector<Choice*> of_prompt;
      for (int32_t i = 0; i < options_.best_of; ++i) of_prompt.push_back(&choices[begin + i]);
      if (options_.n < options_.best_of) {
        std::stable_sort(of_prompt.begin(), of_prompt.end(),
                         [&](const Choice* a, const Choice* b) { return mean(a) > mean(b); });
        of_prompt.resize(static_cast<size_t>(options_.n));
      }
      best.insert(best.end(), of_prompt.begin(), of_prompt.end());
    }
    return best;
  }

  Json ChoiceJson(const Choice& choice, int32_t index, bool first) {
    const bool echoes = options_.echo && first;
    std::string text = echoes ? prompts_[static_cast<size_t>(choice.prompt)] : "";
    if (!options_.only_prompt) text += choice.text;
    Json logprobs;
    if (options_.logprobs.has_value()) logprobs = LogprobsJson(choice, echoes);
    Json reason;
    if (choice.finished.has_value()) {
      reason = options_.only_prompt ? "length" : FinishReason(*choice.finished);
    }
    Json told = {{"index", index},
                 {"text", std::move(text)},
                 {"logprobs", std::move(logprobs)},
                 {"finish_reason", std::move(reason)}};
    if (first && options_.prompt_logprobs) {
      const OfPrompt& prompt = of_prompts_[static_cast<size_t>(choice.prompt)];
      told["prompt_logprobs"] = PromptLogprobs(prompt.rows, *model_.tokenizer);
    }
    return told;
  }

  // Lists that have a row for each token. The prompt's first token has no probability, and no id
  // that anybody told: its text is what the others leave of the prompt.
  Json LogprobsJson(const Choice& choice, bool with_prompt) {
    Json tokens = Json::array(), values = Json::array(), tops = Json::array(),
         offsets = Json::array();
    int64_t& offset = offsets_[choice.index];
    const auto add = [&](const AnswerToken& token) {
      const std::string text = TokenText(*model_.tokenizer, token.id);
      tokens.push_back(text);
      values.push_back(token.logprob.has_value() ? Json(*token.logprob) : Json());
      Json top = Json::object();
      for (const serving::TokenLogprob& of : token.top_logprobs) {
        top[TokenText(*model_.tokenizer, of.id)] = of.logprob;
      }
      tops.push_back(token.logprob.has_value() ? std::move(top) : Json());
      offsets.push_back(offset);
      offset += CountCharacters(text);
    };
    if (with_prompt) {
      const std::string& prompt = prompts_[static_cast<size_t>(choice.prompt)];
      const std::vector<AnswerToken>& rows = of_prompts_[static_cast<size_t>(choice.prompt)].rows;
      int64_t rest = 0;
      for (const AnswerToken& token : rows) {
        rest += CountCharacters(TokenText(*model_.tokenizer, token.id));
      }
      const int64_t first = std::max<int64_t>(0, CountCharacters(prompt) - rest);
      tokens.push_back(FirstCharacters(prompt, first));
      values.push_back(Json());
      tops.push_back(Json());
      offsets.push_back(offset);
      offset += first;
      for (const AnswerToken& token : rows) add(token);
    }
    if (!options_.only_prompt) {
      for (const AnswerToken& token : choice.tokens) add(token);
    }
    return {{"tokens", std::move(tokens)},
            {"token_logprobs", std::move(values)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(offsets)}};
  }

  static std::string FirstCharacters(const std::string& text, int64_t count) {
    size_t end = 0;
    while (end < text.size()) {
      const bool begins = (static_cast<uint8_t>(text[end]) & 0xC0) != 0x80;
      if (begins && count-- == 0) break;
      ++end;
    }
    return text.substr(0, end);
  }

  const Options options_;
  const std::vector<std::string> prompts_;  // their texts, where they are echoed
  const ServedModel& model_;
  std::vector<OfPrompt> of_prompts_;
  std::map<int32_t, bool> begun_;  // choices of a stream
  EventsAround around_;
  std::map<int32_t, int64_t> offsets_;  // by choice: characters so far
};

std::string TextOf(const PromptInput& input, const model::Tokenizer& tokenizer) {
  if (const auto* text = std::get_if<std::string>(&input)) return *text;
  std::string text;
  if (const auto* ids = std::get_if<std::vector<uint32_t>>(&input)) {
    for (const uint32_t id : *ids) text += TokenText(tokenizer, static_cast<int32_t>(id));
  }
  return text;
}

Options ReadOptions(BodyReader& body, GenerateRequest& request) {
  Options options;
  options.stream = ReadStreamOptions(body);
  options.echo = body.Bool("echo").value_or(false);
  if (body.Find("suffix") != nullptr) body.Fail("suffix", "is not supported");
  const int64_t max_tokens = body.Int("max_tokens", 0, kMaxInt32).value_or(kDefaultMaxTokens);
  options.only_prompt = max_tokens == 0 && options.echo;
  if (max_tokens == 0 && !options.echo) body.Fail("max_tokens", "0 is of use with echo alone");
  request.max_tokens = static_cast<uint32_t>(std::max<int64_t>(1, max_tokens));

  options.n = static_cast<int32_t>(request.n);
  options.best_of = static_cast<int32_t>(body.Int("best_of", 1, kMaxInt32).value_or(options.n));
  if (options.best_of < options.n) body.Fail("best_of", "is less than n");
  if (options.best_of > options.n && options.stream.stream) {
    body.Fail("best_of", "cannot be more than n in a stream: the best are known at the end");
  }
  request.n = static_cast<uint32_t>(options.best_of);

  options.prompt_logprobs = ReadPromptLogprobs(body, request);
  if (const auto logprobs = body.Int("logprobs", 0, kMaxInt32)) {
    options.logprobs = static_cast<int32_t>(*logprobs);
    request.sampling.values["logprobs"] = *options.logprobs;
    if (options.echo) {
      request.prompt_logprobs = std::max(*options.logprobs, request.prompt_logprobs.value_or(0));
    }
  } else if (options.best_of > options.n) {
    request.sampling.values["logprobs"] = 0;
  }
  return options;
}

}  // namespace

std::unique_ptr<HttpAnswer> Complete(const json& body, const ServedModel& model,
                                     InferenceService* service, const ApiCall& call) {
  BodyReader reader(body);
  ApiRequest request = {.common = ReadGenerationFields(reader)};
  const Options options = ReadOptions(reader, request.common);
  request.prompts = ReadPrompts(reader, "prompt", kMaxPrompts);
  request.stream = options.stream.stream;
  const int64_t answers = std::ssize(request.prompts) * request.common.n;
  if (answers > kMaxAnswers) {
    reader.Fail("n", absl::StrCat(answers, " answers to all prompts; at most ", kMaxAnswers,
                                  " are allowed in a request"));
  }
  if (reader.error().has_value()) return ToAnswer(*reader.error());

  std::vector<std::string> texts;
  for (const PromptInput& input : request.prompts) {
    texts.push_back(options.echo ? TextOf(input, *model.tokenizer) : "");
  }
  return Answer(request,
                std::make_unique<CompletionFormat>(options, std::move(texts), model, call.name),
                service, call);
}

}  // namespace skein::coordinator
