// How fast threads read memory, by how much they read again and again: caches count.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "topology/rates.h"
#include "worker/probe/probe_hooks.h"

namespace skein::worker {

struct TimedReads {
  std::vector<double> bytes_per_s;  // of each thread, by working set
  double spread = 0;                // the largest one
};

// Times `pass`, which reads so many bytes once and returns bytes per second of all `threads`
// together, for each working set, in bytes. Each thread reads a MiB at least. Ranks meet once a
// working set: when it has been read, so that it is where caches keep it, and before it is timed.
// Takes some 10 to 25 ms a working set, or two passes.
TimedReads TimeReads(const std::vector<int64_t>& working_sets, int threads, const ProbeHooks& hooks,
                     absl::FunctionRef<double(int64_t)> pass);

// Of a thread alone and of those that read at once, by working set. Who is alone is never slower:
// where it was measured so, something else has disturbed it.
std::vector<topology::ReadRate> ReadRates(const std::vector<int64_t>& working_sets,
                                          const TimedReads& alone, const TimedReads& together);

// Adds to `reads` what passes take behind those of ranks that share a core with this one, as
// `put_out` makes them; `pass`, `threads` and meetings are as above. A set that is read little
// faster than the largest one is taken to be read as slowly in all passes. Takes some 5 to 50 ms a
// working set.
void TimeReadsBehind(int threads, const ProbeHooks& hooks, absl::FunctionRef<double(int64_t)> pass,
                     absl::FunctionRef<void(int64_t)> put_out,
                     std::vector<topology::ReadRate>& reads);

}  // namespace skein::worker
