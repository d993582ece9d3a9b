// What the flags of the skein program do, by command.
#pragma once

#include <memory>
#include <string>

#include "tests/cluster/cluster.h"
#include "tests/flags/flag_cases.h"

namespace skein::testing {

// A coordinator on bard and a job of one rank, started by the first case that asks for them.
class SharedCluster {
 public:
  Cluster& Get();
  const std::string& address() { return Get().address(); }

 private:
  std::unique_ptr<Cluster> cluster_;
};

// All take `shared` by reference.
FlagCases GenerateCases(SharedCluster& shared);
FlagCases SamplingCases(SharedCluster& shared);  // of generate, too
FlagCases BenchServeCases(SharedCluster& shared);
FlagCases ChatCases(SharedCluster& shared);
FlagCases AdminCases(SharedCluster& shared);  // of model and drain
FlagCases MachinesCases();                    // no cluster is asked
FlagCases DoctorCases();                      // likewise, as with the next two
FlagCases FilesCases();
FlagCases BenchScaleCases();
void RegisterServeTests();  // of `skein serve` with a file
FlagCases ServeCases();
FlagCases KeysCases();

}  // namespace skein::testing
