#include "proto/convert/serving.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/printable.h"
#include "proto/convert/sampling_scalars.h"

namespace skein::convert {
namespace {

namespace wire = ::skein::cluster::v1;

using serving::Finish;

// On the wire 0 is no deadline.
constexpr double kLeastDeadlineSeconds = 1e-6;

wire::AnswerOutput::Finish ToProto(Finish finish) {
  switch (finish) {
    case Finish::kNotFinished:
      return wire::AnswerOutput::NOT_FINISHED;
    case Finish::kEos:
      return wire::AnswerOutput::EOS;
    case Finish::kMaxTokens:
      return wire::AnswerOutput::MAX_TOKENS;
    case Finish::kCancelled:
      return wire::AnswerOutput::CANCELLED;
    case Finish::kFailed:
      return wire::AnswerOutput::FAILED;
  }
  return wire::AnswerOutput::FAILED;
}

Finish FromProto(wire::AnswerOutput::Finish finish) {
  switch (finish) {
    case wire::AnswerOutput::EOS:
      return Finish::kEos;
    case wire::AnswerOutput::MAX_TOKENS:
      return Finish::kMaxTokens;
    case wire::AnswerOutput::CANCELLED:
      return Finish::kCancelled;
    case wire::AnswerOutput::FAILED:
      return Finish::kFailed;
    default:
      return Finish::kNotFinished;
  }
}

wire::Request::Pooling ToProto(serving::Pooling pooling) {
  switch (pooling) {
    case serving::Pooling::kNone:
      return wire::Request::NONE;
    case serving::Pooling::kLast:
      return wire::Request::LAST;
    case serving::Pooling::kMean:
      return wire::Request::MEAN;
  }
  return wire::Request::NONE;
}

serving::Pooling FromProto(wire::Request::Pooling pooling) {
  switch (pooling) {
    case wire::Request::LAST:
      return serving::Pooling::kLast;
    case wire::Request::MEAN:
      return serving::Pooling::kMean;
    default:
      return serving::Pooling::kNone;
  }
}

void ToProto(const serving::SamplingParams& params, wire::Request& out) {
  v1::Sampling& sampling = *out.mutable_sampling();
  ScalarsToProto(params, sampling);
  for (const auto& [id, bias] : params.logit_bias) {
    v1::TokenBias& to = *sampling.add_logit_bias();
    to.set_id(static_cast<uint32_t>(id));
    to.set_bias(bias);
  }
  for (const std::vector<int32_t>& breaker : params.dry_breakers) {
    out.add_dry_breakers()->mutable_ids()->Add(breaker.begin(), breaker.end());
  }
}

serving::SamplingParams SamplingFromProto(const wire::Request& request) {
  serving::SamplingParams out;
  ScalarsFromProto(request.sampling(), out);
  for (const v1::TokenBias& bias : request.sampling().logit_bias()) {
    out.logit_bias.push_back({static_cast<int32_t>(bias.id()), bias.bias()});
  }
  for (const wire::TokenSequence& breaker : request.dry_breakers()) {
    out.dry_breakers.emplace_back(breaker.ids().begin(), breaker.ids().end());
  }
  out.stop_ids.assign(request.eos_token_ids().begin(), request.eos_token_ids().end());
  return out;
}

void ToProto(const serving::SampledToken& token, wire::Token& out) {
  out.set_id(static_cast<uint32_t>(token.id));
  out.set_logprob(token.logprob);
  out.set_mu(token.mu);
  for (const serving::TokenLogprob& top : token.top_logprobs) {
    wire::TokenLogprob& to = *out.add_top_logprobs();
    to.set_id(static_cast<uint32_t>(top.id));
    to.set_logprob(top.logprob);
  }
}

serving::SampledToken FromProto(const wire::Token& token) {
  serving::SampledToken out{.id = static_cast<int32_t>(token.id()), .logprob = token.logprob()};
  for (const wire::TokenLogprob& top : token.top_logprobs()) {
    out.top_logprobs.push_back({static_cast<int32_t>(top.id()), top.logprob()});
  }
  out.mu = token.mu();
  return out;
}

wire::PromptSteps ToProto(const serving::PromptSteps& steps) {
  wire::PromptSteps out;
  out.set_steps(steps.steps);
  out.set_behind_nothing(steps.behind_nothing);
  out.set_behind_decodes(steps.behind_decodes);
  out.set_prompts(steps.prompts);
  out.set_rows(steps.rows);
  out.set_context(steps.context);
  out.set_outputs(steps.outputs);
  out.set_decodes(steps.decodes);
  out.set_decode_context(steps.decode_context);
  out.set_seconds(absl::ToDoubleSeconds(steps.time));
  return out;
}

serving::PromptSteps FromProto(const wire::PromptSteps& steps) {
  return {.steps = steps.steps(),
          .behind_nothing = steps.behind_nothing(),
          .behind_decodes = steps.behind_decodes(),
          .prompts = steps.prompts(),
          .rows = steps.rows(),
          .context = steps.context(),
          .outputs = steps.outputs(),
          .decodes = steps.decodes(),
          .decode_context = steps.decode_context(),
          .time = absl::Seconds(steps.seconds())};
}

}  // namespace

void ToProto(const serving::Request& request, absl::Time now, wire::Request& out) {
  out.set_request_id(request.id.value());
  out.mutable_prompt()->Add(request.prompt.begin(), request.prompt.end());
  for (const serving::AnswerStart& answer : request.answers) {
    wire::AnswerStart& to = *out.add_answers();
    to.set_index(static_cast<uint32_t>(answer.index));
    to.mutable_output()->Add(answer.output.begin(), answer.output.end());
    if (answer.mu.has_value()) to.set_mu(*answer.mu);
  }
  out.set_priority(request.priority);
  if (request.deadline != absl::InfiniteFuture()) {
    out.set_deadline_seconds(
        std::max(absl::ToDoubleSeconds(request.deadline - now), kLeastDeadlineSeconds));
  }
  out.set_waited_seconds(absl::ToDoubleSeconds(request.waited));
  out.set_prompt_logprobs(request.prompt_logprobs);
  out.set_pooling(ToProto(request.pooling));
  out.set_max_tokens(static_cast<uint32_t>(request.max_tokens));
  out.mutable_eos_token_ids()->Add(request.eos_token_ids.begin(), request.eos_token_ids.end());
  ToProto(request.sampling, out);
}

serving::Request FromProto(const wire::Request& request, absl::Time now) {
  serving::Request out = {
      .id = serving::RequestId(request.request_id()),
      .prompt = {request.prompt().begin(), request.prompt().end()},
      .answers = {},
      .max_tokens = static_cast<int32_t>(request.max_tokens()),
      .eos_token_ids = {request.eos_token_ids().begin(), request.eos_token_ids().end()},
      .priority = request.priority(),
      // A clock that was set back meanwhile makes nobody younger than new.
      .waited = absl::Seconds(std::max(request.waited_seconds(), 0.0)),
      .prompt_logprobs = request.prompt_logprobs(),
      .pooling = FromProto(request.pooling()),
      .sampling = SamplingFromProto(request)};
  for (const wire::AnswerStart& answer : request.answers()) {
    out.answers.push_back({.index = static_cast<int32_t>(answer.index()),
                           .output = {answer.output().begin(), answer.output().end()}});
    if (answer.has_mu()) out.answers.back().mu = answer.mu();
  }
  if (request.deadline_seconds() > 0) {
    out.deadline = now + absl::Seconds(request.deadline_seconds());
  }
  return out;
}

void AppendToProto(const serving::RequestUpdates& updates, absl::Time now,
                   wire::RequestUpdates& out) {
  for (const serving::Request& request : updates.requests) {
    ToProto(request, now, *out.add_requests());
  }
  for (const serving::RequestId id : updates.cancelled) {
    auto& requests = *out.mutable_requests();
    int unsent = 0;
    while (unsent < requests.size() && requests.Get(unsent).request_id() != id.value()) ++unsent;
    if (unsent < requests.size()) {
      requests.DeleteSubrange(unsent, 1);
    } else {
      out.add_cancelled(id.value());
    }
  }
  for (const serving::CancelledAnswer& cancelled : updates.cancelled_answers) {
    wire::CancelledAnswer& to = *out.add_cancelled_answers();
    to.set_request_id(cancelled.request_id.value());
    to.set_answer(static_cast<uint32_t>(cancelled.answer));
  }
}

serving::RequestUpdates FromProto(const wire::RequestUpdates& updates, absl::Time now) {
  serving::RequestUpdates out;
  for (const wire::Request& request : updates.requests()) {
    out.requests.push_back(FromProto(request, now));
  }
  for (const uint64_t id : updates.cancelled()) out.cancelled.emplace_back(id);
  for (const wire::CancelledAnswer& cancelled : updates.cancelled_answers()) {
    out.cancelled_answers.push_back({.request_id = serving::RequestId(cancelled.request_id()),
                                     .answer = static_cast<int32_t>(cancelled.answer())});
  }
  return out;
}

wire::ReplicaLoad ToProto(const serving::ReplicaLoad& load) {
  wire::ReplicaLoad out;
  out.set_running(load.running);
  out.set_waiting(load.waiting);
  out.set_total_pages(load.total_pages);
  out.set_free_pages(load.free_pages);
  out.set_used_pages(load.used_pages);
  out.set_shared_pages(load.shared_pages);
  out.set_cached_pages(load.cached_pages);
  out.set_total_swap_pages(load.total_swap_pages);
  out.set_free_swap_pages(load.free_swap_pages);
  out.set_steps(load.steps);
  out.set_prompt_tokens(load.prompt_tokens);
  out.set_cached_tokens(load.cached_tokens);
  out.set_preemptions_swapped(load.preemptions_swapped);
  out.set_preemptions_recomputed(load.preemptions_recomputed);
  out.set_decode_steps(load.decode_steps);
  out.set_decode_rows(load.decode_rows);
  out.set_decode_context(load.decode_context);
  out.set_decode_seconds(absl::ToDoubleSeconds(load.decode_time));
  out.set_host_seconds(absl::ToDoubleSeconds(load.host_time));
  if (load.prompt_steps.steps > 0) *out.mutable_prompt_steps() = ToProto(load.prompt_steps);
  return out;
}

serving::ReplicaLoad FromProto(const wire::ReplicaLoad& load) {
  return {.running = load.running(),
          .waiting = load.waiting(),
          .total_pages = load.total_pages(),
          .free_pages = load.free_pages(),
          .used_pages = load.used_pages(),
          .shared_pages = load.shared_pages(),
          .cached_pages = load.cached_pages(),
          .total_swap_pages = load.total_swap_pages(),
          .free_swap_pages = load.free_swap_pages(),
          .steps = load.steps(),
          .prompt_tokens = load.prompt_tokens(),
          .cached_tokens = load.cached_tokens(),
          .preemptions_swapped = load.preemptions_swapped(),
          .preemptions_recomputed = load.preemptions_recomputed(),
          .decode_steps = load.decode_steps(),
          .decode_rows = load.decode_rows(),
          .decode_context = load.decode_context(),
          .decode_time = absl::Seconds(load.decode_seconds()),
          .prompt_steps = FromProto(load.prompt_steps()),
          .host_time = absl::Seconds(load.host_seconds())};
}

wire::StepOutput ToProto(const serving::StepOutput& output) {
  wire::StepOutput out;
  for (const serving::AnswerOutput& answer : output.answers) {
    wire::AnswerOutput& to = *out.add_answers();
    to.set_request_id(answer.request_id.value());
    to.set_answer(static_cast<uint32_t>(answer.answer));
    for (const serving::SampledToken& token : answer.tokens) ToProto(token, *to.add_tokens());
    for (const serving::SampledToken& token : answer.prompt_logprobs) {
      ToProto(token, *to.add_prompt_logprobs());
    }
    to.set_finish(ToProto(answer.finish));
    to.set_error(answer.error);
    to.set_cached_tokens(answer.cached_tokens);
    to.mutable_embedding()->Add(answer.embedding.begin(), answer.embedding.end());
  }
  *out.mutable_load() = ToProto(output.load);
  return out;
}

serving::StepOutput FromProto(const wire::StepOutput& output) {
  serving::StepOutput out;
  for (const wire::AnswerOutput& from : output.answers()) {
    serving::AnswerOutput& to = out.answers.emplace_back();
    to.request_id = serving::RequestId(from.request_id());
    to.answer = static_cast<int32_t>(from.answer());
    to.finish = FromProto(from.finish());
    to.error = Printable(from.error());
    to.cached_tokens = from.cached_tokens();
    to.embedding = {from.embedding().begin(), from.embedding().end()};
    for (const wire::Token& token : from.tokens()) to.tokens.push_back(FromProto(token));
    for (const wire::Token& token : from.prompt_logprobs()) {
      to.prompt_logprobs.push_back(FromProto(token));
    }
  }
  out.load = FromProto(output.load());
  return out;
}

}  // namespace skein::convert
