// How answers look in one of the APIs; what brings them is the same in all (api_answer.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/gateway/api_call.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/event_stream.h"
#include "coordinator/service/request.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// One answer to one prompt, or the next piece of it.
struct Choice {
  int32_t index = 0;  // among all answers to all prompts of a request
  int32_t prompt = 0;
  std::string text;
  std::vector<AnswerToken> tokens;
  std::vector<AnswerToken> prompt_logprobs;
  std::vector<float> embedding;      // in the place of text
  std::optional<Finished> finished;  // in its last piece
};

struct TokenUsage {
  int64_t prompt = 0;  // of each prompt once
  int64_t completion = 0;
  int64_t cached = 0;  // of the prompts' tokens, those that the prefix cache had
};
inline nlohmann::ordered_json ToJson(const TokenUsage& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}}};
}

// Of one request, which it outlives. Not thread-safe.
class ApiFormat {
 public:
  using Json = nlohmann::ordered_json;

  // `prefix`: of its id.
  ApiFormat(std::string_view prefix, const AnswerName& name)
      : id_(absl::StrCat(std::string(prefix), name.random)),
        created_(absl::ToUnixSeconds(name.created)) {}
  virtual ~ApiFormat() = default;
  const std::string& id() const { return id_; }

  // The answer in one: all choices, by index, each with all of its pieces.
  virtual Json Whole(std::vector<Choice>& choices, const TokenUsage& usage) = 0;

  // The events of a stream. Begin comes before a choice's first piece, End behind the last piece.
  // `usage` is what was counted so far.
  virtual void Begin(const Choice& /*choice*/, const TokenUsage& /*usage*/, EventStream& /*out*/) {}
  virtual void Piece(const Choice& piece, const TokenUsage& usage, EventStream& out) = 0;
  virtual void End(const TokenUsage& usage, EventStream& out) = 0;
  // Ends a stream in its middle.
  virtual void Fail(const ApiError& error, EventStream& out) {
    out.Say(ToJson(error));
    out.SayDone();
  }

 protected:
  const std::string id_;
  const int64_t created_;
};

}  // namespace skein::coordinator
