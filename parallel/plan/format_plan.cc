#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/list_item.h"
#include "base/units.h"
#include "parallel/plan/plan.h"

namespace skein::plan {
namespace {

std::string FormatLayers(const Range& layers) {
  if (layers.size() == 1) return absl::StrCat(layers.begin);
  return absl::StrCat(layers.begin, "-", layers.end - 1);
}

}  // namespace

std::string FormatPlan(const Plan& plan) {
  std::string out = absl::StrCat("plan ", plan.layout.ToString(), " of ", plan.model_name, " for ",
                                 plan.job_id.empty() ? "a job" : absl::StrCat("job ", plan.job_id),
                                 " of ", FormatCount(plan.job_size(), "rank"), "\n");
  absl::StrAppend(&out,
                  " rank  replica  stage  shard     layers  threads     weights          KV      "
                  "in all\n");
  for (const RankPlan& rank : plan.ranks) {
    absl::StrAppend(
        &out,
        absl::StrFormat("%5d  %7d  %5d  %5d  %9s  %7d  %10s  %10s  %10s\n", rank.rank, rank.dp_rank,
                        rank.pp_rank, rank.tp_rank, FormatLayers(rank.layers), rank.threads,
                        FormatBytes(rank.weight_bytes), FormatBytes(rank.kv_bytes),
                        rank.memory_bytes > 0 ? FormatBytes(rank.memory_bytes) : "-"));
  }
  for (const int32_t rank : plan.idle_ranks) {
    absl::StrAppend(&out, absl::StrFormat("%5d  idle\n", rank));
  }
  absl::StrAppend(&out, "limits of a replica\n");
  out += ListItem(absl::StrCat(FormatCount(plan.max_num_seqs, "sequence"), " at once, of at most ",
                               FormatCount(plan.context_length, "token")));
  out += ListItem(
      absl::StrCat("steps of at most ", FormatCount(plan.max_num_batched_tokens, "token"), ", in ",
                   plan.layout.pp_size == 1
                       ? "one micro-batch"
                       : absl::StrCat("micro-batches of at most ", plan.max_micro_batch_rows,
                                      ", decodes in ", plan.micro_batches)));
  if (plan.layout.pp_size > 1) {
    out += ListItem(absl::StrCat("activations in ", std::string(HopDTypeName(plan.hop_dtype)),
                                 " from stage to stage"));
  }
  out += ListItem(absl::StrCat(
      FormatCount(plan.pages, "page"), " of ", FormatCount(plan.page_size, "token"), " in ",
      std::string(KvDTypeName(plan.kv_dtype)),
      plan.swap_pages > 0 ? absl::StrCat(", and ", plan.swap_pages, " to swap to") : ""));
  if (plan.deterministic) {
    out += ListItem("deterministic: bits depend neither on the batch nor on the layout");
  }
  if (plan.exact) {
    out += ListItem("exact: quantised weights multiply activations as they are, not their 8 bits");
  }
  if (const Prediction& of = plan.prediction; of.prompt_tokens > 0) {
    absl::StrAppend(
        &out, "predicted, by figures that ",
        of.measured ? absl::StrFormat("were measured ±%.2g%%", 100 * of.spread) : "are assumed",
        "\n");
    out += ListItem(
        absl::StrFormat("%s tokens/s, TTFT %s, TPOT %s, with %s at once, of %d and %d tokens",
                        FormatRate(of.output_tokens_per_s), FormatMilliseconds(of.ttft),
                        FormatMilliseconds(of.tpot), FormatCount(of.concurrency, "request"),
                        of.prompt_tokens, of.output_tokens));
  }
  if (!plan.reasons.empty()) absl::StrAppend(&out, "why\n");
  for (const std::string& reason : plan.reasons) out += ListItem(reason);
  return out;
}

}  // namespace skein::plan
