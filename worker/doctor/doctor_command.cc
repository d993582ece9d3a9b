#include "worker/doctor/doctor_command.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/flags/flags.h"
#include "base/status_macros.h"
#include "kernels/cpu/ceilings.h"
#include "parallel/comm/gather_strings.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/comm/nccl/nccl_transport.h"
#include "topology/doctor/facts.h"
#include "worker/doctor/exchanges.h"
#include "worker/doctor/gather.h"

namespace skein::worker {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(15);

topology::RankFacts FactsOf(GatherOptions options, int rank, int local_rank) {
  options.cards = local_rank == 0;
  if (rank != 0) options.port = 0;
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    options.detect.visible_devices = visible;
  }
  topology::RankFacts facts = GatherFacts(options);
  facts.rank = rank;
  return facts;
}

// A number that mpirun says; 0 where it says none.
int NumberOf(const char* variable) {
  int number = 0;
  const char* const text = std::getenv(variable);
  return text != nullptr && absl::SimpleAtoi(text, &number) ? number : 0;
}

// Without MPI, which may be what is wrong.
void TellAlone(const GatherOptions& options) {
  topology::RankFacts facts =
      FactsOf(options, NumberOf("OMPI_COMM_WORLD_RANK"), NumberOf("OMPI_COMM_WORLD_LOCAL_RANK"));
  facts.operations_per_s = kernels::MeasureArithmetic(/*threads=*/1).value_or(0);
  std::printf("%s\n", topology::FactsToJson({facts}).c_str());
}

absl::Status TellTogether(const GatherOptions& options, comm::MpiRuntime& mpi) {
  mpi.world().set_timeout(kTimeout);
  topology::RankFacts facts = FactsOf(options, mpi.rank(), mpi.local_rank());
  // All at once: what is slow shows beside its peers.
  SKEIN_RETURN_IF_ERROR(comm::GatherStrings(mpi.world(), "").status());
  facts.clock_s = absl::ToUnixNanos(absl::Now()) / 1e9;
  SKEIN_ASSIGN_OR_RETURN(facts.operations_per_s, kernels::MeasureArithmetic(/*threads=*/1));
  SKEIN_RETURN_IF_ERROR(TryExchanges(mpi, kTimeout, facts));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                         comm::GatherStrings(mpi.world(), topology::FactsToJson({facts})));
  if (mpi.rank() != 0) return absl::OkStatus();
  std::vector<topology::RankFacts> all;
  for (const std::string& text : texts) {
    SKEIN_ASSIGN_OR_RETURN(std::vector<topology::RankFacts> one, topology::FactsFromJson(text));
    for (topology::RankFacts& rank : one) all.push_back(std::move(rank));
  }
  std::printf("%s\n", topology::FactsToJson(all).c_str());
  return absl::OkStatus();
}

}  // namespace

struct DoctorCommand::Flags {
  CLI::App* doctor = nullptr;
  GatherOptions options;
  bool alone = false;
};

DoctorCommand::DoctorCommand(CLI::App& app) : flags_(std::make_unique<Flags>()) {
  Flags& f = *flags_;
  f.doctor = app.add_subcommand("doctor",
                                "what the ranks and hosts that mpirun starts it on say of "
                                "themselves, and how they exchange: limits, networks, "
                                "cards; prints JSON, which `skein doctor` explains");
  f.doctor
      ->add_option(
          "--model", f.options.model,
          "hold this model's copies on all hosts, folders or GGUF files, against each other")
      ->check(NotEmpty());
  f.doctor
      ->add_option("--port", f.options.port,
                   "see whether a coordinator can listen there, on rank "
                   "0's host")
      ->check(InRange(1, 65535));
  f.doctor->add_flag("--alone", f.alone,
                     "each rank prints what it knows, and meets no other one over MPI");
}

DoctorCommand::~DoctorCommand() = default;

bool DoctorCommand::parsed() const { return flags_->doctor->parsed(); }

int DoctorCommand::Run() const {
  if (flags_->alone) {
    TellAlone(flags_->options);
    return kExitOk;
  }
  for (const auto& [name, value] : comm::NcclEnvironment()) setenv(name, value, 1);
  auto mpi = comm::MpiRuntime::Create({.startup_timeout = kTimeout});
  const absl::Status status = mpi.ok() ? TellTogether(flags_->options, **mpi) : mpi.status();
  if (status.ok()) {
    mpi->reset();
    std::fflush(nullptr);
    _exit(kExitOk);  // a thread may wait in NCCL
  }
  std::fprintf(stderr, "worker doctor: %s\n", std::string(status.message()).c_str());
  // Finalizing MPI would wait for ranks that are stuck.
  std::fflush(nullptr);
  _exit(kExitError);
}

}  // namespace skein::worker
