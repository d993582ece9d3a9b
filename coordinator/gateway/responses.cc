#include "coordinator/gateway/responses.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/gateway/api_answer.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/body_reader.h"
#include "coordinator/gateway/chat_prompt.h"
#include "coordinator/gateway/generation_fields.h"
#include "coordinator/gateway/token_text.h"

namespace skein::coordinator {
namespace {

using nlohmann::json;
using Json = ApiFormat::Json;

constexpr ConversationFields kFields = {
    .messages = "input", .system = "instructions", .items = true};

// What is told again in the response.
struct Asked {
  Json instructions, max_output_tokens, temperature, top_p, metadata;
  bool logprobs = false;
};

class ResponseFormat final : public ApiFormat {
 public:
  ResponseFormat(Asked asked, const ServedModel& model, const AnswerName& name)
      : ApiFormat("resp_", name),
        asked_(std::move(asked)),
        model_(model),
        item_id_(absl::StrCat("msg_", name.random)) {}

  Json Whole(std::vector<Choice>& choices, const TokenUsage& usage) override {
    Choice& choice = choices.front();
    text_ = std::move(choice.text);
    if (asked_.logprobs) logprobs_ = LogprobRows(choice.tokens, *model_.tokenizer);
    finished_ = std::move(choice.finished);
    return Ended(usage);
  }

  void Begin(const Choice& /*choice*/, const TokenUsage& /*usage*/, EventStream& out) override {
    const Json response = Response("in_progress", Json::array());
    Say("response.created", {{"response", response}}, out);
    Say("response.in_progress", {{"response", response}}, out);
    Say("response.output_item.added",
        {{"output_index", 0}, {"item", Item("in_progress", Json::array())}}, out);
    SayOfPart("response.content_part.added", {{"part", Part()}}, out);
  }

  void Piece(const Choice& piece, const TokenUsage& /*usage*/, EventStream& out) override {
    Json rows = Json::array();
    if (asked_.logprobs) rows = LogprobRows(piece.tokens, *model_.tokenizer);
    for (const Json& row : rows) logprobs_.push_back(row);
    text_ += piece.text;
    if (!piece.text.empty() || !rows.empty()) {
      SayOfPart("response.output_text.delta",
                {{"delta", piece.text}, {"logprobs", std::move(rows)}}, out);
    }
    if (piece.finished.has_value()) finished_ = piece.finished;
  }

  void End(const TokenUsage& usage, EventStream& out) override {
    SayOfPart("response.output_text.done", {{"text", text_}, {"logprobs", logprobs_}}, out);
    SayOfPart("response.content_part.done", {{"part", Part()}}, out);
    Say("response.output_item.done",
        {{"output_index", 0}, {"item", Item(Status(), Json::array({Part()}))}}, out);
    Say(Status() == "completed" ? "response.completed" : "response.incomplete",
        {{"response", Ended(usage)}}, out);
  }

  void Fail(const ApiError& error, EventStream& out) override {
    // The official client looks for "error"; the API's own fields stand beside it.
    Json event = ToJson(error);
    for (const char* field : {"code", "message", "param"}) event[field] = event["error"][field];
    event["sequence_number"] = sequence_++;
    out.SayNamed(event);
  }

 private:
  void Say(const char* type, const Json& fields, EventStream& out) {
    Json event = {{"type", type}, {"sequence_number", sequence_++}};
    event.update(fields);
    out.SayNamed(event);
  }
  void SayOfPart(const char* type, const Json& fields, EventStream& out) {
    Json place = {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}};
    place.update(fields);
    Say(type, place, out);
  }

  std::string Status() const {
    const bool cut = finished_.has_value() && finished_->reason == Finished::Reason::kMaxTokens;
    return cut ? "incomplete" : "completed";
  }
  Json Part() const {
    return {{"type", "output_text"},
            {"text", text_},
            {"annotations", Json::array()},
            {"logprobs", logprobs_}};
  }
  Json Item(const std::string& status, Json content) const {
    return {{"id", item_id_},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  Json Response(const std::string& status, Json output) const {
    return {{"id", id_},
            {"object", "response"},
            {"created_at", created_},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", asked_.instructions},
            {"max_output_tokens", asked_.max_output_tokens},
            {"model", model_.name},
            {"output", std::move(output)},
            {"parallel_tool_calls", false},
            {"previous_response_id", nullptr},
            {"store", false},
            {"temperature", asked_.temperature},
            {"text", {{"format", {{"type", "text"}}}}},
            {"tool_choice", "none"},
            {"tools", Json::array()},
            {"top_p", asked_.top_p},
            {"truncation", "disabled"},
            {"metadata", asked_.metadata},
            {"usage", nullptr}};
  }
  Json Ended(const TokenUsage& usage) const {
    Json response = Response(Status(), Json::array({Item(Status(), Json::array({Part()}))}));
    if (Status() == "incomplete") {
      response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    response["usage"] = {
        {"input_tokens", usage.prompt},
        {"input_tokens_details", {{"cached_tokens", usage.cached}, {"cache_write_tokens", 0}}},
        {"output_tokens", usage.completion},
        {"output_tokens_details", {{"reasoning_tokens", 0}}},
        {"total_tokens", usage.prompt + usage.completion}};
    return response;
  }

  const Asked asked_;
  const ServedModel& model_;
  const std::string item_id_;
  int64_t sequence_ = 0;  // of the next event
  // Of the answer so far.
  std::string text_;
  Json logprobs_ = Json::array();
  std::optional<Finished> finished_;
};

// Refuses what needs state, and what is not there yet.
void RefuseState(BodyReader& body) {
  for (const char* field : {"previous_response_id", "conversation", "prompt"}) {
    if (body.Find(field) != nullptr) {
      body.Fail(field, "nothing is kept here: `input` brings the whole conversation");
    }
  }
  if (body.Bool("background").value_or(false)) body.Fail("background", "is not supported");
  const std::string truncation = body.String("truncation").value_or("disabled");
  if (truncation != "disabled") body.Fail("truncation", "only \"disabled\" is supported");
  const json* const text = body.Find("text");
  if (text == nullptr) return;
  if (!text->is_object()) return body.Fail("text", "an object is expected");
  const json format = text->value("format", json::object());
  if (!format.is_object() || format.value("type", json("text")) != "text") {
    body.Fail("text.format", "not yet: only {\"type\": \"text\"} is supported");
  }
}

// Whether log probabilities are asked for.
bool ReadInclude(BodyReader& body) {
  constexpr std::string_view kLogprobs = "message.output_text.logprobs";
  const json* const include = body.Find("include");
  if (include == nullptr) return false;
  bool logprobs = false;
  for (const json& item : include->is_array() ? *include : json::array({json()})) {
    if (!item.is_string()) body.Fail("include", "a list of strings is expected");
    if (item == kLogprobs) logprobs = true;
  }
  return logprobs;
}

Asked ReadAsked(BodyReader& body, GenerateRequest& request) {
  const auto told = [&](const char* field) {
    const json* const value = body.Find(field);
    return value == nullptr ? Json() : Json(*value);
  };
  Asked asked = {.instructions = told("instructions"),
                 .max_output_tokens = told("max_output_tokens"),
                 .temperature = told("temperature"),
                 .top_p = told("top_p"),
                 .metadata = told("metadata")};
  if (asked.metadata.is_null()) asked.metadata = Json::object();
  if (!asked.metadata.is_object()) body.Fail("metadata", "an object is expected");
  if (const auto most = body.Int("max_output_tokens", 1, kMaxInt32)) {
    request.max_tokens = static_cast<uint32_t>(*most);
  }
  const std::optional<int64_t> top = body.Int("top_logprobs", 0, kMaxInt32);
  asked.logprobs = ReadInclude(body) || top.value_or(0) > 0;
  if (asked.logprobs) request.sampling.values["logprobs"] = static_cast<int32_t>(top.value_or(0));
  return asked;
}

}  // namespace

std::unique_ptr<HttpAnswer> Responses(const json& body, const ServedModel& model,
                                      InferenceService* service, const ApiCall& call) {
  BodyReader reader(body);
  RefuseState(reader);
  GenerateRequest request = ReadGenerationFields(reader);
  if (request.n > 1) reader.Fail("n", "a response has one answer");
  const bool stream = reader.Bool("stream").value_or(false);
  Asked asked = ReadAsked(reader, request);
  std::vector<uint32_t> prompt = ReadPrompt(reader, model, kFields);
  if (reader.error().has_value()) return ToAnswer(*reader.error());
  return Answer({.common = std::move(request),
                 .prompts = {std::move(prompt)},
                 .stream = stream,
                 .input = kFields.messages},
                std::make_unique<ResponseFormat>(std::move(asked), model, call.name), service,
                call);
}

}  // namespace skein::coordinator
