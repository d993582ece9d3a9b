// The flags of `skein doctor`.
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/listening_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/ask.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/run.h"
#include "tests/flags/skein_cases.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// With settings for mpirun.
Outcome Doctor(const std::string& flags) {
  const std::string folder = NewPath("d");
  mkdir(folder.c_str(), 0755);
  return Run("sh", absl::StrCat("-c '. scripts/env.sh; exec \"$@\"' - ", kSkein, " doctor ", flags),
             {{"TMPDIR", folder}, {"HOME", folder}});
}

void DoctorNp() {
  const Outcome outcome = Doctor("--np=2 --port=0");
  EXPECT_TRUE(outcome.ok()) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(ContainsRegex("\n(ok|warning) +cores +[^\n]* [1-9][0-9]*% of "),
                                 HasSubstr(" on all 2 ranks\n"), HasSubstr("\n0 errors, "),
                                 Not(HasSubstr("model")), Not(HasSubstr("port"))));
}

void DoctorModel() {
  EXPECT_THAT(Doctor("--port=0 --model=checkpoints/bard").out,
              HasSubstr("checkpoints/bard is the same on all ranks"));
  const Outcome none = Doctor("--port=0 --np=2 --model=/nowhere");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.out, AllOf(ContainsRegex("\nerror +model +rank 0 on .*: /nowhere: No such"),
                              HasSubstr("\n1 error, ")));
}

void DoctorPort() {
  std::string port;
  {
    const ListeningSocket held;
    port = absl::StrCat(held.port());
    const Outcome taken = Doctor("--port=" + port);
    EXPECT_EQ(taken.exit_code, 1);
    EXPECT_THAT(taken.out, ContainsRegex(absl::StrCat("\nerror +port +.*: ", port,
                                                      ": another program listens there")));
  }
  EXPECT_THAT(Doctor("--port=" + port).out,
              ContainsRegex(absl::StrCat("\nok +port +", port, " of ")));
}

// A setting that names no interface here. Limits that are too low are those of the shell.
void DoctorMpirun() {
  const Outcome outcome =
      Doctor("--port=0 '--mpirun=--mca btl self,vader -x NCCL_SOCKET_IFNAME=nothing7'");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("NCCL_SOCKET_IFNAME=nothing7 names no interface of it"));
}

// One rank stands behind another process at a core, and may not leave it.
void DoctorFindsASlowCore() {
  const std::string worker = NewPath("worker");
  std::ofstream(worker) << "#!/bin/sh\n"
                           "[ \"$OMPI_COMM_WORLD_RANK\" = 1 ] || exec worker/worker \"$@\"\n"
                           "core=$(taskset -cp $$ | sed 's/.*: \\([0-9]*\\).*/\\1/')\n"
                           "taskset -cp \"$core\" $$ >&2\n"
                           "timeout 60 sh -c 'while :; do :; done' & hog=$!\n"
                           "nice -n 12 worker/worker \"$@\"\n"
                           "status=$?\n"
                           "kill $hog\n"
                           "exit $status\n";
  chmod(worker.c_str(), 0755);
  EXPECT_THAT(Doctor("--np=3 --port=0 --worker=" + worker).out,
              ContainsRegex("\nwarning +cores +rank 1 on .*: its core does [1-9]"));
}

// Ranks that do not meet are asked alone.
void DoctorWorker() {
  DoctorFindsASlowCore();
  EXPECT_THAT(Doctor("--worker=/nowhere/worker").err, HasSubstr("/nowhere/worker"));
  const std::string worker = NewPath("worker");
  std::ofstream(worker) << "#!/bin/sh\n[ \"$3\" = --alone ] && exec "
                        << "worker/worker"
                        << " \"$@\"\nexit 1\n";
  chmod(worker.c_str(), 0755);
  const Outcome apart = Doctor("--np=2 --worker=" + worker + " --model=checkpoints/bard --port=0");
  EXPECT_EQ(apart.exit_code, 1);
  EXPECT_THAT(apart.err, HasSubstr("the ranks did not meet; each is asked alone"));
  EXPECT_THAT(apart.out, AllOf(ContainsRegex("\nerror +MPI +the ranks do not meet\n"),
                               HasSubstr(" on all 2 ranks\n"), HasSubstr("\n1 error, ")));
  EXPECT_THAT(Doctor("--worker=/bin/true").err, HasSubstr("told of no rank"));
}

}  // namespace

FlagCases DoctorCases() {
  return {
      HelpCase(kSkein, "doctor"),
      {{"doctor", "--np"}, DoctorNp},
      {{"doctor", "--model"}, DoctorModel},
      {{"doctor", "--port"}, DoctorPort},
      {{"doctor", "--mpirun"}, DoctorMpirun},
      {{"doctor", "--worker"}, DoctorWorker},
  };
}

}  // namespace skein::testing
