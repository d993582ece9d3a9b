#include "worker/rpc/convert.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace skein::worker {
namespace {

namespace pb = ::skein::cluster::v1;

pb::SequenceOutput::Finish ToProto(Finish finish) {
  switch (finish) {
    case Finish::kNotFinished:
      return pb::SequenceOutput::NOT_FINISHED;
    case Finish::kEos:
      return pb::SequenceOutput::EOS;
    case Finish::kMaxTokens:
      return pb::SequenceOutput::MAX_TOKENS;
    case Finish::kCancelled:
      return pb::SequenceOutput::CANCELLED;
    case Finish::kFailed:
      return pb::SequenceOutput::FAILED;
  }
  return pb::SequenceOutput::FAILED;
}

void FillToken(const kernels::SampledToken& token, pb::Token* out) {
  out->set_id(token.id);
  out->set_logprob(token.logprob);
  out->set_mu(token.mu);
  for (const kernels::TokenLogprob& top : token.top_logprobs) {
    pb::TokenLogprob* row = out->add_top();
    row->set_id(top.id);
    row->set_logprob(top.logprob);
  }
}

kernels::SamplingParams FromProto(const pb::Sampling& sampling) {
  kernels::SamplingParams out = {
      .repetition_penalty = sampling.repetition_penalty(),
      .presence_penalty = sampling.presence_penalty(),
      .frequency_penalty = sampling.frequency_penalty(),
      .temperature = sampling.temperature(),
      .top_k = sampling.top_k(),
      .top_p = sampling.top_p(),
      .min_p = sampling.min_p(),
      .seed = sampling.seed(),
      .logprobs = sampling.logprobs(),
      .min_tokens = sampling.min_tokens(),
      .stop_ids = {sampling.stop_ids().begin(), sampling.stop_ids().end()},
      .typical_p = sampling.typical_p(),
      .mirostat_tau = sampling.mirostat_tau(),
      .mirostat_eta = sampling.mirostat_eta(),
      .dry = {.multiplier = sampling.dry_multiplier(),
              .base = sampling.dry_base(),
              .allowed_length = sampling.dry_allowed_length(),
              .last_n = sampling.dry_last_n()}};
  for (const pb::TokenBias& bias : sampling.logit_bias()) {
    out.logit_bias.push_back({static_cast<int32_t>(bias.id()), bias.bias()});
  }
  for (const pb::TokenSequence& breaker : sampling.dry_breakers()) {
    out.dry.breakers.emplace_back(breaker.ids().begin(), breaker.ids().end());
  }
  return out;
}

}  // namespace

GenerationRequest FromProto(const pb::NewRequest& request) {
  GenerationRequest out = {
      .id = request.request_id(),
      .prompt = {request.prompt().begin(), request.prompt().end()},
      .samples = {},
      .max_tokens = request.max_tokens(),
      .eos_token_ids = {request.eos_token_ids().begin(), request.eos_token_ids().end()},
      .priority = request.priority(),
      .sampling = FromProto(request.sampling())};
  for (const pb::SampleStart& sample : request.samples()) {
    out.samples.push_back({.index = static_cast<int32_t>(sample.index()),
                           .output = {sample.output().begin(), sample.output().end()}});
    if (sample.has_mu()) out.samples.back().mu = sample.mu();
  }
  if (request.deadline_seconds() > 0) {
    out.deadline = absl::Now() + absl::Seconds(request.deadline_seconds());
  }
  // A clock that was set back meanwhile makes nobody younger than new.
  out.waited = absl::Seconds(std::max(request.waited_seconds(), 0.0));
  out.prompt_logprobs = request.prompt_logprobs();
  return out;
}

pb::StepOutput ToProto(const StepReport& report) {
  pb::StepOutput out;
  for (const SequenceOutput& sequence : report.sequences) {
    pb::SequenceOutput* row = out.add_sequences();
    row->set_request_id(sequence.id);
    row->set_sample(sequence.sample);
    for (const kernels::SampledToken& token : sequence.tokens) FillToken(token, row->add_tokens());
    for (const kernels::SampledToken& token : sequence.prompt_logprobs) {
      FillToken(token, row->add_prompt_logprobs());
    }
    row->set_finish(ToProto(sequence.finish));
    row->set_error(sequence.error);
  }
  const ReplicaLoad& load = report.load;
  pb::ReplicaLoad& to = *out.mutable_load();
  to.set_running(load.running);
  to.set_waiting(load.waiting);
  to.set_total_pages(load.total_pages);
  to.set_free_pages(load.free_pages);
  to.set_used_pages(load.used_pages);
  to.set_shared_pages(load.shared_pages);
  to.set_cached_pages(load.cached_pages);
  to.set_total_swap_pages(load.total_swap_pages);
  to.set_free_swap_pages(load.free_swap_pages);
  to.set_steps(load.steps);
  to.set_prompt_tokens(load.prompt_tokens);
  to.set_cached_tokens(load.cached_tokens);
  to.set_preemptions_swapped(load.preemptions_swapped);
  to.set_preemptions_recomputed(load.preemptions_recomputed);
  to.set_host_seconds(absl::ToDoubleSeconds(load.host_time));
  return out;
}

pb::Heartbeat ToProto(const comm::Progress& progress) {
  pb::Heartbeat out;
  if (progress.step.has_value()) out.set_step(*progress.step);
  for (const auto& [group, number] : progress.entered) (*out.mutable_entered())[group] = number;
  if (!progress.operation.has_value()) return out;
  const comm::OperationInProgress& operation = *progress.operation;
  pb::OperationInProgress& to = *out.mutable_operation();
  to.set_group(operation.group);
  to.set_operation(std::string(comm::OperationName(operation.call.operation)));
  to.set_number(operation.call.number);
  to.set_peer(comm::HasPeer(operation.call.operation) ? operation.call.peer : -1);
  to.mutable_others()->Add(operation.others.begin(), operation.others.end());
  to.set_seconds(absl::ToDoubleSeconds(operation.elapsed));
  to.set_still_seconds(absl::ToDoubleSeconds(operation.still));
  to.set_deadline_seconds(absl::ToDoubleSeconds(progress.deadline));
  return out;
}

}  // namespace skein::worker
