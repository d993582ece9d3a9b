// worker: one rank of a job. Started by mpirun; driven by the coordinator.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/cache_folder.h"
#include "base/deadlock_detection.h"
#include "base/flags/flags.h"
#include "base/flags/log_flags.h"
#include "base/flags/mutual_tls_flags.h"
#include "base/flags/parse_device_kind.h"
#include "base/log/log.h"
#include "base/port_range.h"
#include "base/processes.h"
#include "base/status_macros.h"
#include "base/tls/mutual_tls.h"
#include "base/version.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/comm/nccl/nccl_transport.h"
#include "parallel/plan/plan.h"
#include "worker/bench/bench_command.h"
#include "worker/device.h"
#include "worker/device_comm.h"
#include "worker/doctor/doctor_command.h"
#include "worker/evaluate/evaluate_command.h"
#include "worker/job_identity.h"
#include "worker/probe/job_topology.h"
#include "worker/probe/probe_command.h"
#include "worker/rank.h"

namespace {

constexpr const char* kExamples = R"(
Examples:
  mpirun -np 8 worker                             serve the coordinator on 127.0.0.1:50051
  mpirun -np 4 worker --coordinator=head:50051    serve another one
  mpirun -np 4 worker --layout=tp=2,pp=2          serve with this layout, whatever other jobs have
  worker bench decode --batch=1,8,64              measure this machine; see `worker bench --help`

Environment:
  SKEIN_JOB_ID, SKEIN_JOB_SECRET   set by who starts the job and asks the coordinator for it; both or
                                   neither (random ones); the secret has 16 to 256 bytes
  SKEIN_NO_PROBE                   as --no-probe
  SKEIN_JOB_SLOT                   with them: jobs that follow one another; a rank first kills what
                                   another job of its slot has left on its host
)";

// Whoever ended the job before this one could not reach every host: a stopped rank there holds
// memory and devices until it is killed.
void EndPredecessors(const skein::worker::JobIdentity& job) {
  const char* const slot = getenv("SKEIN_JOB_SLOT");
  if (slot == nullptr || *slot == '\0') return;
  skein::KillThoseWith(absl::StrCat("SKEIN_JOB_SLOT=", slot),
                       absl::StrCat("SKEIN_JOB_ID=", job.id));
}

void SetNcclEnvironment() {
  for (const auto& [name, value] : skein::comm::NcclEnvironment()) setenv(name, value, 1);
}

// Before MPI, whose other ranks would wait.
absl::Status LoadTls(const skein::MutualTlsFiles& files, skein::worker::RankOptions& options) {
  if (!files.given()) return absl::OkStatus();
  SKEIN_ASSIGN_OR_RETURN(options.tls, skein::LoadMutualTls(files, absl::Now()));
  return absl::OkStatus();
}

int JobMain(skein::worker::RankOptions& options, const skein::MutualTlsFiles& files) {
  const auto job =
      skein::worker::ParseJobIdentity(getenv("SKEIN_JOB_ID"), getenv("SKEIN_JOB_SECRET"));
  if (!job.ok()) {
    std::fprintf(stderr, "worker: %s\n", std::string(job.status().message()).c_str());
    return skein::kExitUsage;
  }
  options.job = *job;
  if (options.job) EndPredecessors(*options.job);
  if (const char* const slot = getenv("SKEIN_JOB_SLOT")) {
    const std::string text = slot;  // SUPERVISOR.NUMBER
    options.job_number = text.substr(text.find_last_of('.') + 1);
  }
  options.bound_by_default = getenv("OMPI_COMM_WORLD_SIZE") != nullptr &&
                             getenv("OMPI_MCA_hwloc_base_binding_policy") == nullptr &&
                             getenv("PRTE_MCA_hwloc_default_binding_policy") == nullptr;
  if (const absl::Status loaded = LoadTls(files, options); !loaded.ok()) {
    std::fprintf(stderr, "worker: %s\n", std::string(loaded.message()).c_str());
    return skein::kExitError;
  }
  SetNcclEnvironment();
  auto mpi = skein::comm::MpiRuntime::Create();
  if (!mpi.ok()) {
    std::fprintf(stderr, "worker: %s\n", mpi.status().ToString().c_str());
    return 1;
  }
  const absl::Status status = skein::worker::RunRank(options, **mpi);
  if (status.ok()) return 0;
  spdlog::error("{}", status.ToString());
  // Finalizing MPI would wait for ranks that are stuck: leave, and mpirun ends the job.
  skein::FlushLog();
  _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  skein::StopDeadlockDetection();
  CLI::App app(
      "One rank of a Skein job: computes its shard of a model as the coordinator plans it.");
  app.name("worker");
  app.set_version_flag("--version", std::string(skein::kVersion));

  skein::worker::RankOptions options;
  skein::AddAddress(app, "--coordinator", options.coordinator, "where the coordinator listens");
  skein::MutualTlsFiles tls;
  skein::AddMutualTls(app, tls);
  app.add_option("--model-root", options.model_root,
                 "folder in which this node's copy of the model lies under the last name of the "
                 "coordinator's path: /local for /local/bard (default: the coordinator's path)");
  skein::AddParsed(app, "--device", options.device, skein::ParseDeviceKind,
                   "cpu or cuda: what ranks compute on; with cuda each rank of a host has one of "
                   "its GPUs")
      ->default_str("cuda where it can be used and sees a GPU, else cpu");
  app.add_flag(
      "--oversubscribe-devices", options.oversubscribe_devices,
      "let ranks share GPUs where a host has more ranks than GPUs, each with its part of the "
      "memory: to try out layouts, not for speed");
  skein::AddParsed(
      app, "--device-comm", options.device_comm, skein::worker::ParseDeviceComm,
      "how activations go from GPU to GPU: nccl; peers, which is nccl with small sums over the "
      "memory of GPUs of one host; host, by way of the hosts' memory, which is slow; or auto: "
      "where each rank has a GPU of its own and NCCL is installed, nccl with sums over peer memory "
      "up to a size that is measured, else host")
      ->default_str("auto");
  app.add_option("--backend", options.backend,
                 "on CPUs: cpu, or reference: scalar and slow, for comparison")
      ->check(CLI::IsMember({"cpu", "reference"}))
      ->capture_default_str();
  skein::AddParsed(
      app, "--layout", options.layout, skein::plan::ParseLayoutRequest,
      "how this job is laid out, like tp=2,pp=2,dp=2, where it is not to be as the "
      "coordinator's --layout says or plans; jobs of unlike layouts serve side by side");
  app.add_option("--model", options.model,
                 "the model that this job serves, by a name that the coordinator has for it "
                 "(default: of its models the one with the fewest jobs)")
      ->check(skein::NotEmpty());
  constexpr absl::Duration kLeast = absl::Milliseconds(1);
  // Heartbeats, which tell who waits for whom, come twice a second.
  constexpr absl::Duration kLeastStepTimeout = absl::Seconds(1);
  skein::AddDuration(app, "--orphan-timeout", options.orphan_timeout,
                     "end after this long without a coordinator", kLeast);
  skein::AddDuration(
      app, "--step-timeout", options.step_timeout,
      "a rank that holds up an exchange for longer, or alone takes longer for a step, ends "
      "its job, named by the coordinator; 1s or more",
      kLeastStepTimeout)
      ->default_str("10 times what the step should take, at least 30s");
  skein::AddParsed(
      app, "--control-ports", options.control_ports, skein::ParsePortRange,
      "ports that replicas' first ranks listen at, one each, for their ranks on other hosts while "
      "the job is set up, like 41000-41007")
      ->default_str("any");
  bool probe = getenv("SKEIN_NO_PROBE") == nullptr;
  app.add_flag(
         "--probe,!--no-probe", probe,
         "before the rank attaches, measure what its host does in a second, for plans, where that "
         "was not measured before and nobody serves there (default, unless SKEIN_NO_PROBE is set; "
         "it takes some seconds); off, for one rank or all: plans go by what was measured before, "
         "or by assumptions")
      ->default_str(probe ? "true" : "false");
  app.add_option("--figures", options.figures_file,
                 "take what hosts do in a second from this file, of `worker probe` or `skein topo "
                 "--probe --json`, instead of measuring: a host of the file that has the name, or "
                 "else the first; all hosts have the file at this path")
      ->check(skein::NotEmpty());
  skein::worker::AddDecodeForm(app, options.decode);
  skein::worker::AddProfile(app, options.profile_steps);
  app.add_flag("--overlap,!--no-overlap", options.overlap,
               "plan and send the next step while one runs (default); off: for comparison")
      ->default_str("true");
  skein::AddLogging(app, options.log, "with the rank in its name, worker-3.log for worker.log, ");

  const skein::worker::BenchCommand bench(app);
  const skein::worker::ProbeCommand probe_command(app);
  const skein::worker::DoctorCommand doctor(app);
  const skein::worker::EvaluateCommand evaluate(app);
  app.footer(kExamples);  // of the job, not of its commands

  if (const std::optional<int> code = skein::ParseCommandLine(app, argc, argv)) return *code;
  // As NVML, by which GPUs are found, has them; CUDA's own order begins with the fastest card.
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/0);
  const std::string folder = skein::CacheFolder(getenv("XDG_CACHE_HOME"), getenv("HOME"));
  if (probe_command.parsed()) {
    SetNcclEnvironment();
    return probe_command.Run(folder);
  }
  if (doctor.parsed()) return doctor.Run();
  if (evaluate.parsed()) return evaluate.Run();
  options.probing = probe ? skein::worker::Probing::kWhenNew : skein::worker::Probing::kNever;
  options.probe_folder = folder;
  return bench.parsed() ? bench.Run(getenv("OMPI_COMM_WORLD_SIZE") != nullptr)
                        : JobMain(options, tls);
}
