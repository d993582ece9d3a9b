// Up to which size a group's sums go over the memory of its devices, and beyond which over another
// transport: measured as the group is made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/device_timer.h"
#include "base/peer_sums.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/device_transport.h"

namespace skein::comm {

// How often a graph has what is timed, and how long its replays may take.
struct GraphTiming {
  int calls = 16;                                  // no launch lies between them, as in a step
  absl::Duration budget = absl::Milliseconds(20);  // of the samples
  absl::Duration timeout;                          // of one
};
struct InGraph {
  double seconds = 0;  // of a call, the median
  int samples = 0;
};
// Times what `give` gives the timer's stream, in a graph of several. A call of all ranks of
// `group`, which replay as often as rank 0 finds that the budget allows. `check` is asked while a
// replay is waited for. DeadlineExceeded where one is not over in time.
absl::StatusOr<InGraph> TimeInGraph(Communicator& group, DeviceTimer& timer, const GraphTiming& how,
                                    absl::FunctionRef<absl::Status()> check,
                                    absl::FunctionRef<absl::Status()> give);

// Seconds of a sum in a graph of several, medians.
struct SumTimes {
  int64_t bytes = 0;
  double over_memory = 0;  // in one shot or in two, the faster way
  double over_rest = 0;
  bool one_shot = false;  // it is
};

// Returns the largest size up to which no sum is slower over memory; 0 where the smallest one is.
// `times` are of growing sizes. Pure.
int64_t CrossoverOf(absl::Span<const SumTimes> times);

// Returns the largest size up to which all sums were faster in one shot; 0 where the smallest one
// was not. Pure.
int64_t OneShotOf(absl::Span<const SumTimes> times);

// "8.0 KiB 3.1 and 6.6 us, 1.0 MiB 9.2 and 14.1 us"
std::string DescribeTimes(absl::Span<const SumTimes> times);

// Times sums of both kinds, from 8 KiB to what `sums` takes, in doubling sizes, on `timer`'s
// device; over memory in one shot and in two, where ranks are more than two, for whom one carries
// as little. A call of all ranks of `group`, which make as many sums of each kind, one kind after
// the other; the times are the calling rank's own. Takes some 20 ms where each rank has a device of
// its own. DeadlineExceeded where a sum is not over within `timeout`; behind any error sums may be
// under way until both are aborted.
absl::StatusOr<std::vector<SumTimes>> TimeSums(Communicator& group, PeerSums& sums,
                                               DeviceTransport& rest, DeviceTimer& timer,
                                               absl::Duration timeout);

}  // namespace skein::comm
