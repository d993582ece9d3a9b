#include "coordinator/rpc/cluster_convert.h"

#include "absl/time/time.h"
#include "parallel/plan/plan.h"
#include "proto/convert/attach.h"
#include "proto/convert/plan.h"
#include "proto/convert/serving.h"

namespace skein::coordinator {

namespace wire = ::skein::cluster::v1;

wire::JobStatus ToProto(const JobStatus& status) {
  wire::JobStatus out;
  out.set_job_id(status.id);
  out.set_version(status.version);
  out.set_protocol(status.protocol);
  out.set_model_name(status.model);
  out.set_state(status.state);
  out.set_size(status.size);
  out.set_detail(status.detail);
  if (status.over_for.has_value()) {
    out.set_over_seconds(absl::ToDoubleSeconds(*status.over_for));
  }
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
    to.set_heartbeat_age_seconds(absl::ToDoubleSeconds(rank.heartbeat_age));
    to.set_bytes_read(rank.bytes_read);
    if (rank.times) *to.mutable_times() = convert::ToProto(*rank.times);
    if (rank.recent_times) *to.mutable_recent_times() = convert::ToProto(*rank.recent_times);
  }
  if (status.experts) *out.mutable_experts() = convert::ToProto(*status.experts);
  for (const ReplicaStatus& replica : status.replicas) {
    wire::ReplicaStatus& to = *out.add_replicas();
    to.set_replica(replica.replica);
    *to.mutable_load() = convert::ToProto(replica.load);
    to.set_tokens_per_second(replica.tokens_per_second);
    to.set_tokens_total(replica.tokens_total);
    if (replica.decodes.has_value()) {
      wire::DecodeComparison& decode = *to.mutable_decode();
      decode.set_steps(replica.decodes->steps);
      decode.set_rows(replica.decodes->decodes);
      decode.set_context(replica.decodes->context);
      decode.set_measured_seconds(absl::ToDoubleSeconds(replica.decodes->measured));
      decode.set_predicted_seconds(absl::ToDoubleSeconds(replica.decodes->predicted));
    }
    if (replica.prompts.has_value()) {
      wire::PromptComparison& prompt = *to.mutable_prompt();
      prompt.set_steps(replica.prompts->steps);
      prompt.set_rows(replica.prompts->prompt_rows);
      prompt.set_decodes(replica.prompts->decodes);
      prompt.set_measured_seconds(absl::ToDoubleSeconds(replica.prompts->measured));
      prompt.set_predicted_seconds(absl::ToDoubleSeconds(replica.prompts->predicted));
    }
  }
  return out;
}

}  // namespace skein::coordinator
