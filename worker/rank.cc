#include "worker/rank.h"

#include <malloc.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/dtype.h"
#include "base/log/log.h"
#include "base/log/log_options.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "base/version.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control/control_channel.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/plan/plan.h"
#include "topology/host/cores.h"
#include "topology/host/host.h"
#include "topology/host/near_cpus.h"
#include "topology/host/nvml.h"
#include "worker/core_binding.h"
#include "worker/device.h"
#include "worker/device_comm.h"
#include "worker/engine/device_watch.h"
#include "worker/engine/expert_watch.h"
#include "worker/engine/inbox.h"
#include "worker/engine/loops.h"
#include "worker/engine/stage.h"
#include "worker/engine/stage_groups.h"
#include "worker/engine/step_watch.h"
#include "worker/engine/thread_beats.h"
#include "worker/engine/warm_up_watch.h"
#include "worker/find_device.h"
#include "worker/job_identity.h"
#include "worker/lack_of_memory.h"
#include "worker/model_shard.h"
#include "worker/probe/device_lock.h"
#include "worker/probe/job_topology.h"
#include "worker/rank_groups.h"
#include "worker/rpc/attachment.h"

namespace skein::worker {
namespace {

// For what ranks do together before they serve.
constexpr absl::Duration kStartTimeout = absl::Minutes(2);
// For a result to reach a leader, which always listens.
constexpr absl::Duration kLastResort = absl::Hours(1);

// Of the weights, over all ranks of a replica.
int64_t ModelBytes(const plan::Plan& plan) {
  int64_t bytes = 0;
  for (const plan::RankPlan& rank : plan.ranks) {
    if (rank.dp_rank == 0) bytes += rank.weight_bytes;
  }
  return bytes;
}

// worker-3.log for worker.log: ranks of a host share its folders.
std::string FileOfRank(const std::string& file, const std::string& job_number, int rank) {
  if (file.empty()) return file;
  const std::filesystem::path path(file);
  return (path.parent_path() / absl::StrCat(path.stem().string(), job_number.empty() ? "" : "-",
                                            job_number, "-", rank, path.extension().string()))
      .string();
}

// Until prefill was observed: 1B on two cores.
constexpr double kPrefillTokensPerS = 100;

class Rank {
 public:
  Rank(const RankOptions& options, comm::MpiRuntime& mpi) : options_(options), mpi_(mpi) {}

  absl::Status Run() {
    mpi_.world().set_timeout(kStartTimeout);
    SKEIN_RETURN_IF_ERROR(CheckSameProgram(
        mpi_.world(), kVersion,
        absl::StrCat("--device-comm=", std::string(DeviceCommName(options_.device_comm)),
                     " --decode=", std::string(DecodeFormName(options_.decode)), " --profile=",
                     options_.profile_steps, options_.figures_file.empty() ? "" : " --figures")));
    SKEIN_ASSIGN_OR_RETURN(const JobIdentity job, AgreeOnJob(mpi_.world(), options_.job));
    SKEIN_ASSIGN_OR_RETURN(
        RankDevice device,
        FindDevice(mpi_, options_.backend == "reference" ? DeviceKind::kCpu : options_.device,
                   options_.oversubscribe_devices));
    SKEIN_RETURN_IF_ERROR(AgreeOnKind(mpi_.world(), device));
    const bool gpu = device.device.kind == DeviceKind::kCuda;
    if (gpu) LeaveOneCore();
    // All that the launcher gave the host's ranks together, not what is near one's GPU.
    SKEIN_ASSIGN_OR_RETURN(topology::Node node, topology::DescribeHost());
    host_ = node.host;
    if (gpu) BindNear(device);
    if (!device.no_gpu.empty() && mpi_.local_rank() == 0) {
      spdlog::info("computing on CPUs, no GPU: {}", device.no_gpu);
    }
    if (!device.users.empty()) {
      spdlog::info("GPU {} is in use before it is loaded: {}", device.gpu, device.users);
    }
    SKEIN_RETURN_IF_ERROR(CheckProfile(options_.profile_steps, device));
    SKEIN_RETURN_IF_ERROR(CheckDecodeForm(options_.decode, device));
    gpu_ = device.gpu;
    uuid_ = device.uuid;
    // An error is told once the coordinator can hear it.
    why_not_nccl_ = AgreeOnNccl(mpi_.world(), options_.device_comm, device);
    device.device.nccl = why_not_nccl_.ok() && why_not_nccl_->empty() && mpi_.size() > 1;
    device.device.peers = device.device.nccl && options_.device_comm != DeviceComm::kNccl;
    SKEIN_ASSIGN_OR_RETURN(JobTopology found, FindTopology(device));
    // A rank of a GPU is bound by now.
    node.cores = std::max(node.cores, found.topology.hosts.front().cores);
    attachment_ = std::make_unique<Attachment>(
        AttachmentOptions{
            .coordinator = options_.coordinator,
            .tls = options_.tls,
            .job = job,
            .rank = mpi_.rank(),
            .job_size = mpi_.size(),
            .node = node,
            .device = device.device,
            .layout = options_.layout,
            .told = mpi_.local_rank() == 0 ? std::optional(found.topology) : std::nullopt,
            .model = options_.model,
            .tracker = &tracker_,
            .beats = &beats_,
            .experts = &experts_,
            .orphan_timeout = options_.orphan_timeout,
            .announces = mpi_.local_rank() == 0},
        &inbox_, [this](const absl::Status& why, int code) { OnEnd(why, code); });
    absl::StatusOr<plan::Plan> plan = attachment_->WaitForPlan();
    if (absl::IsCancelled(plan.status())) return absl::OkStatus();  // drained before it began
    const absl::Status status = plan.ok() ? Serve(*plan) : plan.status();
    return status.ok() ? status : Report(status);
  }

 private:
  // A call of all ranks.
  absl::StatusOr<JobTopology> FindTopology(RankDevice& device) {
    SKEIN_ASSIGN_OR_RETURN(JobTopology found,
                           FindJobTopology(mpi_, {.device = device,
                                                  .device_comm = options_.device_comm,
                                                  .probing = options_.probing,
                                                  .folder = options_.probe_folder,
                                                  .figures_file = options_.figures_file}));
    lock_ = std::move(found.lock);
    if (mpi_.local_rank() == 0) spdlog::info("figures of this host: {}", found.says);
    if (!found.measured || device.device.kind == DeviceKind::kCpu) return found;
    malloc_trim(0);  // what it has freed: plans count what ranks take
    // Libraries that were opened for it have taken memory.
    SKEIN_ASSIGN_OR_RETURN(const RankDevice now,
                           FindDevice(mpi_, options_.device, options_.oversubscribe_devices));
    device.device.memory_bytes = now.device.memory_bytes;
    return found;
  }

  // A GPU's rank reads and draws with several threads, and waits with others.
  void LeaveOneCore() const {
    if (!options_.bound_by_default || topology::AffinityCores().value_or(0) != 1) return;
    const absl::Status left = topology::UnbindThreads();
    spdlog::info("mpirun had bound this rank to one core, which nobody asked for: {}",
                 left.ok() ? "a GPU's rank needs more, and is bound no longer" : left.ToString());
  }

  // Its threads and, since they touch it first, the memory that it pins.
  void BindNear(const RankDevice& device) const {
    const absl::StatusOr<topology::Cpus> allowed = topology::AllowedCpus();
    if (!allowed.ok()) return spdlog::info("threads stay unbound: {}", allowed.status().ToString());
    const topology::Binding binding =
        topology::ChooseBinding(*allowed, topology::CpusNear(device.pci_address),
                                absl::StrCat("GPU ", device.gpu, " (", device.pci_address, ")"));
    if (!binding.cpus.empty()) {
      const absl::Status bound = topology::BindThreads(binding.cpus);
      if (!bound.ok()) return spdlog::info("threads stay unbound: {}", bound.ToString());
    }
    if (binding.warns) {
      spdlog::warn("{}", binding.says);
    } else if (!binding.says.empty() && (!binding.cpus.empty() || mpi_.local_rank() == 0)) {
      spdlog::info("{}", binding.says);
    }
  }

  // Of a plan for cores. A call of all ranks.
  void ShareCores(const plan::Plan& plan) const {
    if (plan.ranks.front().device.kind == DeviceKind::kCuda) return;
    const absl::StatusOr<std::string> says = BindToCores(mpi_, plan);
    if (!says.ok()) return spdlog::info("threads stay unbound: {}", says.status().ToString());
    if (!says->empty()) spdlog::info("{}", *says);
  }

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
    const plan::RankPlan* const part = plan.Find(mpi_.rank());
    plan::RankPlan self =
        part != nullptr ? *part : plan::RankPlan{.rank = mpi_.rank(), .dp_rank = plan::kNoReplica};
    if (self.device.kind == DeviceKind::kCuda) {
      self.threads = ThreadsWithin(self.threads, topology::AffinityCores());
    }
    const absl::Time begin = absl::Now();
    // Before loading, which takes some ranks longer than others; the first step waits for all.
    serving_ = std::make_unique<Serving>();
    RankGroups& groups = serving_->groups;
    SKEIN_ASSIGN_OR_RETURN(groups,
                           MakeRankGroups(mpi_, plan, self,
                                          {.device = self.device.kind,
                                           .tracker = &tracker_,
                                           .timeout = kStartTimeout,
                                           .control = {{.ports = options_.control_ports}},
                                           .on_group = [this](auto& group) { AddReport(group); }}));
    ShareCores(plan);
    if (part == nullptr) return Idle();
    // Ranks of CPUs and of GPUs are in no job together.
    if (self.device.kind == DeviceKind::kCuda) {
      SKEIN_ASSIGN_OR_RETURN(groups.copies, ConnectGpus({.asked = options_.device_comm,
                                                         .why_not_nccl = why_not_nccl_,
                                                         .deterministic = plan.deterministic,
                                                         .gpu = gpu_,
                                                         .self = Name(),
                                                         .timeout = kStartTimeout},
                                                        mpi_, groups.tp.get(), groups.Hops()));
    }
    serving_->collectives = MakeCollectives(groups.view());
    absl::StatusOr<ModelShard> loaded = Load(plan, self, serving_->collectives.get());
    SKEIN_RETURN_IF_ERROR(WithUsers(loaded.status(), self));
    ModelShard& shard = serving_->shard = *std::move(loaded);
    for (const auto& copies : groups.copies) {  // nothing is allocated in a step
      const int64_t elements = plan.max_micro_batch_rows * shard.config.hidden_size;
      const DType widest = plan.deterministic ? DType::kF32 : plan.hop_dtype;  // sums, and hops
      SKEIN_RETURN_IF_ERROR(copies->Buffer(DTypeBytes(widest, elements)).status());
    }
    const attach::Ready ready = {.slice_key = shard.program.slice_key,
                                 .slice_digest = shard.weights.slice_digest,
                                 .model_path = ModelPath(plan),
                                 .bytes_read = shard.weights.bytes_read,
                                 .load_time = absl::Now() - begin};
    const double seconds = absl::ToDoubleSeconds(shard.weights.time);
    spdlog::info("loaded {} ({}) in {:.2f} s, {}, {}", ready.slice_key,
                 FormatBytes(ready.bytes_read), seconds,
                 FormatBytesPerSecond(static_cast<double>(ready.bytes_read) / seconds),
                 FormatCount(self.threads, "thread"));
    StageOptions stage_options = StageOptionsOf(plan, self, groups);
    // The coordinator hears it from this rank first, and from no other one.
    stage_options.on_failure = [this](const absl::Status& why) { Report(why).IgnoreError(); };
    stage_options.watch = &serving_->watch.emplace(&tracker_, groups.view().All(),
                                                   options_.step_timeout, ModelBytes(plan));
    Stage& stage =
        serving_->stage.emplace(stage_options, shard.program.program, shard.executable.get());
    if (const absl::Status warm = WithUsers(WarmUp(stage), self); !warm.ok()) {
      Report(warm).IgnoreError();
      stage.Abort(warm);  // who waits for this rank need not
      return warm;
    }
    experts_.Watch(shard.executable.get());
    serving_->device_watch.emplace(
        shard.executable.get(), [this](const absl::Status& why) { EndWithDevice(why); },
        DeviceWatchOptions{.tracker = &tracker_});
    attachment_->SendReady(ready);
    tracker_.StartTimes();
    const bool leads = self.pp_rank == 0 && self.tp_rank == 0;
    if (!leads) return RunFollower(stage, *groups.control, kLastResort);
    return RunLeader(LeaderOptionsOf(plan, shard), stage, groups.control.get(), inbox_);
  }

  // Waits, without a part in the plan, until the job ends.
  absl::Status Idle() {
    spdlog::info("the plan does without this rank, which idles");
    SKEIN_RETURN_IF_ERROR(WaitUntilAllHaveLoaded());
    attachment_->SendReady({});
    while (!inbox_.Take(std::chrono::steady_clock::now() + std::chrono::hours(1)).stop) {
    }
    return absl::OkStatus();
  }

  // Ranks load for unlike times, which are no hang.
  absl::Status WaitUntilAllHaveLoaded() {
    mpi_.world().set_timeout(absl::InfiniteDuration());
    return mpi_.world().Barrier(kHostStream);
  }

  absl::Status WarmUp(Stage& stage) {
    SKEIN_RETURN_IF_ERROR(WaitUntilAllHaveLoaded());
    serving_->warm_up_watch.emplace(&tracker_, options_.warm_up_timeout,
                                    [this](const absl::Status& why) { EndStuck(why); });
    SKEIN_RETURN_IF_ERROR(stage.WarmUp());
    serving_->warm_up_watch.reset();
    return absl::OkStatus();
  }

  // The thread that computes may wait for its device, for another rank, or for an order. Exchanges
  // are left to the process's end, so that nobody notices before it is reported.
  void EndWithDevice(const absl::Status& why) {
    serving_->shard.executable->Abort(why);
    // It knows more, if it is not stuck, as where the driver does not answer.
    if (!absl::IsUnavailable(why)) absl::SleepFor(absl::Seconds(1));
    EndStuck(why);
  }

  void AddReport(comm::Communicator& group) {
    group.set_on_failure([this](const absl::Status& why) { Report(why).IgnoreError(); });
    if (options_.on_group) options_.on_group(group);
  }

  // The thread that computes may be stuck: nothing can be waited for.
  void EndStuck(const absl::Status& why) {
    const absl::Status status = Report(why);
    spdlog::error("{}", status.ToString());
    FlushLog();
    _exit(1);
  }

  // An error for lack of a GPU's memory says who has it.
  absl::Status WithUsers(const absl::Status& status, const plan::RankPlan& self) const {
    if (!absl::IsResourceExhausted(status) || self.device.kind != DeviceKind::kCuda) return status;
    return ExplainLack(status, self.device.memory_bytes, topology::AskNvml(uuid_));
  }

  std::string Name() const { return absl::StrCat("rank ", mpi_.rank(), " on ", host_); }

  // Tells the coordinator why this rank ends, in words that name it, and the step where there is
  // one.
  absl::Status Report(const absl::Status& why) {
    const std::optional<int64_t> step = tracker_.Read().step;
    const bool told = !step.has_value() || absl::StrContains(why.message(), "step ");
    absl::Status status =
        Annotate(told ? why : Annotate(why, absl::StrCat("step ", *step)), Name());
    // Whoever comes second waits: the process may end when this returns.
    absl::call_once(reported_, [&] { attachment_->SendFailure(status); });
    return status;
  }

  // From the root: ranks of two nodes start in two folders.
  std::string ModelPath(const plan::Plan& plan) const {
    return std::filesystem::absolute(ResolveModelPath(plan.model_path, options_.model_root))
        .string();
  }

  absl::StatusOr<ModelShard> Load(const plan::Plan& plan, const plan::RankPlan& self,
                                  kernels::Collectives* collectives) {
    ModelShardOptions options{.model_root = options_.model_root,
                              .backend = options_.backend,
                              .gpu = gpu_,
                              .decode = options_.decode,
                              .profile_steps = options_.profile_steps,
                              .wrap_backend = options_.wrap_backend,
                              .collectives = collectives};
    options.profile_ended = [steps = options_.profile_steps] {
      spdlog::info("the profile has ended: {} step(s) ran without graphs, with NVTX ranges", steps);
    };
    // These are called by a stage that warms up.
    options.remark = [](std::string_view text) { spdlog::info("{}", text); };
    options.warming_up = [this](std::string_view what) { serving_->warm_up_watch->Enter(what); };
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
                                     const RankGroups& groups) {
    return {.tp_size = plan.layout.tp_size,
            .pp_size = plan.layout.pp_size,
            .pp_rank = self.pp_rank,
            .tp_rank = self.tp_rank,
            .slots = plan.max_num_seqs,
            .groups = groups.view()};
  }

  LeaderOptions LeaderOptionsOf(const plan::Plan& plan, const ModelShard& shard) {
    return {.limits = {.scheduler = {.max_num_batched_tokens = plan.max_num_batched_tokens,
                                     .logit_rows = plan::kLogitRows,
                                     .stages = plan.layout.pp_size,
                                     .micro_batches = plan.micro_batches,
                                     .max_micro_batch_rows = plan.max_micro_batch_rows,
                                     .page_size = plan.page_size,
                                     .window = shard.config.LargestWindow(plan.context_length)},
                       .rates = {.prefill_tokens_per_s = kPrefillTokensPerS,
                                 .swap_pages_per_s = shard.swap_pages_per_s},
                       .max_num_seqs = plan.max_num_seqs,
                       .pages = plan.pages,
                       .swap_pages = plan.swap_pages,
                       .context_length = plan.context_length,
                       .vocab_size = shard.config.vocab_size},
            .step_timeout = options_.step_timeout,
            .on_stuck = [this](const absl::Status& why) { EndStuck(why); },
            .on_failure = [this](const absl::Status& why) { Report(why).IgnoreError(); },
            .orders_ahead = options_.overlap ? 2 : 1,
            .model_bytes = ModelBytes(plan),
            .beats = &beats_,
            .report = [this](const StepReport& report) { attachment_->SendStep(report); }};
  }

  // What the plan led to.
  struct Serving {
    RankGroups groups;
    std::unique_ptr<kernels::Collectives> collectives;
    ModelShard shard;
    std::optional<StepWatch> watch;
    std::optional<Stage> stage;
    std::optional<WarmUpWatch> warm_up_watch;  // meanwhile
    std::optional<DeviceWatch> device_watch;
  };

  const RankOptions& options_;
  comm::MpiRuntime& mpi_;
  std::string host_;
  int gpu_ = 0;
  std::string uuid_;  // the GPU's
  DeviceLock lock_;   // nobody measures meanwhile
  absl::StatusOr<std::string> why_not_nccl_ = "";
  Inbox inbox_;
  comm::OperationTracker tracker_;
  ThreadBeats beats_;
  ExpertWatch experts_;
  std::unique_ptr<Serving> serving_;
  absl::once_flag reported_;
  std::unique_ptr<Attachment> attachment_;  // uses inbox, tracker, beats and what experts_ watches
};

}  // namespace

absl::Status RunRank(const RankOptions& options, comm::MpiRuntime& mpi) {
  LogOptions log = options.log;
  log.file = FileOfRank(log.file, options.job_number, mpi.rank());
  std::string source = absl::StrCat("rank ", mpi.rank());
  // A supervisor puts the job before lines of text, and passes on JSON as it is.
  if (log.format == LogOptions::Format::kJson && !options.job_number.empty()) {
    source = absl::StrCat("job ", options.job_number, ": ", source);
  }
  SKEIN_RETURN_IF_ERROR(Annotate(InitLogging(source, log), "--log-file"));
  auto rank = std::make_unique<Rank>(options, mpi);
  const absl::Status status = rank->Run();
  // What is left after an error is not destroyed: a broken device, or a lost rank, would be waited
  // for. The process ends.
  if (!status.ok()) static_cast<void>(rank.release());
  return status;
}

}  // namespace skein::worker
