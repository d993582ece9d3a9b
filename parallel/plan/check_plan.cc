#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "parallel/plan/held_pages.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/shard.h"

namespace skein::plan {
namespace {

// Far above what a host has; a number beyond it is an error, not a wish.
constexpr int32_t kMaxThreads = 4096;
// Rows size buffers: 2^20 rows are more than any step, and times a model's widths within an int64.
constexpr int32_t kMaxRows = 1 << 20;
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

absl::Status InRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  const std::string allowed =
      low == high ? absl::StrCat(low) : absl::StrCat("from ", low, " to ", high);
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; it must be ", allowed));
}

absl::Status CheckLimits(const Plan& plan) {
  SKEIN_RETURN_IF_ERROR(InRange("micro_batches", plan.micro_batches, 1, kMaxWays));
  SKEIN_RETURN_IF_ERROR(InRange("max_num_seqs", plan.max_num_seqs, 1, kMaxRows));
  SKEIN_RETURN_IF_ERROR(InRange("max_micro_batch_rows", plan.max_micro_batch_rows, 1, kMaxRows));
  // A step gives every sequence its next token.
  SKEIN_RETURN_IF_ERROR(InRange(
      "max_num_batched_tokens", plan.max_num_batched_tokens, plan.max_num_seqs,
      int64_t{std::max(plan.micro_batches, plan.layout.pp_size)} * plan.max_micro_batch_rows));
  // Positions, page ids and offsets in a page are int32 in a batch.
  SKEIN_RETURN_IF_ERROR(InRange("page_size", plan.page_size, 1, kMaxInt32));
  SKEIN_RETURN_IF_ERROR(InRange("pages", plan.pages, 1, kMaxInt32));
  SKEIN_RETURN_IF_ERROR(InRange("swap_pages", plan.swap_pages, 0, kMaxInt32));
  SKEIN_RETURN_IF_ERROR(InRange("context_length", plan.context_length, 1, kMaxInt32));
  if (plan.deterministic && !SumsAgreeAcrossLayouts(plan.layout.tp_size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "deterministic, with a tp_size of ", plan.layout.tp_size, "; it must be 1, 2, 4 or 8"));
  }
  return absl::OkStatus();
}

// `layers_begin` is where the stage before ended.
absl::Status CheckRank(const Plan& plan, int32_t replica, int32_t stage, int32_t shard,
                       int64_t layers_begin) {
  const RankPlan& rank = plan.At(replica, stage, shard);
  SKEIN_RETURN_IF_ERROR(InRange("dp_rank", rank.dp_rank, replica, replica));
  SKEIN_RETURN_IF_ERROR(InRange("pp_rank", rank.pp_rank, stage, stage));
  SKEIN_RETURN_IF_ERROR(InRange("tp_rank", rank.tp_rank, shard, shard));
  SKEIN_RETURN_IF_ERROR(InRange("layers' begin", rank.layers.begin, layers_begin, layers_begin));
  SKEIN_RETURN_IF_ERROR(InRange("layers' end", rank.layers.end, layers_begin + 1, kMaxInt32));
  const int64_t stage_end = plan.At(replica, stage, 0).layers.end;
  SKEIN_RETURN_IF_ERROR(InRange("layers' end", rank.layers.end, stage_end, stage_end));
  SKEIN_RETURN_IF_ERROR(InRange("threads", rank.threads, 1, kMaxThreads));
  SKEIN_RETURN_IF_ERROR(InRange("weight_bytes", rank.weight_bytes, 1, kMaxInt64));
  SKEIN_RETURN_IF_ERROR(InRange("kv_bytes", rank.kv_bytes, 1, kMaxInt64));
  // 0: of a plan that does not tell.
  const int64_t least = rank.memory_bytes == 0 ? 0 : std::max(rank.weight_bytes, rank.kv_bytes);
  SKEIN_RETURN_IF_ERROR(InRange("memory_bytes", rank.memory_bytes, least, kMaxInt64));
  return InRange("host_bytes", rank.host_bytes, 0, kMaxInt64);
}

absl::Status CheckReplica(const Plan& plan, int32_t replica) {
  int64_t layers_begin = 0;
  for (int32_t stage = 0; stage < plan.layout.pp_size; ++stage) {
    for (int32_t shard = 0; shard < plan.layout.tp_size; ++shard) {
      if (absl::Status status = CheckRank(plan, replica, stage, shard, layers_begin);
          !status.ok()) {
        return Annotate(status, absl::StrCat("rank ", plan.At(replica, stage, shard).rank));
      }
    }
    layers_begin = plan.At(replica, stage, 0).layers.end;
  }
  return absl::OkStatus();
}

// Every rank of the job has one part, or none.
absl::Status CheckNumbers(const Plan& plan) {
  const int32_t size = plan.job_size();
  std::vector<bool> taken(size, false);
  const auto take = [&](int32_t rank) {
    SKEIN_RETURN_IF_ERROR(InRange("rank", rank, 0, size - 1));
    if (taken[rank]) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is there twice"));
    }
    taken[rank] = true;
    return absl::OkStatus();
  };
  for (const RankPlan& part : plan.ranks) SKEIN_RETURN_IF_ERROR(take(part.rank));
  for (const int32_t rank : plan.idle_ranks) SKEIN_RETURN_IF_ERROR(take(rank));
  return absl::OkStatus();
}

absl::Status CheckParts(const Plan& plan) {
  SKEIN_RETURN_IF_ERROR(InRange("layout.tp_size", plan.layout.tp_size, 1, kMaxWays));
  SKEIN_RETURN_IF_ERROR(InRange("layout.pp_size", plan.layout.pp_size, 1, kMaxWays));
  SKEIN_RETURN_IF_ERROR(InRange("layout.dp_size", plan.layout.dp_size, 1, kMaxWays));
  SKEIN_RETURN_IF_ERROR(InRange("layout.ep_size", plan.layout.ep_size, 1, plan.layout.tp_size));
  if (plan.ranks.size() != static_cast<size_t>(plan.layout.ranks())) {
    return absl::InvalidArgumentError(absl::StrCat(plan.layout.ToString(), " needs ",
                                                   plan.layout.ranks(), " ranks; the plan has ",
                                                   plan.ranks.size()));
  }
  SKEIN_RETURN_IF_ERROR(
      InRange("idle ranks", static_cast<int64_t>(plan.idle_ranks.size()), 0, kMaxWays));
  SKEIN_RETURN_IF_ERROR(CheckNumbers(plan));
  SKEIN_RETURN_IF_ERROR(CheckLimits(plan));
  for (int32_t replica = 0; replica < plan.layout.dp_size; ++replica) {
    SKEIN_RETURN_IF_ERROR(CheckReplica(plan, replica));
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const Plan& plan, const model::ModelConfig& model) {
  SKEIN_RETURN_IF_ERROR(CheckTensorParallel(model, plan.layout.tp_size, plan.layout.ep_size));
  SKEIN_RETURN_IF_ERROR(
      InRange("context_length", plan.context_length, 1, model.max_position_embeddings));
  const int64_t held = MostHeldPages(plan.context_length, model.LargestWindow(plan.context_length),
                                     plan.max_num_batched_tokens, plan.page_size);
  if (held > plan.pages) {
    return absl::InvalidArgumentError(absl::StrCat("pages is ", plan.pages, " of ", plan.page_size,
                                                   " tokens: one sequence of ", plan.context_length,
                                                   " tokens (context_length) needs ", held));
  }
  for (int32_t replica = 0; replica < plan.layout.dp_size; ++replica) {
    const RankPlan& last = plan.At(replica, plan.layout.pp_size - 1, 0);
    if (last.layers.end != model.num_layers) {
      return absl::InvalidArgumentError(absl::StrCat("replica ", replica, " holds layers 0 to ",
                                                     last.layers.end - 1, "; the model has ",
                                                     model.num_layers, " layers"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPlan(const Plan& plan) { return Annotate(CheckParts(plan), "plan"); }

absl::Status ValidatePlan(const Plan& plan, const model::ModelConfig& model) {
  SKEIN_RETURN_IF_ERROR(CheckPlan(plan));
  return Annotate(CheckModel(plan, model), "plan");
}

}  // namespace skein::plan
