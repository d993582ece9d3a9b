// What messages between ranks tell of the ways between them.
#pragma once

#include "absl/types/span.h"
#include "topology/rates.h"
#include "topology/topology.h"

namespace skein::worker {

// A way between two ranks of one host, by their places among that host's ranks.
struct PairRate {
  int first = 0;
  int second = 0;
  topology::LinkRate rate;
  int round = 0;  // pairs of one are timed at the same time, and share what they pass
};

// The latency of a curve's least message, and the rate of what its largest has more than the one
// before; it has two at least.
topology::LinkRate LinkOfMessages(const topology::ExchangeCurve& curve);

// Each path's way is that of its median pair. Pairs of GPUs that are far slower than that, and than
// the median of the others of their path in their round, stand beside. GPUs are in the order of the
// host's ranks; without GPUs ranks compute on cores.
void SetLinks(absl::Span<const PairRate> pairs, topology::Host& host);

}  // namespace skein::worker
