#include "tests/engine/local_replica.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kernels/ops/sizes.h"
#include "parallel/comm/inprocess/inprocess.h"
#include "parallel/plan/shard.h"
#include "parallel/program/rank_program.h"
#include "worker/engine/step_watch.h"
#include "worker/loader/shard_loader.h"

namespace skein::worker {

struct LocalReplica::Rank {
  comm::OperationTracker tracker;
  std::vector<std::unique_ptr<DeviceCopies>> copies;
  std::vector<std::unique_ptr<comm::Communicator>> groups;
  StageGroups stage_groups;
  std::unique_ptr<kernels::Collectives> collectives;
  std::unique_ptr<kernels::Backend> backend;
  plan::RankProgram program;
  LoadedShard shard;
  std::unique_ptr<kernels::KvCache> kv;
  std::unique_ptr<kernels::KvCache> swap;
  std::unique_ptr<kernels::Executable> executable;
  std::optional<StepWatch> watch;
  std::unique_ptr<Stage> stage;
};

LocalReplica::~LocalReplica() = default;

comm::Progress LocalReplica::progress(int rank) const { return ranks_[rank]->tracker.Read(); }

// Gives the ranks, by stage and shard, their groups.
void LocalReplica::Connect(const plan::Layout& layout,
                           const std::vector<std::unique_ptr<Rank>>& ranks) {
  // Members by their rank in the group; each keeps its own end.
  const auto join = [](const std::vector<Rank*>& members, const std::string& name,
                       const std::function<comm::Communicator*&(size_t)>& place) {
    if (members.size() == 1) return;
    auto group = comm::MakeInProcessGroup(static_cast<int>(members.size()), name);
    std::vector<int> ranks_of_group(members.size());
    std::iota(ranks_of_group.begin(), ranks_of_group.end(), 0);
    for (size_t i = 0; i < members.size(); ++i) {
      group[i]->Track(members[i]->tracker.AddGroup(name, ranks_of_group, static_cast<int>(i)));
      place(i) = group[i].get();
      members[i]->groups.push_back(std::move(group[i]));
    }
  };
  const auto at = [&](int stage, int shard) { return ranks[stage * layout.tp_size + shard].get(); };
  for (int stage = 0; stage < layout.pp_size; ++stage) {
    std::vector<Rank*> shards;
    for (int shard = 0; shard < layout.tp_size; ++shard) shards.push_back(at(stage, shard));
    join(shards, "tp", [&](size_t i) -> auto& { return shards[i]->stage_groups.tp; });
    for (int shard = 0; stage > 0 && shard < layout.tp_size; ++shard) {
      const std::vector<Rank*> ends = {at(stage - 1, shard), at(stage, shard)};
      join(ends, "hop", [&](size_t i) -> auto& {
        return i == 0 ? ends[0]->stage_groups.next : ends[1]->stage_groups.previous;
      });
    }
  }
  if (layout.pp_size == 1) return;
  std::vector<Rank*> takers;
  for (int shard = 0; shard < layout.tp_size; ++shard) takers.push_back(at(0, shard));
  takers.push_back(at(layout.pp_size - 1, 0));
  join(takers, "tokens", [&](size_t i) -> auto& { return takers[i]->stage_groups.tokens; });
}

absl::StatusOr<std::unique_ptr<LocalReplica>> LocalReplica::Create(
    const model::ModelConfig& config, const model::TensorSource& tensors,
    const LocalReplicaOptions& options) {
  auto replica = std::unique_ptr<LocalReplica>(new LocalReplica);
  replica->config_ = config;
  replica->options_ = options;
  const plan::Layout& layout = options.layout;
  std::vector<std::unique_ptr<Rank>> ranks(layout.ranks());
  for (auto& rank : ranks) rank = std::make_unique<Rank>();
  Connect(layout, ranks);
  if (ranks[0]->stage_groups.next != nullptr) {
    ranks[0]->stage_groups.next->set_hooks(
        [r = replica.get()](const comm::Call& call) {
          if (call.operation == comm::Operation::kSend && call.bytes > 0)
            r->hop_bytes_ += call.bytes;
        },
        nullptr);
  }
  for (int stage = 0; stage < layout.pp_size; ++stage) {
    for (int shard = 0; shard < layout.tp_size; ++shard) {
      std::unique_ptr<Rank> rank = std::move(ranks[stage * layout.tp_size + shard]);
      rank->collectives = MakeCollectives(rank->stage_groups);
      rank->backend = options.make_backend();
      for (comm::Communicator* const group : rank->stage_groups.All()) {
        if (!options.make_copies) break;
        group->StageThrough(rank->copies.emplace_back(options.make_copies()).get());
      }
      SKEIN_ASSIGN_OR_RETURN(
          rank->program, plan::BuildRankProgram(
                             config, &tensors,
                             {.tp_size = layout.tp_size,
                              .tp_rank = shard,
                              .ep_size = layout.ep_size,
                              .layers = plan::StageLayers(config.num_layers, layout.pp_size, stage),
                              .context_length = options.context_length,
                              .page_size = options.page_size,
                              .pages = options.pages,
                              .kv_dtype = options.kv_dtype,
                              .hop_dtype = options.hop_dtype,
                              .activations = kernels::ActivationDType(options.device, config.dtype),
                              .deterministic = options.deterministic,
                              .exact = options.exact}));
      SKEIN_ASSIGN_OR_RETURN(rank->shard, LoadShard(tensors, rank->program, *rank->backend, {}));
      SKEIN_ASSIGN_OR_RETURN(rank->kv, rank->backend->AllocateKv(rank->program.kv));
      if (options.swap_pages > 0) {
        kernels::KvSpec swap = rank->program.kv;
        swap.pages = options.swap_pages;
        SKEIN_ASSIGN_OR_RETURN(rank->swap, rank->backend->AllocateSwap(swap));
      }
      // With windows a sequence may be longer than all pages.
      const int64_t slot_pages =
          std::max(options.pages, (config.max_position_embeddings - 1) / options.page_size + 1);
      SKEIN_ASSIGN_OR_RETURN(rank->executable,
                             rank->backend->Compile(rank->program.program,
                                                    {.rows = options.max_rows,
                                                     .outputs = options.max_rows,
                                                     .slots = options.max_num_seqs,
                                                     .slot_pages = slot_pages},
                                                    {.weights = rank->shard.weights.get(),
                                                     .kv = rank->kv.get(),
                                                     .swap = rank->swap.get(),
                                                     .collectives = rank->collectives.get()}));
      rank->watch.emplace(&rank->tracker, rank->stage_groups.All(), absl::InfiniteDuration());
      StageOptions stage_options = {
          .tp_size = layout.tp_size,
          .pp_size = layout.pp_size,
          .pp_rank = stage,
          .tp_rank = shard,
          .slots = options.max_num_seqs,
          .groups = rank->stage_groups,
          .watch = &*rank->watch,
          .trace = options.trace,
      };
      if (options.observe) {
        const int64_t first = rank->program.program.vocab_part.first;
        stage_options.observe_logits = [r = replica.get(), first](int32_t slot,
                                                                  absl::Span<const float> logits) {
          const Slot& at = r->slots_.at(slot);
          MutexLock lock(&r->mutex_);
          for (const AnswerId& answer : at.answers) {
            std::vector<float>& all = r->logits_[{answer, at.length - 1}];
            all.resize(r->config_.vocab_size);
            std::copy(logits.begin(), logits.end(), all.begin() + first);
          }
        };
      }
      rank->stage =
          std::make_unique<Stage>(stage_options, rank->program.program, rank->executable.get());
      replica->ranks_.push_back(std::move(rank));
    }
  }
  std::vector<absl::Status> warm(layout.ranks());
  replica->OnRanks([&](int i) { warm[i] = replica->ranks_[i]->stage->WarmUp(); });
  for (const absl::Status& status : warm) SKEIN_RETURN_IF_ERROR(status);
  return replica;
}

std::vector<LocalReplica::AnswerId> LocalReplica::AnswersOf(const kernels::SlotStart& start) const {
  std::vector<AnswerId> answers;
  for (const serving::Request& request : requests_) {
    serving::SamplingParams sampling = request.sampling;
    for (const serving::AnswerStart& asked : request.answers) {
      sampling.answer = asked.index;
      if (request.prompt == start.prompt && sampling == start.sampling) {
        answers.emplace_back(request.id, asked.index);
      }
    }
  }
  if (answers.empty()) answers.emplace_back(0, start.slot);
  return answers;
}

void LocalReplica::Follow(const StepOrder& order) {
  for (kernels::SlotStart start : order.starts) {
    if (start.prompt_of >= 0) start.prompt = slots_.at(start.prompt_of).prompt;
    slots_[start.slot] = {.prompt = start.prompt, .answers = AnswersOf(start)};
  }
  for (const kernels::SlotUpdate& update : order.updates) {
    Slot& slot = slots_[update.slot];
    slot.length = update.length.value_or(slot.length);
  }
  for (const auto& chunks : order.micro_batches) {
    for (const ChunkOrder& chunk : chunks) slots_[chunk.slot].length += chunk.rows();
  }
}

void LocalReplica::Note(const StepOrder& order, bool behind_another) {
  using Kind = kernels::PageCopy::Kind;
  std::set<int32_t> out, taken;
  for (const kernels::PageCopy& copy : order.copies) {
    if (copy.kind == Kind::kSwapOut) out.insert(copy.from);
  }
  for (const kernels::SlotUpdate& update : order.updates) {
    taken.insert(update.pages.begin(), update.pages.end());
  }
  for (int32_t page : out) seen_.retaken_pages += taken.contains(page) ? 1 : 0;
  for (const kernels::SlotStart& start : order.starts) {
    seen_.retaken_slots += behind_another && worked_.contains(start.slot) ? 1 : 0;
  }
  worked_.clear();
  for (const auto& chunks : order.micro_batches) {
    for (const ChunkOrder& chunk : chunks) worked_.insert(chunk.slot);
  }
}

void LocalReplica::OnRanks(const std::function<void(int)>& fn) {
  std::vector<std::thread> threads;
  for (int i = 0; i < static_cast<int>(ranks_.size()); ++i) threads.emplace_back(fn, i);
  for (std::thread& thread : threads) thread.join();
}

void LocalReplica::Begin(const StepOrder& order) {
  Follow(order);
  OnRanks([&](int i) {
    // The order crosses as bytes, as it does between processes.
    ranks_[i]->stage->Begin(*DecodeStepOrder(Encode(order)));
  });
}

absl::StatusOr<StepResult> LocalReplica::Finish() {
  std::vector<StepResult> results(ranks_.size());
  OnRanks([&](int i) { results[i] = *ranks_[i]->stage->Finish(absl::InfiniteFuture()); });
  for (const StepResult& result : results) SKEIN_RETURN_IF_ERROR(result.status);
  return DecodeStepResult(Encode(results[options_.layout.ranks() - options_.layout.tp_size]));
}

void LocalReplica::Abort(const absl::Status& why) {
  for (const auto& rank : ranks_) rank->stage->Abort(why);
}

absl::StatusOr<StepResult> LocalReplica::Run(const StepOrder& order) {
  Begin(order);
  return Finish();
}

absl::StatusOr<LocalReplica::Answers> LocalReplica::Generate(
    const std::vector<serving::Request>& requests, SchedulerLimits scheduler) {
  scheduler.page_size = options_.page_size;
  scheduler.stages = std::max(scheduler.stages, options_.layout.pp_size);
  state_ = std::make_unique<ReplicaState>(
      ReplicaLimits{.scheduler = scheduler,
                    .rates = options_.rates,
                    .max_num_seqs = options_.max_num_seqs,
                    .pages = options_.pages,
                    .swap_pages = options_.swap_pages,
                    .context_length = config_.max_position_embeddings,
                    .vocab_size = config_.vocab_size});
  return GenerateMore(requests);
}

absl::StatusOr<LocalReplica::Answers> LocalReplica::GenerateMore(
    const std::vector<serving::Request>& requests) {
  if (state_ == nullptr) return absl::FailedPreconditionError("Generate comes first");
  ReplicaState& state = *state_;
  requests_ = requests;
  for (const serving::Request& request : requests) state.Add(request, absl::UnixEpoch());
  Answers answers;
  int64_t given = 0, drawn = 0, under_way = 0;
  while (true) {
    const StepReport report = state.TakeReport();
    for (const serving::AnswerOutput& output : report.answers) {
      if (output.finish == serving::Finish::kFailed) return absl::InternalError(output.error);
      std::vector<int32_t>& answer = answers[{output.request_id, output.answer}];
      for (const auto& token : output.tokens) {
        answer.push_back(token.id);
        ++given;
        sampled_[{output.request_id, output.answer}].push_back(token);
      }
      std::vector<serving::SampledToken>& logprobs = prompt_logprobs_[output.request_id];
      logprobs.insert(logprobs.end(), output.prompt_logprobs.begin(), output.prompt_logprobs.end());
    }
    load_ = report.load;
    for (; !state.idle() && under_way < options_.orders_ahead; ++under_way) {
      SKEIN_ASSIGN_OR_RETURN(std::optional<StepOrder> order, state.NextOrder(absl::UnixEpoch()));
      if (!order.has_value()) break;
      Note(*order, under_way > 0);
      Begin(*order);
    }
    if (under_way == 0) {
      seen_.surplus_tokens += drawn - given;
      if (state.idle()) return answers;
      return absl::InternalError("sequences wait, but nothing runs");
    }
    SKEIN_ASSIGN_OR_RETURN(const StepResult result, Finish());
    --under_way;
    drawn += static_cast<int64_t>(result.sampled.size());
    SKEIN_RETURN_IF_ERROR(state.Apply(result, absl::Milliseconds(10)));
  }
}

}  // namespace skein::worker
