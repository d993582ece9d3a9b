#include "client/doctor.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/flags/flags.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "client/find_worker.h"
#include "client/mpirun.h"
#include "parallel/plan/plan.h"
#include "topology/doctor/diagnose.h"
#include "topology/doctor/facts.h"

namespace skein::client {
namespace {

struct Answer {
  std::vector<topology::RankFacts> ranks;  // by number
  absl::Status met;                        // why ranks did not meet
};

// Of the lines that workers printed; libraries may have said something between.
absl::StatusOr<std::vector<topology::RankFacts>> FactsIn(const std::string& output) {
  std::vector<topology::RankFacts> all;
  for (const auto line : absl::StrSplit(output, '\n')) {
    if (!absl::StartsWith(line, "{\"ranks\":")) continue;
    SKEIN_ASSIGN_OR_RETURN(const std::vector<topology::RankFacts> some,
                           topology::FactsFromJson(std::string(line)));
    all.insert(all.end(), some.begin(), some.end());
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  if (all.empty()) return absl::InvalidArgumentError("`worker doctor` told of no rank");
  return all;
}

absl::StatusOr<Answer> Ask(const DoctorFlags& flags) {
  SKEIN_ASSIGN_OR_RETURN(const std::string worker, FindWorker(flags.worker));
  std::vector<std::string> command = RanksOf(flags.ranks, flags.mpirun, {worker, "doctor"});
  if (!flags.model.empty()) command.push_back(absl::StrCat("--model=", flags.model));
  if (flags.port > 0) command.push_back(absl::StrCat("--port=", flags.port));
  Answer answer;
  absl::StatusOr<std::string> output = OutputOfMpirun(command);
  answer.met = output.status();
  if (!output.ok()) {
    absl::FPrintF(stderr, "skein: the ranks did not meet; each is asked alone\n");
    command.emplace_back("--alone");
    output = OutputOfMpirun(command);
    if (!output.ok()) return Annotate(output.status(), "the ranks did not start");
  }
  SKEIN_ASSIGN_OR_RETURN(answer.ranks, FactsIn(*output));
  return answer;
}

}  // namespace

void DeclareDoctor(CLI::App& command, DoctorFlags& flags) {
  command.add_option("--np", flags.ranks, "Ranks, as the job is to have them")
      ->check(InRange(1, plan::kMaxWays))
      ->capture_default_str();
  command
      .add_option(
          "--model", flags.model,
          "Hold this model's copies on all hosts, folders or GGUF files, against each other")
      ->check(NotEmpty());
  command
      .add_option("--port", flags.port,
                  "See whether a coordinator can listen there, on rank 0's host; 0: nobody looks")
      ->check(InRange(0, 65535))
      ->capture_default_str();
  command.add_option("--mpirun", flags.mpirun,
                     "Further arguments of mpirun, like \"--hostfile hosts\", for several hosts");
  command.add_option("--worker", flags.worker, "The worker program; default: beside this one")
      ->check(NotEmpty());
}

int Doctor(const DoctorFlags& flags) {
  const absl::StatusOr<Answer> answer = Ask(flags);
  if (!answer.ok()) {
    absl::FPrintF(stderr, "skein: %s\n", std::string(answer.status().message()));
    return kExitError;
  }
  std::vector<topology::Finding> findings = topology::Diagnose(answer->ranks);
  if (!answer->met.ok()) {
    findings.push_back({topology::Level::kError, "MPI", "the ranks do not meet",
                        "see what it said above; what is wrong here may be why"});
  }
  absl::PrintF("%s", topology::FormatFindings(findings));
  const bool errors = std::any_of(findings.begin(), findings.end(), [](const auto& finding) {
    return finding.level == topology::Level::kError;
  });
  return errors ? kExitError : kExitOk;
}

}  // namespace skein::client
