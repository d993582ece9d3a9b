#include "proto/convert/plan.h"

#include <string>

#include "base/status_macros.h"
#include "proto/convert/topology.h"

namespace skein::convert {
namespace {

plan::v1::RankPlan RankToProto(const plan::RankPlan& rank) {
  plan::v1::RankPlan wire;
  wire.set_rank(rank.rank);
  wire.set_dp_rank(rank.dp_rank);
  wire.set_pp_rank(rank.pp_rank);
  wire.set_tp_rank(rank.tp_rank);
  wire.set_layers_begin(rank.layers.begin);
  wire.set_layers_end(rank.layers.end);
  wire.set_threads(rank.threads);
  *wire.mutable_device() = ToProto(rank.device);
  wire.set_weight_bytes(rank.weight_bytes);
  wire.set_kv_bytes(rank.kv_bytes);
  wire.set_memory_bytes(rank.memory_bytes);
  wire.set_host_bytes(rank.host_bytes);
  return wire;
}

absl::StatusOr<plan::RankPlan> RankFromProto(const plan::v1::RankPlan& wire) {
  plan::RankPlan rank;
  rank.rank = wire.rank();
  rank.dp_rank = wire.dp_rank();
  rank.pp_rank = wire.pp_rank();
  rank.tp_rank = wire.tp_rank();
  rank.layers = {wire.layers_begin(), wire.layers_end()};
  rank.threads = wire.threads();
  rank.weight_bytes = wire.weight_bytes();
  rank.kv_bytes = wire.kv_bytes();
  rank.memory_bytes = wire.memory_bytes();
  rank.host_bytes = wire.host_bytes();
  SKEIN_ASSIGN_OR_RETURN(rank.device, FromProto(wire.device()));
  return rank;
}

}  // namespace

plan::v1::Plan ToProto(const plan::Plan& plan) {
  plan::v1::Plan wire;
  wire.set_job_id(plan.job_id);
  wire.set_model_name(plan.model_name);
  wire.set_model_path(plan.model_path);
  wire.set_model_identity(plan.model_identity);
  wire.mutable_layout()->set_tp_size(plan.layout.tp_size);
  wire.mutable_layout()->set_pp_size(plan.layout.pp_size);
  wire.mutable_layout()->set_dp_size(plan.layout.dp_size);
  wire.mutable_layout()->set_ep_size(plan.layout.ep_size);
  for (const plan::RankPlan& rank : plan.ranks) *wire.add_ranks() = RankToProto(rank);
  for (const int32_t rank : plan.idle_ranks) wire.add_idle_ranks(rank);
  wire.set_micro_batches(plan.micro_batches);
  wire.set_max_num_seqs(plan.max_num_seqs);
  wire.set_max_micro_batch_rows(plan.max_micro_batch_rows);
  wire.set_max_num_batched_tokens(plan.max_num_batched_tokens);
  wire.set_page_size(plan.page_size);
  wire.set_pages(plan.pages);
  wire.set_swap_pages(plan.swap_pages);
  wire.set_kv_dtype(std::string(plan::KvDTypeName(plan.kv_dtype)));
  wire.set_hop_dtype(std::string(DTypeName(plan.hop_dtype)));
  wire.set_deterministic(plan.deterministic);
  wire.set_exact(plan.exact);
  wire.set_context_length(plan.context_length);
  for (const std::string& reason : plan.reasons) wire.add_reasons(reason);
  const plan::Prediction& prediction = plan.prediction;
  plan::v1::Prediction& to = *wire.mutable_prediction();
  to.set_prompt_tokens(prediction.prompt_tokens);
  to.set_output_tokens(prediction.output_tokens);
  to.set_concurrency(prediction.concurrency);
  to.set_ttft_ms(absl::ToDoubleMilliseconds(prediction.ttft));
  to.set_tpot_ms(absl::ToDoubleMilliseconds(prediction.tpot));
  to.set_output_tokens_per_s(prediction.output_tokens_per_s);
  to.set_measured(prediction.measured);
  to.set_spread(prediction.spread);
  return wire;
}

absl::StatusOr<plan::Plan> FromProto(const plan::v1::Plan& wire) {
  plan::Plan plan;
  plan.job_id = wire.job_id();
  plan.model_name = wire.model_name();
  plan.model_path = wire.model_path();
  plan.model_identity = wire.model_identity();
  plan.layout = {wire.layout().tp_size(), wire.layout().pp_size(), wire.layout().dp_size(),
                 wire.layout().ep_size() == 0 ? 1 : wire.layout().ep_size()};
  for (const plan::v1::RankPlan& rank : wire.ranks()) {
    SKEIN_ASSIGN_OR_RETURN(plan.ranks.emplace_back(), RankFromProto(rank));
  }
  plan.idle_ranks.assign(wire.idle_ranks().begin(), wire.idle_ranks().end());
  plan.micro_batches = wire.micro_batches();
  plan.max_num_seqs = wire.max_num_seqs();
  plan.max_micro_batch_rows = wire.max_micro_batch_rows();
  plan.max_num_batched_tokens = wire.max_num_batched_tokens();
  plan.page_size = wire.page_size();
  plan.pages = wire.pages();
  plan.swap_pages = wire.swap_pages();
  plan.deterministic = wire.deterministic();
  plan.exact = wire.exact();
  plan.context_length = wire.context_length();
  plan.reasons.assign(wire.reasons().begin(), wire.reasons().end());
  plan.prediction = {.prompt_tokens = wire.prediction().prompt_tokens(),
                     .output_tokens = wire.prediction().output_tokens(),
                     .concurrency = wire.prediction().concurrency(),
                     .ttft = absl::Milliseconds(wire.prediction().ttft_ms()),
                     .tpot = absl::Milliseconds(wire.prediction().tpot_ms()),
                     .output_tokens_per_s = wire.prediction().output_tokens_per_s(),
                     .measured = wire.prediction().measured(),
                     .spread = wire.prediction().spread()};
  SKEIN_RETURN_IF_ERROR(plan::CheckPlan(plan));
  SKEIN_ASSIGN_OR_RETURN(plan.hop_dtype, ParseDType(wire.hop_dtype()));
  SKEIN_ASSIGN_OR_RETURN(plan.kv_dtype, plan::ParseKvDType(wire.kv_dtype()));
  return plan;
}

}  // namespace skein::convert
