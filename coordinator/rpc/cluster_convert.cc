#include "coordinator/rpc/cluster_convert.h"

#include <utility>

#include "base/status_macros.h"
#include "parallel/plan/plan.h"
#include "proto/convert/plan.h"
#include "proto/convert/topology.h"

namespace skein::coordinator {
namespace {

namespace wire = ::skein::cluster::v1;

SequenceOutput::Finish FromProto(wire::SequenceOutput::Finish finish) {
  switch (finish) {
    case wire::SequenceOutput::EOS:
      return SequenceOutput::Finish::kEos;
    case wire::SequenceOutput::MAX_TOKENS:
      return SequenceOutput::Finish::kMaxTokens;
    case wire::SequenceOutput::CANCELLED:
      return SequenceOutput::Finish::kCancelled;
    case wire::SequenceOutput::FAILED:
      return SequenceOutput::Finish::kFailed;
    default:
      return SequenceOutput::Finish::kNotFinished;
  }
}

void ToProto(const SamplingParams& params, wire::Sampling& out) {
  out.set_repetition_penalty(params.repetition_penalty);
  out.set_presence_penalty(params.presence_penalty);
  out.set_frequency_penalty(params.frequency_penalty);
  out.set_temperature(params.temperature);
  out.set_top_k(params.top_k);
  out.set_top_p(params.top_p);
  out.set_min_p(params.min_p);
  out.set_seed(params.seed);
  out.set_logprobs(params.logprobs);
}

void ToProto(const NewRequest& request, wire::NewRequest& out) {
  out.set_request_id(request.id);
  out.mutable_prompt()->Add(request.prompt.begin(), request.prompt.end());
  out.set_max_tokens(request.max_tokens);
  out.mutable_eos_token_ids()->Add(request.eos_token_ids.begin(), request.eos_token_ids.end());
  ToProto(request.sampling, *out.mutable_sampling());
}

void ToProto(const ReplicaLoad& load, wire::ReplicaLoad& out) {
  out.set_running(load.running);
  out.set_waiting(load.waiting);
  out.set_free_pages(load.free_pages);
  out.set_total_pages(load.total_pages);
  out.set_steps(load.steps);
}

}  // namespace

absl::StatusOr<RankHello> FromProto(const wire::Hello& hello) {
  RankHello out{.version = hello.version(),
                .job_id = hello.job_id(),
                .rank = hello.rank(),
                .job_size = hello.job_size(),
                .pid = hello.pid()};
  SKEIN_ASSIGN_OR_RETURN(out.node, convert::FromProto(hello.node()));
  return out;
}

RankReady FromProto(const wire::Ready& ready) {
  return {ready.slice_key(), ready.slice_digest(), ready.bytes_read(), ready.load_seconds()};
}

StepOutput FromProto(const wire::StepOutput& step) {
  StepOutput out;
  for (const wire::SequenceOutput& from : step.sequences()) {
    SequenceOutput& to = out.sequences.emplace_back();
    to.request_id = from.request_id();
    to.finish = FromProto(from.finish());
    to.error = from.error();
    for (const wire::Token& token : from.tokens()) {
      OutputToken& copy = to.tokens.emplace_back();
      copy.id = static_cast<int32_t>(token.id());
      copy.logprob = token.logprob();
      for (const wire::TokenLogprob& top : token.top()) {
        copy.top.push_back({static_cast<int32_t>(top.id()), top.logprob()});
      }
    }
  }
  out.load = {step.load().running(), step.load().waiting(), step.load().free_pages(),
              step.load().total_pages(), step.load().steps()};
  return out;
}

absl::Status FromProto(const wire::Failure& failure) {
  const auto code = static_cast<absl::StatusCode>(failure.code());
  return absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : code,
                      failure.message());
}

void AppendToProto(const StepInput& input, wire::StepInput& out) {
  for (const NewRequest& request : input.requests) ToProto(request, *out.add_requests());
  for (const uint64_t id : input.cancelled) {
    auto& requests = *out.mutable_requests();
    int unsent = 0;
    while (unsent < requests.size() && requests.Get(unsent).request_id() != id) ++unsent;
    if (unsent < requests.size()) {
      requests.DeleteSubrange(unsent, 1);
    } else {
      out.add_cancelled(id);
    }
  }
}

wire::JobStatus ToProto(const JobStatus& status) {
  wire::JobStatus out;
  out.set_job_id(status.id);
  out.set_state(status.state);
  out.set_size(status.size);
  out.set_detail(status.detail);
  if (status.plan.has_value()) {
    *out.mutable_plan() = convert::ToProto(*status.plan);
    out.set_plan_table(plan::FormatPlan(*status.plan));
  }
  for (const RankStatus& rank : status.ranks) {
    wire::RankStatus& to = *out.add_ranks();
    to.set_rank(rank.rank);
    to.set_host(rank.host);
    to.set_pid(rank.pid);
    to.set_state(rank.state);
    to.set_heartbeat_age_seconds(rank.heartbeat_age_seconds);
    to.set_bytes_read(rank.bytes_read);
  }
  for (const ReplicaStatus& replica : status.replicas) {
    wire::ReplicaStatus& to = *out.add_replicas();
    to.set_replica(replica.replica);
    ToProto(replica.load, *to.mutable_load());
    to.set_tokens_per_second(replica.tokens_per_second);
    to.set_tokens_total(replica.tokens_total);
  }
  return out;
}

}  // namespace skein::coordinator
