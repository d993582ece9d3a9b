#include "worker/rank.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log/log.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control/control_channel.h"
#include "parallel/comm/control/make_control_channel.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/plan/plan.h"
#include "topology/host/host.h"
#include "worker/engine/inbox.h"
#include "worker/engine/loops.h"
#include "worker/engine/stage.h"
#include "worker/engine/step_watch.h"
#include "worker/engine/thread_beats.h"
#include "worker/job_identity.h"
#include "worker/model_shard.h"
#include "worker/rpc/attachment.h"

namespace skein::worker {
namespace {

// For what ranks do together before they serve.
constexpr absl::Duration kStartTimeout = absl::Minutes(2);
// For a result to reach a leader, which always listens.
constexpr absl::Duration kLastResort = absl::Hours(1);

// The groups of ranks that this rank computes with; null where it is alone.
struct Groups {
  std::unique_ptr<comm::Communicator> replica;
  std::unique_ptr<comm::Communicator> tensor;
  std::unique_ptr<comm::ControlChannel> control;

  std::vector<comm::Communicator*> All() const {
    std::vector<comm::Communicator*> all;
    for (comm::Communicator* group : {replica.get(), tensor.get()}) {
      if (group != nullptr) all.push_back(group);
    }
    return all;
  }
};

// Publishes the calls of a group that has the plan's ranks for which `belongs` holds.
template <typename Predicate>
std::unique_ptr<comm::Communicator> Watched(std::unique_ptr<comm::Communicator> group,
                                            const plan::Plan& plan, Predicate belongs,
                                            const RankOptions& options,
                                            comm::OperationTracker& tracker) {
  std::vector<int> ranks;
  for (const plan::RankPlan& rank : plan.ranks) {
    if (belongs(rank)) ranks.push_back(rank.rank);
  }
  comm::OperationTracker::Group* const line =
      tracker.AddGroup(std::string(group->name()), std::move(ranks), group->rank());
  return options.track(std::move(group), line);
}

absl::StatusOr<Groups> MakeGroups(comm::MpiRuntime& mpi, const plan::Plan& plan,
                                  const plan::RankPlan& self, const RankOptions& options,
                                  comm::OperationTracker& tracker) {
  const plan::Layout& layout = plan.layout;
  Groups groups;
  // Split is a call of all ranks, in this order, also of those that need no group.
  SKEIN_ASSIGN_OR_RETURN(
      groups.replica, mpi.Split(self.replica, self.rank, absl::StrCat("replica ", self.replica)));
  SKEIN_ASSIGN_OR_RETURN(
      groups.tensor,
      mpi.Split(self.replica * layout.pipeline + self.stage, self.rank,
                absl::StrCat("tp of replica ", self.replica, ", stage ", self.stage)));
  if (groups.replica->size() > 1) {
    groups.replica->set_timeout(kStartTimeout);
    const auto belongs = [&](const plan::RankPlan& rank) { return rank.replica == self.replica; };
    groups.replica = Watched(std::move(groups.replica), plan, belongs, options, tracker);
    SKEIN_ASSIGN_OR_RETURN(groups.control, comm::MakeControlChannel(*groups.replica));
  } else {
    groups.replica = nullptr;
  }
  if (layout.tensor > 1) {
    const auto belongs = [&](const plan::RankPlan& rank) {
      return rank.replica == self.replica && rank.stage == self.stage;
    };
    groups.tensor = Watched(std::move(groups.tensor), plan, belongs, options, tracker);
  } else {
    groups.tensor = nullptr;
  }
  return groups;
}

// Of the weights, over all ranks of a replica.
int64_t ModelBytes(const plan::Plan& plan) {
  int64_t bytes = 0;
  for (const plan::RankPlan& rank : plan.ranks) {
    if (rank.replica == 0) bytes += rank.weight_bytes;
  }
  return bytes;
}

// Until prefill was observed: 1B on two cores.
constexpr double kPrefillTokensPerS = 100;

class Rank {
 public:
  Rank(const RankOptions& options, comm::MpiRuntime& mpi) : options_(options), mpi_(mpi) {}

  absl::Status Run() {
    mpi_.world().set_timeout(kStartTimeout);
    SKEIN_ASSIGN_OR_RETURN(const JobIdentity job, AgreeOnJob(mpi_.world(), options_.job));
    SKEIN_ASSIGN_OR_RETURN(topology::Node node, topology::DescribeHost());
    host_ = node.host;
    attachment_ = std::make_unique<Attachment>(
        AttachmentOptions{.coordinator = options_.coordinator,
                          .job = job,
                          .rank = mpi_.rank(),
                          .job_size = mpi_.size(),
                          .node = node,
                          .layout = options_.layout,
                          .tracker = &tracker_,
                          .beats = &beats_,
                          .orphan_timeout = options_.orphan_timeout,
                          .announces = mpi_.local_rank() == 0},
        &inbox_, [this](const absl::Status& why, int code) { OnEnd(why, code); });
    absl::StatusOr<plan::Plan> plan = attachment_->WaitForPlan();
    if (absl::IsCancelled(plan.status())) return absl::OkStatus();  // drained before it began
    const absl::Status status = plan.ok() ? Serve(*plan) : plan.status();
    return status.ok() ? status : Report(status);
  }

 private:
  // On a thread of the attachment.
  void OnEnd(const absl::Status& why, int exit_code) {
    if (exit_code == 0) {
      spdlog::info("ending: {}", std::string(why.message()));
      inbox_.Stop();
      return;
    }
    spdlog::error("ending: {}", std::string(why.message()));
    // The engine's thread may be inside a collective that never returns.
    FlushLog();
    _exit(exit_code);
  }

  absl::Status Serve(const plan::Plan& plan) {
    const plan::RankPlan& self = plan.ranks[mpi_.rank()];
    const absl::Time begin = absl::Now();
    // Before loading, which takes some ranks longer than others; the first step waits for all.
    SKEIN_ASSIGN_OR_RETURN(Groups groups, MakeGroups(mpi_, plan, self, options_, tracker_));
    SKEIN_ASSIGN_OR_RETURN(ModelShard shard, Load(plan, self));
    const ShardReport report = {.slice_key = shard.program.slice_key,
                                .slice_digest = shard.weights.slice_digest,
                                .model_path = ModelPath(plan),
                                .bytes_read = shard.weights.bytes_read,
                                .load_time = absl::Now() - begin};
    spdlog::info("loaded {} ({}) in {:.2f} s, {} thread(s)", report.slice_key,
                 FormatBytes(report.bytes_read), absl::ToDoubleSeconds(report.load_time),
                 self.threads);
    StepWatch watch(&tracker_, groups.All(), options_.step_timeout, ModelBytes(plan));
    StageOptions stage_options = StageOptionsOf(plan, self, shard, groups);
    stage_options.watch = &watch;
    Stage stage(stage_options, shard.program.program, shard.executable.get());
    attachment_->SendReady(report);
    const bool leads = self.stage == 0 && self.shard == 0;
    if (!leads) return RunFollower(stage, *groups.control, kLastResort);
    return RunLeader(LeaderOptionsOf(plan, shard), stage, groups.control.get(), inbox_);
  }

  // The thread that computes may be stuck: nothing can be waited for.
  void EndStuck(const absl::Status& why) {
    const absl::Status status = Report(why);
    spdlog::error("{}", status.ToString());
    FlushLog();
    _exit(1);
  }

  // Tells the coordinator why this rank ends, in words that name it.
  absl::Status Report(const absl::Status& why) {
    absl::Status status = Annotate(why, absl::StrCat("rank ", mpi_.rank(), " on ", host_));
    attachment_->SendFailure(status);
    return status;
  }

  // From the root: ranks of two nodes start in two folders.
  std::string ModelPath(const plan::Plan& plan) const {
    return std::filesystem::absolute(ResolveModelPath(plan.model_path, options_.model_root))
        .string();
  }

  absl::StatusOr<ModelShard> Load(const plan::Plan& plan, const plan::RankPlan& self) {
    ModelShardOptions options{.model_root = options_.model_root, .backend = options_.backend};
    absl::Time next = absl::Now() + absl::Seconds(2);
    options.progress = [&](int64_t done, int64_t total) {
      if (absl::Now() < next) return;
      next = absl::Now() + absl::Seconds(2);
      spdlog::info("loading: {} of {} ({}%)", FormatBytes(done), FormatBytes(total),
                   done * 100 / total);
    };
    return LoadModelShard(plan, self, options);
  }

  static StageOptions StageOptionsOf(const plan::Plan& plan, const plan::RankPlan& self,
                                     const ModelShard& shard, const Groups& groups) {
    return {.tensor = plan.layout.tensor,
            .pipeline = plan.layout.pipeline,
            .stage = self.stage,
            .shard = self.shard,
            .hidden_size = shard.config.hidden_size,
            .vocab_size = shard.config.vocab_size,
            .page_size = plan.page_size,
            .kv = shard.kv.get(),
            .swap = shard.swap.get(),
            .tensor_group = groups.tensor.get(),
            .replica_group = groups.replica.get()};
  }

  LeaderOptions LeaderOptionsOf(const plan::Plan& plan, const ModelShard& shard) {
    return {.limits = {.scheduler = {.step_tokens = plan.step_tokens,
                                     .logit_rows = plan::kLogitRows,
                                     .stages = plan.layout.pipeline,
                                     .micro_batches = plan.micro_batches,
                                     .max_micro_batch_rows = plan.max_micro_batch_rows,
                                     .page_size = plan.page_size},
                       .rates = {.prefill_tokens_per_s = kPrefillTokensPerS,
                                 .swap_pages_per_s = shard.swap_pages_per_s},
                       .max_sequences = plan.max_sequences,
                       .pages = plan.pages,
                       .swap_pages = plan.swap_pages,
                       .context_length = plan.context_length,
                       .vocab_size = shard.config.vocab_size},
            .step_timeout = options_.step_timeout,
            .on_stuck = [this](const absl::Status& why) { EndStuck(why); },
            .orders_ahead = options_.overlap ? 2 : 1,
            .model_bytes = ModelBytes(plan),
            .beats = &beats_,
            .report = [this](const StepReport& report) { attachment_->SendStep(report); }};
  }

  const RankOptions& options_;
  comm::MpiRuntime& mpi_;
  std::string host_;
  Inbox inbox_;
  comm::OperationTracker tracker_;
  ThreadBeats beats_;
  std::unique_ptr<Attachment> attachment_;  // uses inbox, tracker and beats
};

}  // namespace

absl::Status RunRank(const RankOptions& options, comm::MpiRuntime& mpi) {
  SKEIN_RETURN_IF_ERROR(InitLogging(absl::StrCat("rank ", mpi.rank()), options.log_level));
  return Rank(options, mpi).Run();
}

}  // namespace skein::worker
