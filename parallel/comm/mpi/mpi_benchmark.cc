// What MPI communicators cost: latency of all-reduces by size, and CPU used by a rank that waits.
//   mpirun -np 4 mpi_benchmark
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/time/clock.h"
#include "parallel/comm/mpi/mpi_runtime.h"

namespace skein::comm {
namespace {

absl::Duration CpuTime() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
}

void MeasureAllReduce(Communicator& comm, int64_t bytes) {
  std::vector<float> data(bytes / sizeof(float), 1.0f);
  const int rounds = bytes <= 1 << 20 ? 300 : 20;
  std::vector<absl::Duration> times;
  for (int i = 0; i < rounds; ++i) {
    const absl::Time start = absl::Now();
    if (!comm.AllReduce(HostView(absl::MakeSpan(data)), kHostStream).ok()) return;
    times.push_back(absl::Now() - start);
  }
  std::sort(times.begin(), times.end());
  if (comm.rank() != 0) return;
  const double median_us = absl::ToDoubleMicroseconds(times[times.size() / 2]);
  std::printf("all-reduce of %9ld bytes over %d ranks: median %8.1f us, p95 %8.1f us, %.2f GB/s\n",
              static_cast<long>(bytes), comm.size(), median_us,
              absl::ToDoubleMicroseconds(times[times.size() * 95 / 100]),
              static_cast<double>(bytes) / median_us / 1e3);
}

// All ranks but 0 wait for a rank 0 that sleeps.
void MeasureIdle(Communicator& comm) {
  constexpr absl::Duration kIdle = absl::Seconds(2);
  if (!comm.Barrier(kHostStream).ok()) return;
  const absl::Duration before = CpuTime();
  if (comm.rank() == 0) absl::SleepFor(kIdle);
  if (!comm.Barrier(kHostStream).ok()) return;
  const double used = absl::FDivDuration(CpuTime() - before, kIdle) * 100;
  std::vector<float> all(comm.size());
  const float mine = static_cast<float>(used);
  if (!comm.AllGather(ConstView{&mine, DType::kF32, 1, 1}, HostView(absl::MakeSpan(all)),
                      kHostStream)
           .ok()) {
    return;
  }
  if (comm.rank() == 0) {
    std::printf("a rank that waits uses at most %.2f%% of a core\n",
                *std::max_element(all.begin() + 1, all.end()));
  }
}

int Main() {
  auto runtime = MpiRuntime::Create();
  if (!runtime.ok()) {
    std::fprintf(stderr, "%s\n", runtime.status().ToString().c_str());
    return 1;
  }
  Communicator& world = (*runtime)->world();
  for (int64_t bytes :
       {4, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20}) {
    MeasureAllReduce(world, bytes);
  }
  if (world.size() > 1) MeasureIdle(world);
  return 0;
}

}  // namespace
}  // namespace skein::comm

int main() { return skein::comm::Main(); }
