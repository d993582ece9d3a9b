#include "tests/engine/local_replica.h"

#include <thread>

#include "base/status_macros.h"
#include "parallel/comm/inprocess/inprocess.h"
#include "parallel/plan/shard.h"
#include "worker/loader/shard_loader.h"
#include "worker/program/rank_program.h"

namespace skein::worker {

struct LocalReplica::Rank {
  std::unique_ptr<comm::Communicator> replica_group;
  std::unique_ptr<comm::Communicator> tensor_group;
  std::unique_ptr<kernels::Backend> backend;
  RankProgram program;
  LoadedShard shard;
  std::unique_ptr<kernels::KvCache> kv;
  std::unique_ptr<kernels::Executable> executable;
  std::unique_ptr<Stage> stage;
};

LocalReplica::~LocalReplica() = default;

absl::StatusOr<std::unique_ptr<LocalReplica>> LocalReplica::Create(
    const model::ModelConfig& config, const model::TensorSource& tensors,
    const LocalReplicaOptions& options) {
  auto replica = std::unique_ptr<LocalReplica>(new LocalReplica);
  replica->config_ = config;
  replica->options_ = options;
  const plan::Layout& layout = options.layout;
  auto replica_groups = comm::MakeInProcessGroup(layout.ranks(), "replica");
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    auto tensor_groups = comm::MakeInProcessGroup(layout.tensor, "tp");
    for (int shard = 0; shard < layout.tensor; ++shard) {
      auto rank = std::make_unique<Rank>();
      rank->replica_group = std::move(replica_groups[stage * layout.tensor + shard]);
      rank->tensor_group = std::move(tensor_groups[shard]);
      rank->backend = options.make_backend();
      SKEIN_ASSIGN_OR_RETURN(
          rank->program,
          BuildRankProgram(config, tensors,
                           {.tensor = layout.tensor,
                            .shard = shard,
                            .layers = plan::StageLayers(config.num_layers, layout.pipeline, stage),
                            .max_rows = options.max_rows,
                            .max_outputs = options.max_rows,
                            .page_size = options.page_size,
                            .pages = options.pages}));
      SKEIN_ASSIGN_OR_RETURN(rank->shard, LoadShard(tensors, rank->program, *rank->backend, {}));
      SKEIN_ASSIGN_OR_RETURN(rank->kv, rank->backend->AllocateKv(rank->program.kv));
      SKEIN_ASSIGN_OR_RETURN(
          rank->executable,
          rank->backend->Compile(rank->program.program, rank->shard.pointers(), rank->kv.get()));
      StageOptions stage_options = {
          .tensor = layout.tensor,
          .pipeline = layout.pipeline,
          .stage = stage,
          .shard = shard,
          .hidden_size = config.hidden_size,
          .vocab_size = config.vocab_size,
          .page_size = options.page_size,
          .tensor_group = layout.tensor > 1 ? rank->tensor_group.get() : nullptr,
          .replica_group = rank->replica_group.get(),
          .trace = options.trace,
          .observe_logits = [r = replica.get()](RequestId id, int64_t position,
                                                absl::Span<const float> logits) {
            r->logits_[{id, position}].assign(logits.begin(), logits.end());
          }};
      rank->stage =
          std::make_unique<Stage>(stage_options, rank->program.program, rank->executable.get());
      replica->ranks_.push_back(std::move(rank));
    }
  }
  return replica;
}

absl::StatusOr<std::vector<SampledRow>> LocalReplica::Run(const StepOrder& order) {
  std::vector<absl::Status> statuses(ranks_.size());
  std::vector<SampledRow> sampled;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    threads.emplace_back([&, i] {
      // The order crosses as bytes, as it does between processes.
      absl::StatusOr<StepOrder> received = DecodeStepOrder(Encode(order));
      Rank& rank = *ranks_[i];
      statuses[i] = received.ok() ? rank.stage->Run(*received, &sampled) : received.status();
      if (!statuses[i].ok()) {
        rank.replica_group->Abort(statuses[i]);
        rank.tensor_group->Abort(statuses[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) SKEIN_RETURN_IF_ERROR(status);
  return sampled;
}

absl::StatusOr<std::map<RequestId, std::vector<int32_t>>> LocalReplica::Generate(
    const std::vector<GenerationRequest>& requests, SchedulerLimits scheduler) {
  scheduler.page_size = options_.page_size;
  ReplicaState state({.scheduler = scheduler,
                      .pages = options_.pages,
                      .context_length = config_.max_position_embeddings,
                      .vocab_size = config_.vocab_size});
  for (const GenerationRequest& request : requests) state.Add(request);
  std::map<RequestId, std::vector<int32_t>> answers;
  while (true) {
    const StepReport report = state.TakeReport();
    for (const SequenceOutput& sequence : report.sequences) {
      if (sequence.finish == Finish::kFailed) return absl::InternalError(sequence.error);
      for (const auto& token : sequence.tokens) answers[sequence.id].push_back(token.id);
    }
    if (state.idle()) return answers;
    SKEIN_ASSIGN_OR_RETURN(std::vector<SampledRow> sampled, Run(state.NextOrder()));
    SKEIN_RETURN_IF_ERROR(state.Apply(sampled));
  }
}

}  // namespace skein::worker
