#include "supervisor/commands.h"

#include "absl/strings/str_cat.h"

namespace skein::supervisor {

Child::Options CoordinatorCommand(const Options& options, const std::string& folder) {
  Child::Options child;
  child.argv = {options.coordinator_program, "--model", options.model, "--listen",
                options.coordinator};
  child.argv.insert(child.argv.end(), options.coordinator_flags.begin(),
                    options.coordinator_flags.end());
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
  child.argv.insert(child.argv.end(), options.worker_flags.begin(), options.worker_flags.end());
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
