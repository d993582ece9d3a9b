// What the flags of the worker program do, by command.
#pragma once

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/run.h"

namespace skein::testing {

inline constexpr char kWorker[] = "worker/worker";

// A coordinator on bard, and a job of one rank with these flags.
class Serving : public Cluster {
 public:
  explicit Serving(const std::vector<std::string>& flags = {})
      : Cluster({}), job_(StartJob(1, flags)) {
    EXPECT_TRUE(WaitForServing(1));
  }
  Process& job() { return job_; }

 private:
  Process& job_;
};

// The worker as it is installed, with one of kernels/cuda's fakes as its libskein_cuda.so; none
// where `fake` is empty.
std::string WorkerWith(const std::string& fake);

std::string Said(const Outcome& outcome);  // status, output, errors

// What keeps workers from GPUs, and what they say of it.
struct NoGpu {
  const char* fake;
  const char* says;
};
inline constexpr NoGpu kNoGpu[] = {
    {"", "bin/libskein_cuda.so, nor one in ../lib"},
    {"lacking", "libskein_absent.so.13: cannot open shared object file"},
    {"other_build", "is of another build (0123456789ab)"}};

FlagCases WorkerBenchCases();     // of `worker bench`
FlagCases WorkerEvaluateCases();  // of `worker perplexity` and `worker imatrix`
FlagCases WorkerProbeCases();     // of `worker probe`, and of jobs that measure

}  // namespace skein::testing
