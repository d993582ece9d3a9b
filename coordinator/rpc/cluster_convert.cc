#include "coordinator/rpc/cluster_convert.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "coordinator/rpc/sha256.h"
#include "parallel/plan/plan.h"
#include "proto/convert/plan.h"
#include "proto/convert/topology.h"

namespace skein::coordinator {
namespace {

namespace wire = ::skein::cluster::v1;

// On the wire 0 is no deadline.
constexpr double kLeastDeadlineSeconds = 1e-6;
// A rank computes with two groups of ranks, and tells of two threads.
constexpr size_t kMaxGroups = 64;
constexpr size_t kLeastSecretBytes = 16;  // fewer could be guessed

// What a stranger calls itself is bounded before it is kept or logged.
absl::Status CheckLength(const char* field, const std::string& text) {
  if (text.size() <= kMaxNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", text.size(), " bytes; at most ", kMaxNameBytes, " are allowed"));
}

absl::StatusOr<std::string> Name(const char* field, const std::string& text) {
  SKEIN_RETURN_IF_ERROR(CheckLength(field, text));
  return Printable(text, kMaxNameBytes);
}

// Unchanged, since jobs are told apart by it.
absl::StatusOr<std::string> JobId(const std::string& id) {
  SKEIN_RETURN_IF_ERROR(CheckLength("job_id", id));
  if (id.empty()) return absl::InvalidArgumentError("job_id: empty");
  if (Printable(id) == id) return id;
  return absl::InvalidArgumentError(
      absl::StrCat("job_id: '", Printable(id), "' has characters that cannot be printed"));
}

absl::StatusOr<std::string> SecretDigest(const std::string& secret) {
  if (secret.size() < kLeastSecretBytes || secret.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("job_secret: ", secret.size(), " bytes; ",
                                                   kLeastSecretBytes, " to ", kMaxNameBytes,
                                                   " are allowed"));
  }
  return Sha256(secret);
}

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
  for (const auto& [id, bias] : params.logit_bias) {
    wire::TokenBias& to = *out.add_logit_bias();
    to.set_id(id);
    to.set_bias(bias);
  }
  out.set_min_tokens(params.min_tokens);
  out.mutable_stop_ids()->Add(params.stop_ids.begin(), params.stop_ids.end());
  out.set_typical_p(params.typical_p);
  out.set_mirostat_tau(params.mirostat_tau);
  out.set_mirostat_eta(params.mirostat_eta);
  out.set_dry_multiplier(params.dry_multiplier);
  out.set_dry_base(params.dry_base);
  out.set_dry_allowed_length(params.dry_allowed_length);
  out.set_dry_last_n(params.dry_last_n);
  for (const std::vector<int32_t>& breaker : params.dry_breakers) {
    out.add_dry_breakers()->mutable_ids()->Add(breaker.begin(), breaker.end());
  }
}

void ToProto(const NewRequest& request, wire::NewRequest& out) {
  out.set_request_id(request.id);
  out.mutable_prompt()->Add(request.prompt.begin(), request.prompt.end());
  for (const SampleStart& sample : request.samples) {
    wire::SampleStart& to = *out.add_samples();
    to.set_index(sample.index);
    to.mutable_output()->Add(sample.output.begin(), sample.output.end());
    if (sample.mu.has_value()) to.set_mu(*sample.mu);
  }
  out.set_priority(request.priority);
  if (request.deadline != absl::InfiniteFuture()) {
    // Clocks of nodes differ: the time that is left is sent.
    out.set_deadline_seconds(
        std::max(absl::ToDoubleSeconds(request.deadline - absl::Now()), kLeastDeadlineSeconds));
  }
  out.set_waited_seconds(absl::ToDoubleSeconds(request.waited));
  out.set_prompt_logprobs(request.prompt_logprobs);
  out.set_max_tokens(request.max_tokens);
  out.mutable_eos_token_ids()->Add(request.eos_token_ids.begin(), request.eos_token_ids.end());
  ToProto(request.sampling, *out.mutable_sampling());
}

void ToProto(const ReplicaLoad& load, wire::ReplicaLoad& out) {
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
  out.set_host_seconds(load.host_seconds);
}

ReplicaLoad FromProto(const wire::ReplicaLoad& load) {
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
          .host_seconds = load.host_seconds()};
}

OutputToken FromProto(const wire::Token& token) {
  OutputToken out{.id = static_cast<int32_t>(token.id()), .logprob = token.logprob()};
  for (const wire::TokenLogprob& top : token.top()) {
    out.top.push_back({static_cast<int32_t>(top.id()), top.logprob()});
  }
  out.mu = token.mu();
  return out;
}

}  // namespace

absl::StatusOr<RankHello> FromProto(const wire::Hello& hello) {
  SKEIN_ASSIGN_OR_RETURN(const std::string version, Name("version", hello.version()));
  SKEIN_ASSIGN_OR_RETURN(const std::string job_id, JobId(hello.job_id()));
  SKEIN_ASSIGN_OR_RETURN(const std::string digest, SecretDigest(hello.job_secret()));
  SKEIN_ASSIGN_OR_RETURN(const std::string layout, Name("layout", hello.layout()));
  SKEIN_ASSIGN_OR_RETURN(const std::string host, Name("node: host", hello.node().host()));
  RankHello out{.version = version,
                .job_id = job_id,
                .rank = hello.rank(),
                .job_size = hello.job_size(),
                .pid = hello.pid(),
                .secret_digest = digest};
  SKEIN_ASSIGN_OR_RETURN(out.layout, plan::ParseLayoutRequest(layout));
  SKEIN_ASSIGN_OR_RETURN(out.node, convert::FromProto(hello.node()));
  out.node.host = host;
  SKEIN_ASSIGN_OR_RETURN(const std::string device, Name("device: name", hello.device().name()));
  SKEIN_ASSIGN_OR_RETURN(out.device, convert::FromProto(hello.device()));
  out.device.name = device;
  return out;
}

absl::StatusOr<JobKey> FromProto(const wire::GetJobRequest& request) {
  JobKey key;
  SKEIN_ASSIGN_OR_RETURN(key.job_id, JobId(request.job_id()));
  SKEIN_ASSIGN_OR_RETURN(key.secret_digest, SecretDigest(request.job_secret()));
  return key;
}

RankReady FromProto(const wire::Ready& ready) {
  return {.slice_key = Printable(ready.slice_key(), kMaxNameBytes),
          .slice_digest = Printable(ready.slice_digest(), kMaxNameBytes),
          .bytes_read = ready.bytes_read(),
          .load_seconds = ready.load_seconds(),
          .model_path = Printable(ready.model_path())};
}

RankActivity FromProto(const wire::Heartbeat& heartbeat) {
  RankActivity out;
  if (heartbeat.has_step()) out.step = heartbeat.step();
  for (const auto& [group, number] : heartbeat.entered()) {
    if (out.entered.size() == kMaxGroups) break;
    out.entered.emplace(Printable(group, kMaxNameBytes), number);
  }
  for (const auto& [thread, seconds] : heartbeat.threads()) {
    if (out.threads.size() == kMaxGroups) break;
    out.threads.emplace(Printable(thread, kMaxNameBytes), seconds);
  }
  out.steps_taken = heartbeat.steps_taken();
  if (!heartbeat.has_operation()) return out;
  const wire::OperationInProgress& operation = heartbeat.operation();
  const std::optional<comm::Operation> kind = comm::ParseOperation(operation.operation());
  if (!kind.has_value()) return out;  // no worker says so
  const int others = std::min(operation.others_size(), kMaxJobSize);
  out.operation = {.group = Printable(operation.group(), kMaxNameBytes),
                   .operation = *kind,
                   .number = operation.number(),
                   .peer = operation.peer(),
                   .others = {operation.others().begin(), operation.others().begin() + others},
                   .seconds = operation.seconds(),
                   .deadline_seconds = operation.deadline_seconds(),
                   .still_seconds = operation.still_seconds()};
  return out;
}

StepOutput FromProto(const wire::StepOutput& step) {
  StepOutput out;
  for (const wire::SequenceOutput& from : step.sequences()) {
    SequenceOutput& to = out.sequences.emplace_back();
    to.request_id = from.request_id();
    to.finish = FromProto(from.finish());
    to.error = Printable(from.error());
    to.sample = from.sample();
    for (const wire::Token& token : from.tokens()) to.tokens.push_back(FromProto(token));
    for (const wire::Token& token : from.prompt_logprobs()) {
      to.prompt_logprobs.push_back(FromProto(token));
    }
  }
  out.load = FromProto(step.load());
  return out;
}

absl::Status FromProto(const wire::Failure& failure) {
  const auto code = static_cast<absl::StatusCode>(failure.code());
  return absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : code,
                      Printable(failure.message()));
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
  for (const CancelledSample& cancelled : input.cancelled_samples) {
    wire::CancelledSample& to = *out.add_cancelled_samples();
    to.set_request_id(cancelled.request_id);
    to.set_sample(cancelled.sample);
  }
}

wire::JobStatus ToProto(const JobStatus& status) {
  wire::JobStatus out;
  out.set_job_id(status.id);
  out.set_state(status.state);
  out.set_size(status.size);
  out.set_detail(status.detail);
  if (status.over_seconds.has_value()) out.set_over_seconds(*status.over_seconds);
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
