#include "parallel/planner/planning_flags.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/flags/flags.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/goal.h"
#include "parallel/planner/kv_memory.h"
#include "parallel/planner/lengths.h"

namespace skein::plan {
namespace {

absl::StatusOr<Objective> ParseObjective(std::string_view text) {
  if (text == "throughput") return Objective::kThroughput;
  if (text == "latency") return Objective::kLatency;
  return absl::InvalidArgumentError(
      absl::StrCat("must be throughput or latency, not '", std::string(text), "'"));
}

absl::StatusOr<std::optional<absl::Duration>> ParseLimit(std::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(std::string(text), &duration) || duration <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(text), "' is no time like 200ms"));
  }
  return duration;
}

// Returns where the name of a file of lengths will stand.
std::shared_ptr<std::string> DeclareGoal(CLI::App& command, Goal& goal) {
  cost::Workload& work = goal.workload;
  constexpr int64_t kMost = int64_t{1} << 30;
  command
      .add_option("--prompt-tokens", work.prompt_tokens,
                  "Plan for prompts of so many tokens, at most two thirds of a context")
      ->check(InRange<int64_t>(1, kMost))
      ->capture_default_str();
  command.add_option("--output-tokens", work.output_tokens, "Plan for answers of so many tokens")
      ->check(InRange<int64_t>(1, kMost))
      ->capture_default_str();
  command
      .add_option("--concurrency", work.concurrency,
                  "Plan for so many requests at once, over all replicas")
      ->check(InRange<int64_t>(1, kMost))
      ->default_str("16, on GPUs 256");
  auto lengths = std::make_shared<std::string>();
  command
      .add_option_function<std::string>(
          "--lengths", [lengths](const std::string& file) { *lengths = file; },
          "Plan for requests like those of this file, PROMPT,ANSWER tokens a line, as "
          "`skein bench serve` takes it: for their means; contexts hold the longest and no more, "
          "unless --context-length says how much")
      ->check(NotEmpty())
      ->excludes(command.get_option("--prompt-tokens"))
      ->excludes(command.get_option("--output-tokens"));
  AddParsed(command, "--objective", goal.objective, ParseObjective,
            "What layouts are ranked by. throughput: tokens a second; latency: the time of one "
            "answer")
      ->default_str("throughput");
  AddParsed(command, "--ttft-limit", goal.ttft_limit, ParseLimit,
            "Layouts with a longer time to the first token come last")
      ->default_str("none");
  AddParsed(command, "--tpot-limit", goal.tpot_limit, ParseLimit,
            "Where the planned load would take longer from token to token, replicas run as many "
            "sequences at once as keep this; layouts that cannot come last")
      ->default_str("none");
  return lengths;
}

}  // namespace

void DeclarePlanning(CLI::App& command, Constraints& constraints) {
  AddParsed(command, "--layout", constraints.layout, ParseLayoutRequest,
            "How each job is laid out, like tp=2,pp=2,dp=2 (tensor, pipeline, data parallel); what "
            "is left out is planned; where it does not take all ranks of a job, some may idle; "
            "tp=4,ep=2 makes two groups of the shards, each with half of a mixture's experts");
  command
      .add_option("--context-length", constraints.context_length,
                  "Tokens of prompt and answer together, at most; 0 takes the model's")
      ->check(InRange<int64_t>(0))
      ->capture_default_str();
  command
      .add_option(
          "--max-num-seqs", constraints.max_num_seqs,
          "Sequences that a replica runs at once, one for each answer of a request; 0 lets the "
          "planner choose")
      ->check(InRange(0, kMaxNumSeqs))
      ->capture_default_str();
  AddParsed(command, "--kv-memory", constraints.kv_memory, ParseKvMemory,
            "Memory for keys and values: a fraction of what weights and the rest leave of a node, "
            "like 0.5, or bytes per rank, like 4GiB. Default: what --max-num-seqs sequences of "
            "--context-length need, or as much of it as there is");
  AddParsed(command, "--kv-dtype", constraints.kv_dtype, ParseKvDType,
            "How keys and values are kept: f32; bf16 and f16 take half of its memory, int8 about a "
            "quarter, all with other roundings; GPUs have int8 and what they compute in, bf16 or, "
            "for a model of f16, f16")
      ->default_str("f32, on GPUs what they compute in");
  AddParsed(
      command, "--hop-dtype", constraints.hop_dtype, ParseHopDType,
      "What activations are sent in from one stage of a pipeline to the next: f32; bf16 and "
      "f16 take half of its bytes, with other roundings, so that pipelines cut in other places "
      "give other last bits; GPUs send what they compute in, bf16 or f16")
      ->default_str("f32, on GPUs what they compute in");
  command.add_flag(
      "--deterministic", constraints.deterministic,
      "Equal requests get equal answers, in every bit, whatever runs beside them, after restarts, "
      "with tp of 1, 2, 4 or 8 and any pp. CPUs do so anyway, unless other tp or a rounding "
      "--hop-dtype are asked for, which this refuses; GPUs are slower with it");
  command.add_flag("--exact", constraints.exact,
                   "Quantised weights multiply activations as they are; without it CPUs round them "
                   "to 8 bits, a scale for each 32, and multiply integers, which is faster");
  AddParsed(command, "--swap-memory", constraints.swap_memory_bytes, ParseSwapMemory,
            "Bytes per rank, like 512MiB, to swap requests to that give way when --kv-memory runs "
            "out; 0: they are recomputed")
      ->default_str("0");
  command
      .add_option(
          "--max-num-batched-tokens", constraints.max_num_batched_tokens,
          "Tokens that a replica computes in a step: a token of each running sequence, then "
          "pieces of prompts. Fewer delay running sequences less, more read prompts faster; "
          "0 lets the planner choose")
      ->check(InRange<int64_t>(0, kMaxBatchedTokens))
      ->capture_default_str();
  const std::shared_ptr<std::string> lengths = DeclareGoal(command, constraints.goal);
  command.callback([&constraints, lengths] {
    if (!lengths->empty()) {
      const absl::Status status = PlanForLengths(*lengths, constraints);
      if (!status.ok()) throw CLI::ValidationError("--lengths", std::string(status.message()));
    }
    if (constraints.max_num_batched_tokens == 0 ||
        constraints.max_num_batched_tokens >= constraints.max_num_seqs) {
      return;
    }
    throw CLI::ValidationError(
        "--max-num-batched-tokens",
        absl::StrCat(constraints.max_num_batched_tokens, " is less than --max-num-seqs, ",
                     constraints.max_num_seqs, "; every running sequence takes one of them"));
  });
}

}  // namespace skein::plan
