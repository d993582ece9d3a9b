#include "worker/probe/probe_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/device_kind.h"
#include "base/file.h"
#include "base/flags/flags.h"
#include "base/flags/parse_device_kind.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "proto/convert/machines_json.h"
#include "worker/device.h"
#include "worker/device_comm.h"
#include "worker/find_device.h"
#include "worker/probe/job_topology.h"

namespace skein::worker {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(2);

struct Options {
  std::optional<DeviceKind> device;
  DeviceComm device_comm = DeviceComm::kAuto;
  std::string json_file;
};

// `output`: of rank 0's JSON.
absl::Status Probe(const Options& options, const std::string& folder, comm::MpiRuntime& mpi,
                   int output) {
  mpi.world().set_timeout(kTimeout);
  const bool first = mpi.rank() == 0;
  if (first && !options.json_file.empty()) {
    SKEIN_RETURN_IF_ERROR(Annotate(CheckWritable(options.json_file), "--json"));
  }
  SKEIN_ASSIGN_OR_RETURN(const RankDevice device,
                         FindDevice(mpi, options.device, /*oversubscribe=*/false));
  SKEIN_RETURN_IF_ERROR(AgreeOnKind(mpi.world(), device));
  JobTopologyOptions find{.device = device,
                          .device_comm = options.device_comm,
                          .probing = Probing::kAlways,
                          .folder = folder};
  if (first) {
    find.progress = [](std::string_view what) {
      std::fprintf(stderr, "measuring %s\n", std::string(what).c_str());
    };
  }
  SKEIN_ASSIGN_OR_RETURN(const JobTopology found, FindJobTopology(mpi, find));
  // Older figures, or assumptions, are not what was asked for.
  if (!found.measured) return absl::FailedPreconditionError(found.why_not);
  SKEIN_ASSIGN_OR_RETURN(const topology::Topology topology, GatherHosts(mpi, found.topology));
  if (!first) return absl::OkStatus();
  std::fprintf(stderr, "%s\n", found.says.c_str());
  const std::string json = convert::TopologyToJson(topology);
  if (!options.json_file.empty()) {
    return Annotate(WriteFile(options.json_file, json), "--json");
  }
  if (dprintf(output, "%s\n", json.c_str()) < 0)
    return absl::ErrnoToStatus(errno, "writing the JSON");
  return absl::OkStatus();
}

}  // namespace

struct ProbeCommand::Flags {
  CLI::App* probe = nullptr;
  Options options;
};

ProbeCommand::ProbeCommand(CLI::App& app) : flags_(std::make_unique<Flags>()) {
  Flags& f = *flags_;
  f.probe = app.add_subcommand(
      "probe",
      "measure the hosts that mpirun starts it on: what devices and the ways between them do in a "
      "second; prints JSON, which `skein plan --topology` reads");
  AddParsed(*f.probe, "--device", f.options.device, ParseDeviceKind, "cpu or cuda")
      ->default_str("as of a rank");
  AddParsed(*f.probe, "--device-comm", f.options.device_comm, ParseDeviceComm,
            "as of a rank: auto, nccl, peers or host")
      ->default_str("auto");
  f.probe->add_option("--json", f.options.json_file, "write the JSON into this file instead")
      ->check(NotEmpty());
}

ProbeCommand::~ProbeCommand() = default;

bool ProbeCommand::parsed() const { return flags_->probe->parsed(); }

int ProbeCommand::Run(const std::string& folder) const {
  // The log and libraries print to standard output, too. Theirs becomes standard error, so that the
  // JSON stands alone.
  const int output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (output < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    std::fprintf(stderr, "worker probe: standard output: %s\n", std::strerror(errno));
    return kExitError;
  }
  auto mpi = comm::MpiRuntime::Create();
  const absl::Status status =
      mpi.ok() ? Probe(flags_->options, folder, **mpi, output) : mpi.status();
  if (status.ok()) close(output);
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "worker probe: %s\n", std::string(status.message()).c_str());
  // Finalizing MPI would wait for ranks that are stuck.
  std::fflush(nullptr);
  _exit(kExitError);
}

}  // namespace skein::worker
