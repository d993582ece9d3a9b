// A small sum over the devices of one host, in one kernel.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/peer_sums.h"
#include "base/stream.h"
#include "kernels/cuda/peer_memory.h"

namespace skein::kernels::cuda {

// data[i] = the sum of all ranks' data[i], as floats, joined as a binary tree, rounded once.
struct PeerSum {
  using Shots = PeerSums::Shots;
  PeerMemory memory;
  DType dtype = DType::kBF16;    // or F32, or F16
  int64_t bytes = 0;             // a multiple of 8, to kMostPeerSumBytes
  void* data = nullptr;          // 8-byte aligned
  Shots shots = Shots::kBySize;  // one to memory.one_shot_bytes
};

// Where nothing is measured, the most bytes that are summed faster by one shot than by two, whose
// bits are equal: a second one costs some 1.5 us, in which links carry 0.5 MB, and of n ranks'
// packets the first has n / 2 times as many.
constexpr int64_t OneShotBytes(int ranks) {
  return ranks == 2 ? kMostPeerSumBytes : int64_t{ranks <= 4 ? 128 : 64} * 1024;
}
// The most for which one shot has places.
constexpr int64_t MostOneShotBytes(int ranks) {
  return ranks == 2 ? kMostPeerSumBytes : 2 * kMostPeerSumBytes / kMostPeers;
}

static_assert(2 * MostOneShotBytes(2) <= kWordsBytes);
static_assert(kMostPeers * MostOneShotBytes(kMostPeers) <= kWordsBytes);
// A persistent step's packets, of as many bytes, are twice their data.
static_assert(2 * 2 * MostOneShotBytes(2) <= kPacketsBytes);
static_assert(2 * kMostPeers * MostOneShotBytes(kMostPeers) <= kPacketsBytes);

// Makes an exchange buffer of kExchangeBytes ready, before any rank uses it.
absl::Status ClearExchange(void* exchange);

// Queues it. Every rank gives the same dtype, bytes and shots, in the same order. InvalidArgument
// or Unimplemented for what breaks the above.
absl::Status Enqueue(const PeerSum& op, Stream stream);

// Heads of sums that `stream` gets from now on name this step.
struct BeginPeerStep {
  PeerTurn* turn = nullptr;
  uint32_t step = 0;
  uint32_t order = 0;
};
absl::Status Enqueue(const BeginPeerStep& op, Stream stream);

}  // namespace skein::kernels::cuda
