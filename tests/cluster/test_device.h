// What the ranks of tests compute on: CPUs, or GPUs where SKEIN_TEST_DEVICE is cuda. Tests of jobs
// that know of none run on both; on a machine without a GPU the latter are skipped. There
// SKEIN_TEST_DECODE is the workers' --decode; then answers may depend on neighbours.
#pragma once

#include <string>
#include <vector>

namespace skein::testing {

bool OnGpus();
// Whether steps by one kernel, which takes a whole GPU, would take turns: a step of several ranks
// is then over in seconds.
bool StepsTakeTurns(int ranks);

// Flags of a worker, which shares the GPU with others: none on CPUs.
std::vector<std::string> WorkerDeviceFlags();
// mpirun's arguments by which ranks see so many GPUs, from `first` on.
std::vector<std::string> WithGpus(int first, int gpus);

// mpirun's arguments for the `index`-th job, of `ranks`: GPUs of its own, where there are enough
// for two such jobs; job after job takes the next ones.
std::vector<std::string> LaunchDeviceFlags(int index, int ranks);
// Flags of a coordinator beside `given`, which count first. On GPUs answers do not depend on
// neighbours and layouts, little is warmed up, and there is memory for several jobs at once.
std::vector<std::string> CoordinatorDeviceFlags(const std::vector<std::string>& given);

}  // namespace skein::testing
