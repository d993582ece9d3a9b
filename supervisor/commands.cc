#include "supervisor/commands.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::supervisor {
namespace {

// Adds the supervisor's own files, and then what the user says of the program.
void AddFlags(const MutualTlsFiles& tls, const std::vector<std::string>& flags,
              std::vector<std::string>& argv) {
  const bool named = std::any_of(flags.begin(), flags.end(), [](const std::string& flag) {
    return flag == "--tls-cert" || flag.starts_with("--tls-cert=");
  });
  if (tls.given() && !named) {
    argv.insert(argv.end(),
                {absl::StrCat("--tls-cert=", tls.certificate), absl::StrCat("--tls-key=", tls.key),
                 absl::StrCat("--tls-ca=", tls.ca)});
  }
  argv.insert(argv.end(), flags.begin(), flags.end());
}

}  // namespace

Child::Options CoordinatorCommand(const Options& options, const std::string& folder) {
  Child::Options child;
  child.argv = {options.coordinator_program, "--model", options.model, "--listen",
                options.coordinator};
  AddFlags(options.tls, options.coordinator_flags, child.argv);
  child.environment = {{"TMPDIR", folder}};
  return child;
}

Child::Options JobCommand(const Options& options, const JobKey& key, const std::string& slot,
                          const std::string& folder) {
  Child::Options child;
  child.argv = {options.mpirun};
  if (!options.hostfile.empty()) {
    child.argv.insert(child.argv.end(), {"--hostfile", options.hostfile});
  }
  // Rank 0 tells the others whose they are, and may be on another host. Open MPI carries values
  // over its own connections, not on command lines.
  if (options.SeveralHosts()) {
    for (const char* const variable : {"SKEIN_JOB_ID", "SKEIN_JOB_SECRET", "SKEIN_JOB_SLOT"}) {
      child.argv.insert(child.argv.end(), {"-x", variable});
    }
  }
  child.argv.insert(child.argv.end(), options.mpirun_args.begin(), options.mpirun_args.end());
  child.argv.insert(child.argv.end(), {"-np", absl::StrCat(options.ranks), options.worker_program,
                                       "--coordinator", options.coordinator});
  AddFlags(options.tls, options.worker_flags, child.argv);
  // A folder of its own: Open MPI 5 fails where an mpirun of the same pid was killed and left one
  // of the same name.
  child.environment = {{"TMPDIR", folder},
                       {"SKEIN_JOB_ID", key.id},
                       {"SKEIN_JOB_SECRET", key.secret},
                       {"SKEIN_JOB_SLOT", slot}};
  if (!options.home.empty()) child.environment.emplace_back("HOME", options.home);
  if (!options.hostfile.empty()) {
    // Open MPI 5 puts all ranks on the first host where it may oversubscribe one.
    child.environment.emplace_back("PRTE_MCA_rmaps_default_mapping_policy", "slot");
  }
  if (!options.SeveralHosts()) {  // others have no such folder
    child.environment.emplace_back("OMPI_MCA_btl_vader_backing_directory", folder);
    child.environment.emplace_back("OMPI_MCA_btl_sm_backing_directory", folder);
  }
  return child;
}

}  // namespace skein::supervisor
