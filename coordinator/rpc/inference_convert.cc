#include "coordinator/rpc/inference_convert.h"

#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "proto/convert/sampling_scalars.h"
#include "serving/output.h"

namespace skein::coordinator {
namespace {

SamplingRequest FromProto(const v1::Sampling& wire) {
  SamplingRequest out{.values = convert::ScalarValues(wire)};
  for (const v1::TokenBias& bias : wire.logit_bias()) {
    out.logit_bias.push_back({static_cast<int32_t>(bias.id()), bias.bias()});
  }
  out.ignore_eos = wire.ignore_eos();
  if (wire.has_dry_breakers()) {
    const auto& breakers = wire.dry_breakers().breaker();
    out.dry_breakers.emplace(breakers.begin(), breakers.end());
  }
  return out;
}

v1::Finished::Reason ToProto(Finished::Reason reason) {
  switch (reason) {
    case Finished::Reason::kEos:
      return v1::Finished::REASON_EOS;
    case Finished::Reason::kStop:
      return v1::Finished::REASON_STOP;
    case Finished::Reason::kMaxTokens:
      return v1::Finished::REASON_MAX_TOKENS;
  }
  return v1::Finished::REASON_UNSPECIFIED;
}

void Fill(const Accepted& accepted, const ServedModel* model, v1::GenerateEvent& event) {
  v1::Accepted& out = *event.mutable_accepted();
  out.set_request_id(accepted.request_id);
  out.set_model(model->name);
  out.set_prompt_tokens(accepted.prompt_tokens);
  out.set_seed(accepted.seed);
  out.set_max_tokens(accepted.max_tokens);
  out.set_n(accepted.n);
  out.set_resume_window_seconds(absl::ToDoubleSeconds(accepted.resume_window));
}

void Fill(const AnswerToken& token, const model::Tokenizer& tokenizer, v1::Token& out) {
  out.set_id(token.id);
  if (!token.logprob.has_value()) return;
  out.set_logprob(*token.logprob);
  out.set_token(tokenizer.TokenBytes(token.id, /*skip_special=*/false));
  for (const serving::TokenLogprob& top : token.top_logprobs) {
    v1::TopLogprob& copy = *out.add_top_logprobs();
    copy.set_id(top.id);
    copy.set_logprob(top.logprob);
    copy.set_token(tokenizer.TokenBytes(top.id, /*skip_special=*/false));
  }
}

void Fill(const Tokens& tokens, const ServedModel* model, v1::GenerateEvent& event) {
  v1::Tokens& out = *event.mutable_tokens();
  out.set_answer(static_cast<uint32_t>(tokens.answer));
  out.set_text(tokens.text);
  const model::Tokenizer& tokenizer = *model->tokenizer;
  for (const AnswerToken& token : tokens.tokens) Fill(token, tokenizer, *out.add_tokens());
  for (const AnswerToken& token : tokens.prompt_logprobs) {
    Fill(token, tokenizer, *out.add_prompt_logprobs());
  }
  out.mutable_embedding()->Add(tokens.embedding.begin(), tokens.embedding.end());
}

void Fill(const Finished& finished, const ServedModel* /*model*/, v1::GenerateEvent& event) {
  v1::Finished& out = *event.mutable_finished();
  out.set_answer(static_cast<uint32_t>(finished.answer));
  out.set_reason(ToProto(finished.reason));
  out.set_stop(finished.stop);
  v1::Usage& usage = *out.mutable_usage();
  usage.set_prompt_tokens(finished.usage.prompt_tokens);
  usage.set_completion_tokens(finished.usage.completion_tokens);
  usage.set_cached_tokens(finished.usage.cached_tokens);
  usage.set_queue_seconds(absl::ToDoubleSeconds(finished.usage.queue_time));
  usage.set_first_token_seconds(absl::ToDoubleSeconds(finished.usage.first_token_time));
  usage.set_total_seconds(absl::ToDoubleSeconds(finished.usage.total_time));
}

void Fill(const absl::Status& status, const ServedModel* /*model*/, v1::GenerateEvent& event) {
  v1::Error& out = *event.mutable_error();
  out.set_code(static_cast<int>(status.code()));
  out.set_message(std::string(status.message()));
}

}  // namespace

GenerateRequest FromProto(const v1::GenerateRequest& wire, absl::Time deadline) {
  GenerateRequest out;
  out.model = wire.model();
  if (wire.input_case() == v1::GenerateRequest::kPrompt) out.input = wire.prompt();
  if (wire.input_case() == v1::GenerateRequest::kPromptTokens) {
    const auto& ids = wire.prompt_tokens().ids();
    out.input = std::vector<uint32_t>(ids.begin(), ids.end());
  }
  if (wire.input_case() == v1::GenerateRequest::kChat) {
    Chat& chat = out.input.emplace<Chat>();
    for (const v1::ChatMessage& message : wire.chat().messages()) {
      chat.messages.push_back({message.role(), message.content()});
    }
  }
  out.sampling = FromProto(wire.sampling());
  if (wire.has_max_tokens()) out.max_tokens = wire.max_tokens();
  out.stops.assign(wire.stop().begin(), wire.stop().end());
  out.stop_ids.assign(wire.stop_ids().begin(), wire.stop_ids().end());
  out.parse_special = wire.parse_special();
  if (wire.has_n()) out.n = wire.n();
  out.priority = wire.priority();
  if (wire.has_prompt_logprobs()) out.prompt_logprobs = wire.prompt_logprobs();
  if (wire.has_embedding()) {
    const bool last = wire.embedding().pooling() == v1::Embedding::POOLING_LAST;
    out.embedding = {.pooling = last ? serving::Pooling::kLast : serving::Pooling::kMean,
                     .normalized = !wire.embedding().raw()};
  }
  out.deadline = deadline;
  return out;
}

v1::GenerateEvent ToProto(const Event& event, const ServedModel* model) {
  v1::GenerateEvent out;
  std::visit([&](const auto& kind) { Fill(kind, model, out); }, event);
  return out;
}

v1::Model ToProto(const HostedModel& hosted) {
  const ServedModel& model = *hosted.model;
  v1::Model out;
  out.set_name(model.name);
  out.set_architecture(model.config.architecture);
  out.set_parameters(model.config.ParameterCount());
  out.set_context_length(model.context_length);
  out.set_vocabulary(model.config.vocab_size);
  out.set_ready(hosted.dispatcher->serving());
  out.mutable_aliases()->Add(model.aliases.begin(), model.aliases.end());
  out.set_state(hosted.state());
  out.set_path(model.path);
  return out;
}

}  // namespace skein::coordinator
