// A job for mpi_fault_test.sh: all ranks all-reduce until something happens to one of them.
//   mpi_victim FOLDER: writes FOLDER/pid.RANK once the ranks work.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "parallel/comm/mpi/mpi_runtime.h"

namespace skein::comm {
namespace {

absl::Status Work(Communicator& world, const std::string& folder) {
  world.set_timeout(absl::Seconds(1));
  std::vector<float> data(1000);
  for (int64_t call = 1;; ++call) {
    if (absl::Status status = world.AllReduce(HostView(absl::MakeSpan(data)), kHostStream);
        !status.ok())
      return status;
    if (call == 10) std::ofstream(absl::StrCat(folder, "/pid.", world.rank())) << getpid();
    absl::SleepFor(absl::Milliseconds(1));
  }
}

int Main(const std::string& folder) {
  auto runtime = MpiRuntime::Create();
  absl::Status status = runtime.status();
  if (status.ok()) status = Work((*runtime)->world(), folder);
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::fflush(nullptr);
  _exit(1);  // like the worker: finalizing MPI would wait for the rank that is lost
}

}  // namespace
}  // namespace skein::comm

int main(int argc, char** argv) { return skein::comm::Main(argc > 1 ? argv[1] : "."); }
